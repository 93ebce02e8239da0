"""Batches of messages: they start together and are over together, hold their stream and keep their place in a group."""

import json

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.programs import Batch, BatchMessage, Collective, Compute, Program, RankGroups, Role, Wait

RATE, ALPHA = 1e9, 1e-6
QUIET = {"launch_latency": 0.0, "min_kernel_time": 0.0}
MB = 10**6


def flat(num, **fields):
    fabric = rostam.fabric("electrical_flat", num_accelerators=num, link_bandwidth=RATE, latency=ALPHA)
    return rostam.Machine(fabric=fabric, **{**QUIET, **fields})


def message(kind, channel, size, peer):
    return BatchMessage(kind=kind, channel=channel, num_bytes=size, peer=peer)


def program(*roles, num=2, kinds=("pp",)):
    return Program(
        name="batches", num_ranks=num, groups={kind: RankGroups(kind=kind) for kind in kinds},
        roles={
            f"role {k}": Role(phases={"iteration": tuple(steps)}, ranks=(k,), after="stream")
            for k, steps in enumerate(roles)
        },
    )  # fmt: skip


def spans(made, tmp_path, rank=0, **options):
    made.save(tmp_path / "program.json")
    made = Program.load(tmp_path / "program.json")
    options = {"min_iterations": 1, "max_iterations": 1, "timeline": True} | options
    result = rostam.simulate(made.on(flat(made.num_ranks)), **options)
    result.save_timeline(str(tmp_path / "timeline.json"))
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    return result, {
        e["name"]: (e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6) for e in events if e["ph"] == "X" and e["pid"] == rank
    }


def close(seconds):
    return pytest.approx(seconds, rel=1e-6, abs=1e-9)


def exchange(size_out, size_in, peer, **fields):
    mine, its = ("up", "down") if peer > 0 else ("down", "up")
    return Batch(
        group="pp", messages=(message("send", mine, size_out, peer), message("recv", its, size_in, peer)), **fields
    )  # fmt: skip


@pytest.mark.parametrize("fidelity", ["flow", "packet"])
def test_a_batch_is_over_when_its_last_message_is(tmp_path, fidelity):
    # Rank 0 sends 2 MB and receives 5 MB at the same time: its send is over at 2 ms, the batch 1 us behind 5 ms.
    made = program(
        [exchange(2 * MB, 5 * MB, 1, name="swap"), Compute(name="k", time=1e-3, after=("swap",))],
        [exchange(5 * MB, 2 * MB, -1, name="swap"), Compute(name="k", time=1e-3, after=("swap",))],
    )
    result, found = spans(made, tmp_path, fidelity=fidelity)
    slack = 0.02 if fidelity == "packet" else 1e-6
    assert found["k"][0] == pytest.approx(5e-3 + ALPHA, rel=slack)
    # The idle devices waited for messages all the while, rank 1 until its own had left.
    assert result.breakdown["pp"] == pytest.approx(5e-3 + ALPHA / 2, rel=slack)
    assert sum(result.breakdown.values()) == close(result.first_iteration_s)
    assert result.bytes_sent["pp"] == 7 * MB


def test_a_batch_starts_as_one_and_holds_its_stream(tmp_path):
    # Rank 0's batch waits for 3 ms of compute, and so do its send and the batch behind it on the stream.
    later = Batch(name="later", group="pp", messages=(message("send", "later", MB, 1),))
    got = Batch(name="got", group="pp", messages=(message("recv", "later", MB, -1),))
    made = program(
        [Compute(name="a", time=3e-3), exchange(MB, MB, 1, name="swap", after=("a",)), later, Wait(after=("later",))],
        [exchange(MB, MB, -1, name="swap"), got, Wait(after=("got",))],
    )
    _, found = spans(made, tmp_path)
    # Rank 1's message came at 1 ms; what holds the batch is its own send, from 3 to 4 ms.
    assert found["swap begins"][0] == close(3e-3)
    assert found["swap"][1] == close(4e-3)
    assert found["send later"] == (close(4e-3), close(5e-3))


def test_a_batch_and_collectives_of_its_group_keep_the_order_of_steps(tmp_path):
    # The batch waits for 2 ms of compute; the reduction behind it is on another stream and waits all the same.
    reduce = Collective(name="sum", collective="all_reduce", num_bytes=2 * MB, group="pp", algorithm="ring", stream="s")
    made = program(
        [Compute(name="a", time=2e-3), exchange(MB, MB, 1, name="swap", after=("a",)), reduce, Wait(after=("sum",))],
        [exchange(MB, MB, -1, name="swap"), reduce, Wait(after=("sum",))],
    )
    _, found = spans(made, tmp_path)
    assert found["sum"][0] == close(3e-3)  # when its batch is over
    made = program(
        [Compute(name="a", time=2e-3), exchange(MB, MB, 1, name="swap", after=("a",)),
         Collective(name="sum", collective="all_reduce", num_bytes=2 * MB, group="dp", algorithm="ring"),
         Wait(after=("sum",))],
        [exchange(MB, MB, -1, name="swap"),
         Collective(name="sum", collective="all_reduce", num_bytes=2 * MB, group="dp", algorithm="ring"),
         Wait(after=("sum",))],
        kinds=("pp", "dp"),
    )  # fmt: skip
    _, found = spans(made, tmp_path)
    assert found["sum"][0] == 0  # of another communicator it does not


def test_a_launch_is_paid_once_by_a_batch(tmp_path):
    # a ends at 1 ms; the batch's messages start one launch later, and what waits for them begins another one later.
    made = program(
        [Compute(name="a", time=1e-3), exchange(MB, MB, 1, name="swap", after=("a",)), Wait(name="w", after=("swap",))],
        [
            Compute(name="a", time=1e-3),
            exchange(MB, MB, -1, name="swap", after=("a",)),
            Wait(name="w", after=("swap",)),
        ],
    )
    launch = 5e-6
    result = rostam.simulate(made.on(flat(2, launch_latency=launch)), min_iterations=1, max_iterations=1)
    assert result.first_iteration_s == close(3 * launch + 2e-3 + ALPHA)


def test_messages_of_batches_are_counted_and_matched():
    made = program([exchange(MB, 2 * MB, 1)], [exchange(2 * MB, MB, -1)])
    assert sorted((one.kind, one.num_bytes, one.count) for one in made.messages()) == [
        ("recv", MB, 1), ("recv", 2 * MB, 1), ("send", MB, 1), ("send", 2 * MB, 1),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="sends a message on channel 'up' in groups 'pp' to its peer"):
        program([exchange(MB, MB, 1)], [Batch(group="pp", messages=(message("send", "down", MB, -1),))])
    with pytest.raises(ConfigError, match=r"steps\[0\].messages\[0\].peer is \+2, but rank 0 is number 0 of 2"):
        program([exchange(MB, MB, 2)], [exchange(MB, MB, -1)])
    with pytest.raises(ConfigError, match="messages is empty; a batch has at least one"):
        Batch(group="pp", messages=())
    with pytest.raises(ConfigError, match=r"messages\[0\]: num_bytes is 0; it must be at least 1 byte"):
        Batch(group="pp", messages=(message("send", "x", 0, 1),))


def test_a_wrong_key_of_a_message_is_refused_with_its_place(tmp_path):
    path = tmp_path / "program.json"
    program([exchange(MB, MB, 1)], [exchange(MB, MB, -1)]).save(path)
    path.write_text(path.read_text().replace('"peer": 1', '"pair": 1'))
    with pytest.raises(ConfigError, match=r"roles.role 0.steps\[0\].messages\[0\] has an unknown key 'pair'"):
        Program.load(path)
