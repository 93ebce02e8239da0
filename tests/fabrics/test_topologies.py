"""Topology files of other simulators as links of a custom fabric, counted by hand."""

import random

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, RostamError
from rostam_py.programs import Program, RankGroups, Receive, Role, Send

# Two servers of two: each has an NVSwitch (4, 5), and every accelerator a cable to switch 6.
SIMAI = """7 2 2 1 8 H100
4 5 6
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
2 5 2880Gbps 0.000025ms 0
3 5 2880Gbps 0.000025ms 0
0 6 400Gbps 0.0005ms 0
1 6 400Gbps 0.0005ms 0
2 6 400Gbps 0.0005ms 0
3 6 400Gbps 0.0005ms 0
"""
ASTRA = """# two dimensions
topology: [ Switch, Ring ]
npus_count: [ 4, 3 ]
bandwidth: [ 400, 50.0 ]  # GB/s
latency: [ 936.25, 1000 ]  # ns
"""


def fabric(tmp_path, text, name, **keys):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return rostam.fabric("custom", links=str(path), **keys)


def message_s(fabric, src, dst, size):
    """Return how long one message takes, alone."""
    said = {"channel": "x", "num_bytes": size, "group": "g"}
    roles = {
        "s": Role(ranks=(0,), phases={"iteration": (Send(peer=1, **said),)}),
        "r": Role(ranks=(1,), phases={"iteration": (Receive(peer=-1, **said),)}),
    }
    program = Program(name="m", num_ranks=2, groups={"g": RankGroups()}, roles=roles)
    placed = program.on(rostam.Machine(fabric=fabric, launch_latency="0 us"), accelerators=[src, dst])
    return rostam.simulate(placed).first_iteration_s


def test_simai_links_are_those_of_the_file(tmp_path):
    found = fabric(tmp_path, SIMAI, "two_servers")
    # Eight cables, and one of each accelerator to its NIC.
    assert (found.num_accelerators, found.num_links) == (4, 8 + 4)
    # 360 GB/s by two cables of 25 ns in a server; 50 GB/s by two of 500 ns between them.
    assert message_s(found, 0, 1, 10**6) == pytest.approx(10**6 / 360e9 + 2 * 25e-9, rel=1e-9)
    assert message_s(found, 0, 3, 10**6) == pytest.approx(10**6 / 50e9 + 2 * 500e-9, rel=1e-9)


def test_astra_sim_links_are_those_of_its_dimensions(tmp_path):
    found = fabric(tmp_path, ASTRA, "net.yml", forwarding=True)
    # 12 accelerators; three switches of four cables, four rings of three; a cable is a link of two directions.
    assert (found.num_accelerators, found.num_links) == (12, 12 + 12)
    assert message_s(found, 0, 3, 10**6) == pytest.approx(10**6 / 400e9 + 2 * 936.25e-9, rel=1e-9)
    assert message_s(found, 1, 9, 10**6) == pytest.approx(10**6 / 50e9 + 1000e-9, rel=1e-9)


def test_full_connection_and_a_ring_of_two(tmp_path):
    text = "topology: [FullyConnected, Ring]\nnpus_count: [4, 2]\nbandwidth: [100, 50]\nlatency: [500, 500]\n"
    assert fabric(tmp_path, text, "full.yaml", forwarding=True).num_links == 2 * 6 + 4


@pytest.mark.parametrize(("name", "old", "new", "said"), [
    ("s", "2880Gbps", "tbd", "line 3 of .*'tbd"),
    ("s", "0.0005ms 0\n", "0.0005ms 0.01\n", "error is '0.01'"),
    ("s", "0 6 400Gbps", "9 6 400Gbps", "'9' is no node"),
    ("s", "4 5 6", "4 5 5", "must name 3 different switches"),
    ("s", " 8 H100", " 9 H100", "the file has 8 cables; line 1 says 9"),
    ("s", "0 4 2880Gbps", "0 4 0Gbps", "line 3 of .*must be > 0"),
    ("n.yml", "Switch, Ring", "Switch, Mesh", r"topology\[1\] is 'Mesh'"),
    ("n.yml", "4, 3", "4, 0", r"npus_count\[1\] is 0"),
    ("n.yml", "400, 50.0", "400, 0", r"bandwidth\[1\] is 0"),
    ("n.yml", "400, 50.0", "400", "bandwidth is .*an entry for each dimension"),
    ("n.yml", "latency", "delay", "delay is missing or unknown"),
    ("n.yml", "[ 4", "[ [4", "no YAML"),
    ("n.yml", "4, 3", "65536, 65536", "at most 65536"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(tmp_path, name, old, new, said):
    text = ASTRA if name.endswith("yml") else SIMAI
    assert old in text
    with pytest.raises(ConfigError, match=said):
        fabric(tmp_path, text.replace(old, new, 1), name)


def mutants(tmp_path, seeds):
    """Build mutants of both files: fabrics whose links all carry bytes, or refused."""
    for seed in seeds:
        chance = random.Random(seed)
        name, text = [("m", SIMAI), ("m.yml", ASTRA)][seed % 2]
        letters = list(text)
        for _ in range(chance.randint(1, 3)):
            letters[chance.randrange(len(letters))] = chance.choice("0123456789 .,[]:ax#\n-")
        try:
            found = fabric(tmp_path, "".join(letters), name)
        except RostamError as error:
            said = str(error)
        else:
            said = ""
            assert found.num_links > 0
        assert said == "" or "fabric" in said


def test_mutants_build_or_are_refused(tmp_path):
    mutants(tmp_path, range(50))


@pytest.mark.slow
def test_many_mutants_build_or_are_refused(tmp_path):
    mutants(tmp_path, range(50, 2050))
