"""Ranks that disagree are refused before anything runs: collectives, messages, orders, iterations that are too long."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.programs import Collective, Compute, Program, RankGroups, Receive, Repeat, Role, Send
from tests.programs.sample import machine

GROUPS = {"all": RankGroups(), "pp": RankGroups(kind="pp")}


def reduce(**fields):
    return Collective(**({"collective": "all_reduce", "num_bytes": "1 MiB", "group": "all"} | fields))


def send(**fields):
    return Send(**({"channel": "x", "num_bytes": 1000, "group": "pp", "peer": 1} | fields))


def receive(**fields):
    return Receive(**({"channel": "x", "num_bytes": 1000, "group": "pp", "peer": -1} | fields))


def busy(**fields):
    return Compute(time="10 us", **fields)


def role(*steps, ranks=None):
    return Role(phases={"iteration": steps}, ranks=ranks)


def program(num_ranks=4, **roles):
    return Program(name="test", num_ranks=num_ranks, groups=GROUPS, roles=roles)


def halves(one, other):
    return {"a": role(*one, ranks=("0-1",)), "b": role(*other, ranks=("2-3",))}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            [reduce()],
            [reduce(num_bytes=5)],
            "roles 'a' and 'b' run all_reduce of 1048576 bytes in groups 'all' 1 and 0",
        ),
        (
            [reduce()],
            [reduce(collective="all_gather")],
            "run all_reduce of 1048576 bytes in groups 'all' 1 and 0 times",
        ),
        ([reduce()], [busy()], "run all_reduce of 1048576 bytes in groups 'all' 1 and 0 times"),
        ([reduce(), reduce()], [reduce()], "run all_reduce of 1048576 bytes in groups 'all' 2 and 1 times"),
        (
            [reduce(), reduce(num_bytes=7)],
            [reduce(num_bytes=7), reduce()],
            "in different orders: number 0 is all_reduce",
        ),
    ],
)
def test_collectives_of_a_group_are_alike_on_all_ranks(one, other, said):
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        program(**halves(one, other))


def test_groups_without_a_shared_rank_may_differ():
    groups = {"two": RankGroups(size=2)}
    roles = halves([reduce(group="two")], [reduce(group="two", num_bytes=5)])
    result = rostam.simulate(Program(name="test", num_ranks=4, groups=groups, roles=roles).on(machine(4)))
    assert result.num_messages["dp"] == 2 * 2 * 2


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ({"a": role(busy(), ranks=(0, 2, 3)), "b": role(receive(), ranks=(1,))},
         "role 'b' receives a message on channel 'x' in groups 'pp' from its peer -1, of micro-batch 0, which role"),
        ({"a": role(send(), ranks=(0,)), "b": role(busy(), ranks=("1-3",))},
         "role 'a' sends a message on channel 'x' in groups 'pp' to its peer [+]1, of micro-batch 0, which role"),
        ({"a": role(send(), ranks=(0,)), "b": role(receive(num_bytes=7), ranks=(1,)), "c": role(busy(), ranks=(2, 3))},
         "roles.b.steps.0..num_bytes is 7, but roles.a.steps.0. gives the message on channel 'x' 1000 bytes"),
        ({"a": role(send(), ranks=(0,)), "b": role(receive(channel="y"), ranks=(1,)), "c": role(busy(), ranks=(2, 3))},
         "role 'a' sends a message on channel 'x'"),
        ({"a": role(send(), ranks=(0,)), "b": role(receive(), receive(), ranks=(1,)), "c": role(busy(), ranks=(2, 3))},
         "send and receive a message on channel 'x' in groups 'pp' 1 and 2 times in an iteration"),
    ],
)  # fmt: skip
def test_every_message_is_sent_and_received(roles, said):
    with pytest.raises(ConfigError, match=said):
        program(**roles)


def repeated(step, times, first=0, **fields):
    return Role(
        phases={"one": (step, busy())}, iteration=(Repeat(run=(("one", first),), times=times),), **fields
    )  # fmt: skip


def test_messages_match_by_micro_batch_whatever_the_segments():
    other = Role(
        phases={"one": (receive(), busy())},
        ranks=(1,),
        iteration=(Repeat(run=("one", "one"), times=2, stride=2), "one"),
    )
    both = {"a": repeated(send(after=()), 5, ranks=(0,)), "b": other}
    result = rostam.simulate(program(2, **both).on(machine(2)))
    assert result.num_messages["pp"] == 5
    with pytest.raises(ConfigError, match="of micro-batch 0, which role 'b' does not receive"):
        program(2, **(both | {"b": repeated(receive(), 5, first=1, ranks=(1,))}))


def test_an_iteration_that_is_too_long_is_refused():
    with pytest.raises(
        ConfigError, match="roles run 2,147,483,647 phases in an iteration; it must be at most 4,000,000"
    ):
        program(2, a=Role(phases={"one": (busy(),)}, iteration=(Repeat(run=("one",), times=2**31 - 1),)))


def test_phases_number_their_micro_batches_by_themselves():
    phases = {"f": (busy(),), "b": (busy(),)}
    order = Role(phases=phases, iteration=("f", "f", Repeat(run=("f", "b"), times=3), ("b", 3), "b")).order
    assert list(order) == [
        ("f", 0), ("f", 1), ("f", 2), ("b", 0), ("f", 3), ("b", 1), ("f", 4), ("b", 2), ("b", 3), ("b", 4),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"iteration\[0\].run names 'f' 2 times, but stride is 1; set stride to 2"):
        Role(phases=phases, iteration=(Repeat(run=("f", "f"), times=2),))
    with pytest.raises(ConfigError, match="reaches micro-batches above 2147483647"):
        Role(phases=phases, iteration=(Repeat(run=(("f", 2**31 - 2),), times=3),))


def test_steps_wait_for_the_one_before_unless_they_say_otherwise():
    # 100 us and then 10 us of kernels; the all_reduce takes 2 (4 - 1) (256 KiB / 50 GB/s + 500 ns) beside the first.
    quiet = machine(4, launch_latency=0.0, min_kernel_time=0.0)
    reduce_s = 6 * (2**18 / 50e9 + 500e-9)
    long = Compute(name="long", time="100 us")

    def time_s(*steps):
        return rostam.simulate(program(a=role(*steps)).on(quiet)).first_iteration_s

    last = busy(after=("long", "all_reduce all"))
    ring = {"algorithm": "ring"}
    assert time_s(long, reduce(**ring), busy()) == pytest.approx(110e-6 + reduce_s, rel=1e-9)
    assert time_s(long, reduce(**ring, after=()), last) == pytest.approx(110e-6, rel=1e-9)
