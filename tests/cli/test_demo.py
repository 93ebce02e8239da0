"""The demonstration: its fabrics are comparable, bad settings are refused first, and its table is whole."""

import json

import pytest

from rostam_py.cli.demo import demo, demo_fabrics
from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric


@pytest.mark.parametrize("count", [16, 64, 128, 256, 1024])
def test_all_fabrics_have_the_accelerators_and_the_bandwidth_asked_for(count):
    for name, parameters in demo_fabrics(count).items():
        fabric = build_fabric(name, accelerator_bandwidth="3200 Gb/s", **parameters)
        assert fabric.num_accelerators == count
        assert fabric.injection_bandwidth_bytes_per_s == pytest.approx(400e9)


def test_sizes_that_boards_and_servers_do_not_fill_are_refused():
    with pytest.raises(ConfigError, match="num_accelerators is 40; it must be a multiple of 16"):
        demo_fabrics(40)


def test_bandwidths_without_unit_are_refused_before_any_work():
    with pytest.raises(ConfigError, match="bandwidths"):
        demo(["bandwidths=[400]"], as_json=True)


def test_a_file_in_the_place_of_its_folder_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"out is '.*/file'; it must be a folder"):
        demo([f"out={tmp_path / 'file'}", "short=true"], as_json=True)


@pytest.mark.slow
def test_a_small_demonstration_writes_every_point(tmp_path, capsys):
    overrides = ["num_accelerators=16", "bandwidths=[400 Gb/s,3200 Gb/s]", "num_simulated=1", f"out={tmp_path}"]
    assert demo(overrides, as_json=True) == 0
    out, said = capsys.readouterr()
    rows = json.loads(out)
    assert len(rows) == 2 * 6 * 2
    assert said.startswith("first, a step that was measured: Korthikanti")
    assert said.count(" to accuracy\n") == len(rows), "every point has a line as it comes"
    assert all(row["status"] == "ok" and row["time_to_accuracy_s"] > 0 for row in rows)
    assert all(row["estimate_error"] is not None for row in rows), "the best of each is simulated"
    assert (tmp_path / "points.csv").read_text().count("\n") == len(rows) + 1
    assert json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    page = (tmp_path / "report.html").read_text()
    assert all(name in page for name in ("resnet50", "transformer_350m", "sip_ring", "hammingmesh"))
