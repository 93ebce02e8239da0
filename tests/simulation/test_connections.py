"""Flows from files: what they hold, errors that name file, line and value, and mutants."""

import random

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.simulation.connections import read_connections

MATRIX = """# three flows
Nodes 16
Connections 3
0->15 id 1 start 0 size 2000000
4->15 id 2 start 0 size 2000000
8->15 id 3 start 50000000 size 2000000
"""
TABLE = """src,dst,num_bytes,start_s
0,15,2 MB,0
4,15,2 MB,
8,15,2000000,50 us
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="flows.cm"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_matrix_and_a_table_hold_the_same_flows(written):
    matrix, table = read_connections(written(MATRIX)), read_connections(written(TABLE, "flows.csv"))
    assert (matrix.src, matrix.dst, matrix.num_bytes) == ((0, 4, 8), (15, 15, 15), (2_000_000,) * 3)
    assert matrix.start_s == pytest.approx((0, 0, 50e-6))
    assert (matrix.num_nodes, table.num_nodes) == (16, 0)
    for column in ("src", "dst", "num_bytes", "start_s"):
        assert getattr(table, column) == getattr(matrix, column)
    assert matrix.total_bytes == 6_000_000


def test_flows_of_a_file_are_those_that_are_listed(written):
    fabric = rostam.fabric("fat_tree", num_accelerators=16, link_bandwidth="100 Gb/s")
    path = written(MATRIX)
    listed = rostam.run_flows(fabric, src=[0, 4, 8], dst=[15] * 3, num_bytes=[2_000_000] * 3, start_s=[0, 0, 50e-6])
    for given in (path, str(path), read_connections(path)):
        assert np.array_equal(rostam.run_flows(fabric, connections=given).finish_s, listed.finish_s)
    # By hand: two share the last link for 50 us, then three; the third is through last, at 480 us.
    assert listed.sent_s.max() == pytest.approx(6_000_000 / 12.5e9, rel=1e-9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MATRIX.replace("Connections 3", "Connections 4"), "says Connections 4 and holds 3 flows"),
        (MATRIX.replace("Nodes 16", "Nodes 8"), "has a flow 0->15 and Nodes 8; nodes are 0 to 7"),
        (MATRIX.replace("start 0 size 2000000", "start 0", 1), r"flows.cm:4: '0->15 id 1 start 0'; a flow is"),
        (MATRIX.replace("size 2000000", "size 2e6", 1), "flows.cm:4: size is '2e6'; it must be a whole number"),
        (MATRIX.replace("start 0", "start -1", 1), "flows.cm:4: start is '-1'; it must be a number >= 0"),
        (MATRIX.replace("id 1", "speed 1"), "flows.cm:4: 'speed' is unknown; a flow has id, start and size"),
        (MATRIX.replace("id 3 start 50000000", "trigger 7"), "flows.cm:6: trigger is not simulated here"),
        (MATRIX.replace("id 1", "prio 1"), "flows.cm:4: prio is not simulated here: priorities"),
        (MATRIX + "failure switch_type TOR\n", "flows.cm:7: failure is not simulated here"),
        (MATRIX + "hello\n", "flows.cm:7: 'hello' is neither a flow SRC->DST nor Nodes N"),
        ("Nodes 16\n", "holds no flow; it needs one at least"),
    ],
)
def test_a_wrong_matrix_is_refused_by_line(written, text, said):
    with pytest.raises(ConfigError, match=said):
        read_connections(written(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            TABLE.replace("src,", "source,"),
            "has the columns source, dst, num_bytes, start_s; it needs src, dst",
        ),
        (TABLE.replace("0,15,2 MB,0", "0,15"), "flows.csv:2: the row has not one value for each"),
        (TABLE.replace("0,15,2 MB,0", "0,15,2 MB,0,9"), "flows.csv:2: the row has not one value for each"),
        (TABLE.replace("2 MB", "2 hours", 1), "flows.csv:2: num_bytes"),
        (TABLE.replace("50 us", "50 MB"), "flows.csv:4: start_s"),
        (TABLE.replace("8,15", "x,15"), "flows.csv:4: src is 'x'; it must be a whole number"),
    ],
)
def test_a_wrong_table_is_refused_by_line(written, text, said):
    with pytest.raises(ConfigError, match=said):
        read_connections(written(text, "flows.csv"))


def test_other_files_and_flows_given_twice_are_refused(written, tmp_path):
    fabric = rostam.fabric("fat_tree", num_accelerators=16, link_bandwidth="100 Gb/s")
    with pytest.raises(ConfigError, match=r"it must end in one of: \.cm, \.csv"):
        read_connections("flows.txt")
    with pytest.raises(ConfigError, match="cannot read"):
        read_connections(tmp_path / "none.cm")
    with pytest.raises(ConfigError, match="connections and src are given"):
        rostam.run_flows(fabric, src=[0], connections=written(MATRIX))
    with pytest.raises(ConfigError, match="dst is missing; give src, dst and num_bytes, or connections"):
        rostam.run_flows(fabric, src=[0])


@pytest.mark.parametrize(("text", "name"), [(MATRIX, "flows.cm"), (TABLE, "flows.csv")])
@pytest.mark.parametrize("seed", [0, pytest.param(range(1, 40), marks=pytest.mark.slow)])
def test_mutants_are_read_or_refused(written, text, name, seed):
    for one in [seed] if isinstance(seed, int) else seed:
        rng = random.Random(one)
        for _ in range(50):
            mutant = list(text)
            for _ in range(rng.randint(1, 3)):
                mutant[rng.randrange(len(mutant))] = rng.choice("0123456789->,. \n#xeE")
            try:
                found = read_connections(written("".join(mutant), name))
            except ConfigError:
                continue
            assert len(found.src) == len(found.dst) == len(found.num_bytes) == len(found.start_s) > 0
            assert min(*found.src, *found.dst, *found.num_bytes, *found.start_s) >= 0
