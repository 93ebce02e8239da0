"""GOAL: the text, read by a grammar of its own, has each message at both ends, the bytes of closed forms, no circle."""

import re
from collections import Counter
from graphlib import TopologicalSorter

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.programs import Collective, Compute, Program, RankGroups, Role
from rostam_py.traces import write_trace
from tests.programs.sample import PIPELINE, machine

LINE = re.compile(
    r"l(?P<id>\d+): (calc (?P<ns>\d+)|(?P<way>send|recv) (?P<size>\d+)b (to|from) (?P<peer>\d+) tag (?P<tag>\d+))"
    r"|l(?P<later>\d+) requires l(?P<earlier>\d+)"
)


def read(file):
    """Return the calcs of each rank and the messages of all, every line having been understood, in a possible order."""
    head, *blocks = re.split(r"\n\nrank ", file.read_text(encoding="utf-8"))
    assert head == f"num_ranks {len(blocks)}"
    calcs, ends, order = [], {"send": Counter(), "recv": Counter()}, TopologicalSorter()
    places = {"send": {}, "recv": {}}
    for rank, block in enumerate(blocks):
        first, *lines, last = block.rstrip().split("\n")
        assert (first, last) == (f"{rank} {{", "}")
        calcs.append([])
        for line in lines:
            one = LINE.fullmatch(line)
            assert one, line
            if one["later"]:
                order.add((rank, one["later"]), (rank, one["earlier"]))
            elif one["ns"]:
                calcs[-1].append(int(one["ns"]))
            else:
                way, peer = one["way"], int(one["peer"])
                pair = (rank, peer) if way == "send" else (peer, rank)
                key = (*pair, int(one["tag"]), int(one["size"]))
                places[way].setdefault(key, []).append((rank, one["id"]))
                ends[way][key] += 1
    assert ends["send"] == ends["recv"]
    for key, senders in places["send"].items():
        for sender, receiver in zip(senders, places["recv"][key], strict=True):
            order.add(receiver, sender)
    tuple(order.static_order())  # raises CycleError for a circle
    return calcs, ends["send"]


SENT = {"all_reduce": 2 * 3 * 4000, "all_gather": 3 * 4000, "reduce_scatter": 3 * 4000, "all_to_all": 3 * 4000}


@pytest.mark.parametrize("name", SENT)
def test_collectives_send_the_bytes_of_their_closed_form(tmp_path, name):
    # Of 4 ranks and a buffer of 4,000 bytes: (n - 1) / n of it by each of n ranks, twice in an all-reduce.
    algorithm = "direct" if name == "all_to_all" else "ring"
    steps = (
        Compute(time="1.5 ns"), Compute(time="1 ps"),
        Collective(collective=name, num_bytes=4000, group="world", algorithm=algorithm),
    )  # fmt: skip
    role = Role(phases={"iteration": steps})
    program = Program(name="p", num_ranks=4, groups={"world": RankGroups()}, roles={"r": role})
    calcs, sent = read(write_trace("goal", program.on(machine(4)), tmp_path / "p.goal")[0])
    assert calcs == [[2, 1, 0]] * 4
    assert sum(key[3] * count for key, count in sent.items()) == SENT[name]


def test_a_program_of_stages_is_whole(tmp_path):
    placed = PIPELINE.on(machine())
    calcs, sent = read(write_trace("goal", placed, tmp_path / "p.goal")[0])
    assert sum(key[3] * count for key, count in sent.items()) == sum(rostam.simulate(placed).bytes_sent.values())
    assert calcs[2].count(4_000_000) == 4


def test_what_switches_reduce_is_refused(tmp_path):
    step = Collective(collective="all_reduce", num_bytes="64 MiB", group="world")
    role = Role(phases={"iteration": (step,)})
    program = Program(name="p", num_ranks=8, groups={"world": RankGroups()}, roles={"r": role})
    with pytest.raises(ConfigError, match="switches reduce or copy"):
        write_trace("goal", program.on(rostam.machine("dgx_h100", servers=1)), tmp_path / "p.goal")
