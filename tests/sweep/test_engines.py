"""A sweep over engines: the column of differences, the terminal's table and the page."""

import pytest

from rostam_py.cli.main import main
from rostam_py.report.sweep.figures import sweep_figures
from rostam_py.report.sweep.load import load_sweep
from rostam_py.spec.sweep_options import OVER_FIRST

pytestmark = pytest.mark.usefixtures("cached_traces")
COMMAND = (
    "sweep", "model=resnet50", "fabric=tree_64", "fabric.num_accelerators=4", "global_batch=64",
    "strategy.precision=bf16_mixed", "sweep.backend=inline",
)  # fmt: skip


def table_of(folder):
    return load_sweep(folder).table


@pytest.mark.parametrize("engines", ["[flow,packet]", "[packet,flow]"])
def test_a_point_is_over_the_same_point_with_the_first_engine(engines, tmp_path, capsys):
    assert main([*COMMAND, f"sweep.grid={{seed: [0, 1], fidelity: {engines}}}", f"out={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    table = table_of(tmp_path)
    first, other = engines.strip("[]").split(",")
    times = {(row["seed"], row["fidelity"]): row["iteration_time_s"] for row in table.to_dicts()}
    assert len(times) == 4
    for row in table.to_dicts():
        by_hand = row["iteration_time_s"] / times[row["seed"], first] - 1
        assert row[OVER_FIRST] == pytest.approx(by_hand, abs=1e-12)
        assert row["fidelity"] == other or row[OVER_FIRST] == 0
    differing = [row for row in table.to_dicts() if row["fidelity"] == other]
    assert all(row[OVER_FIRST] != 0 for row in differing)
    assert f"{differing[0][OVER_FIRST]:+.2%}" in shown
    figure = next(one for one in sweep_figures(load_sweep(tmp_path)) if one.name == "engines")
    assert sorted(figure.table[OVER_FIRST]) == sorted(row[OVER_FIRST] for row in differing)
    assert f"fidelity={first}" in figure.caption


def test_one_engine_alone_has_no_column(tmp_path):
    assert main([*COMMAND, "sweep.grid={seed: [0, 1]}", "fidelity=packet", f"out={tmp_path}"]) == 0
    assert OVER_FIRST not in table_of(tmp_path).columns
    assert "engines" not in {one.name for one in sweep_figures(load_sweep(tmp_path))}
