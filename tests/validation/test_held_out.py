"""What calibrations state of what they did not fit, and what the layers of a stage hold."""

import json

import pytest

from calibration import links
from rostam_py.cli.main import main
from rostam_py.costs.kernel_table import TABLES
from rostam_py.fabrics.link_classes import LINKS, read_link_class
from rostam_py.validation.document import beyond_bounds, document_of, pooled
from rostam_py.validation.held_out import STATED, HeldOutErrors
from rostam_py.validation.predict import Predictor, validate
from rostam_py.validation.rows import HELD_OUT
from rostam_py.validation.tables import select

GIB = 2**30


def test_every_series_of_every_kernel_table_is_listed():
    stated = [
        (len(one["rows"]), one["held_out"]["absolute"])
        for path in sorted(TABLES.glob("*.kernels.json"))
        for one in json.loads(path.read_text())["series"] if one["held_out"]
    ]  # fmt: skip
    listed = [errors for _, errors in STATED["kernels"]()]
    assert [one.num_fitted + one.num_judged for one in listed] == [count for count, _ in stated]
    assert [one.absolute / 100 for one in listed] == pytest.approx([absolute for _, absolute in stated])


def test_collectives_are_judged_on_rows_that_were_not_fitted():
    """Once more from the measured tables: A100's even sizes and its five ranks, at the shipped constants."""
    (bench,) = (one for one in links.BENCHES if one.name == "nvlink3")
    every = links.rows_of(bench.tables[:1])
    rows = [row for row in every if row.num_bytes <= 2**30]
    fitted = [row for row in links.split(bench, every)[0] if row.num_bytes <= 2**30]
    left = [row for row in rows if row not in fitted]
    constants = read_link_class("nvlink3", LINKS)
    harness = json.loads((LINKS / "nvlink3.json").read_text())["harness"]  # vTrain's takes so long at least
    least_s = [(harness["base_us"] + harness["rank_us"] * row.num_ranks) * 1e-6 for row in left]
    times = [max(links.predict(bench, constants, row)[0], least) for row, least in zip(left, least_s, strict=True)]
    errors = [100 * (seconds / row.seconds - 1) for seconds, row in zip(times, left, strict=True)]
    (found,) = (errors for name, errors in STATED["collectives"]() if name.endswith("a100_nvswitch.csv"))
    assert (found.num_fitted, found.num_judged) == (len(fitted), len(left))
    assert found.absolute == pytest.approx(sum(map(abs, errors)) / len(errors), abs=0.01)
    assert found.signed == pytest.approx(sum(errors) / len(errors), abs=0.01)
    assert found.worst == pytest.approx(max(errors, key=abs), abs=0.01)


def test_means_over_calibrations_weigh_every_measurement_alike():
    few, many = HeldOutErrors(9, 1, 8.0, -8.0, -8.0, False), HeldOutErrors(9, 3, 4.0, 4.0, 20.0, True)
    assert pooled([few, many]) == {"num_rows": 4, "mean_absolute": 5.0, "mean_signed": 1.0, "worst": 20.0}


def test_tables_of_held_out_rows_are_listed_and_not_predicted():
    (document,) = document_of(validate(select(["collectives"], ["V100*"])))["tables"]
    assert document["is"] == HELD_OUT
    assert (document["rows"], document["failed"], document["not_modelled"]) == ([], [], [])
    (row,) = document["held_out"]
    assert document["summary"]["time"]["num_rows"] == row["num_judged"]
    assert "allreduce_v100_dgx1.csv" in row["name"]


def test_layers_hold_what_the_formulas_say():
    """22 B on 8: 12 h^2 + 13 h parameters in each of 48 layers, of which norms and two biases, 6 h, on every device;
    18 bytes each. Of activations s b h (10 + 24/t + 5 a s/(h t)) bytes, next to which two numbers for each row of a
    norm are nothing."""
    (table,) = select(["V2_memory"], ["22B none"])
    compared = Predictor().outcome(table, table.rows[0]).compared
    width, heads, sequence, batch, tp, layers = 6144, 64, 2048, 4, 8, 48
    state = 18 * layers * ((12 * width**2 + 7 * width) / tp + 6 * width)
    assert compared["state"].predicted == pytest.approx(state, rel=1e-6)
    assert compared["state"].predicted / GIB == pytest.approx(45.56, rel=1e-3)
    kept = sequence * batch * width * (10 + 24 / tp + 5 * heads * sequence / (width * tp)) * layers
    assert compared["activations"].predicted == pytest.approx(kept, rel=1e-4)


def test_tables_beyond_their_bounds_are_named():
    def document(mean, worst, bounds, failed=()):
        one = {"num_rows": 2, "mean_absolute": mean, "mean_signed": mean, "worst": worst}
        return {"tables": [{"name": "T", "summary": {"time": one}, "bounds": bounds, "failed": list(failed)}]}

    bounds = {"time": {"mean": 5, "worst": 10}}
    assert beyond_bounds(document(5.0, -10.0, bounds)) == []
    assert beyond_bounds(document(5.1, -10.1, bounds)) == [
        "T: the mean absolute error of time is 5.1%, its bound 5%", "T: the worst absolute error of time is 10.1%,"
        " its bound 10%",
    ]  # fmt: skip
    assert beyond_bounds(document(1.0, 1.0, {})) == ["T: errors of time have no bounds"]
    failed = [{"name": "a", "reason": "does not fit"}]
    assert beyond_bounds(document(1.0, 1.0, bounds, failed)) == ["T/a failed: does not fit"]


def test_the_command_fails_beyond_bounds_and_refuses_them_for_parts_of_tables(tmp_path, capsys):
    assert main(["validate", "tables=collectives", "bounds=true", f"out={tmp_path}"]) == 0
    assert main(["validate", "tables=collectives", "rows=V100*", "bounds=true", f"out={tmp_path}"]) == 2
    assert "bounds hold only for whole shipped tables" in capsys.readouterr().err
    assert json.loads((tmp_path / "validation.json").read_text())["tables"][0]["is"] == HELD_OUT
