"""``rostam flows``: engines side by side, files out, and errors."""

import csv
import json

import pytest

from rostam_py.cli.main import main

TREE = ["fabric=fat_tree", "fabric.num_accelerators=16", "fabric.link_bandwidth=100 Gb/s"]
MATRIX = "Nodes 16\nConnections 2\n0->15 start 0 size 2000000\n4->15 start 0 size 2000000\n"


@pytest.fixture
def matrix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "incast.cm").write_text(MATRIX)
    return tmp_path / "incast.cm"


def test_engines_stand_side_by_side_with_their_difference(matrix, capsys):
    assert main(["flows", "incast.cm", *TREE, "fidelity=[flow,packet]", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    flow, packet = found["engines"]
    assert found["num_bytes"] == 4_000_000
    assert flow["last_finish_s"] == pytest.approx(4_000_000 / 12.5e9, rel=0.01)
    assert packet["over_first"]["last_finish"] == pytest.approx(packet["last_finish_s"] / flow["last_finish_s"] - 1)
    assert flow["over_first"] == dict.fromkeys(flow["over_first"], 0.0)


def test_times_of_each_flow_are_written(matrix, capsys):
    assert main(["flows", f"connections={matrix}", *TREE, "fidelity=[flow,packet]", "out=times.csv"]) == 0
    assert "last flow, over flow" in capsys.readouterr().out
    with (matrix.parent / "times.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["src"] for row in rows] == ["0", "4"]
    assert all(float(row["packet_finish_s"]) >= 2_000_000 / 12.5e9 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "connections is null; give a file"),
        (["none.cm"], "cannot read none.cm"),
        (["incast.cm", "incast.cm2"], "files given: incast.cm, incast.cm2; give one"),
        (["incast.cm", "connections=incast.cm"], "flows are given twice"),
        (["incast.cm", "fidelity=analytic"], "unknown fidelity 'analytic'; engines: flow"),
        (["incast.cm", "out=times.txt"], "out is 'times.txt'; it must end in one of: .csv, .json"),
        (["incast.cm", "fabric.num_accelerators=8"], "has Nodes 16; the fabric has 8 accelerators"),
    ],
)
def test_bad_requests_are_refused(matrix, arguments, said, capsys):
    fabric = TREE if not any("num_accel" in one for one in arguments) else [TREE[0], TREE[2]]
    assert main(["flows", *fabric, *arguments]) == 2
    assert said in capsys.readouterr().err
