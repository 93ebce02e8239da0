"""Life cycle, errors, independence and equality of sessions."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError, DeadlockError

MS = 10**9


def ring_job(graph, num_devices=8, slowdown=None):
    g = graph(num_devices, alpha_ps=1000)
    body = g.template(g.compute(MS), g.all_reduce(1_000_003, deps=[0]), g.compute(MS, deps=[1]))
    g.group(*range(num_devices))
    g.devices([g.program(body)] * num_devices, slowdown=slowdown)
    return g


def as_bytes(raw):
    def flat(value):
        if isinstance(value, dict):
            return [(k, flat(v)) for k, v in sorted(value.items())]
        if isinstance(value, list):
            return [flat(v) for v in value]
        return value.tobytes() if isinstance(value, np.ndarray) else value

    return repr(flat(raw))


def test_a_graph_must_be_frozen_before_it_runs(graph):
    g = ring_job(graph)
    with pytest.raises(ConfigError, match="frozen"):
        g.run(freeze=False)
    g.run()


def test_a_frozen_graph_takes_nothing_more(graph):
    g = ring_job(graph)
    g.core.freeze()
    with pytest.raises(ConfigError, match="frozen"):
        g.core.add_group([0, 1])
    with pytest.raises(ConfigError, match="frozen"):
        g.template(g.compute(1))
    with pytest.raises(ConfigError, match="frozen"):
        g.program(0)
    with pytest.raises(ConfigError, match="frozen"):
        g.core.add_schedule("all_reduce", "ring", 2)


@pytest.mark.parametrize(("make", "message"), [
    (lambda g: g.template(g.compute(1, deps=[0])), "task 0 of template 0 depends on task 0; dependencies"),
    (lambda g: g.template(g.compute(1), g.compute(1, deps=[-1])), "depends on task -1"),
    (lambda g: g.template(g.compute(-1)), "-1 ps"),
    (lambda g: g.template(("collective", 0, 0, 9, -1, 1, 0, ())), "schedule 9"),
    (lambda g: g.template(("send", 0, 5, -1, 0, 1, 0, ())), "category 5"),
    (lambda g: g.program(3), "template 3 of 0"),
])  # fmt: skip
def test_freezing_refuses_what_does_not_exist(graph, make, message):
    g = graph(1)
    make(g)
    with pytest.raises(ConfigError, match=message):
        g.core.freeze()


def test_devices_must_bind_the_slots_they_use(graph):
    g = graph(2, num_slots=1)
    body = g.template(g.compute(1), g.send(0, 1, deps=[0], slot=3))
    g.devices([g.program(body)] * 2)
    with pytest.raises(ConfigError, match="device 0 binds 1 slots, its program uses 4"):
        g.core.freeze()


def test_unbound_slots_are_refused_and_not_followed(graph):
    g = graph(2)
    body = g.template(g.compute(1), g.send(0, 1, deps=[0]))
    g.devices([g.program(body)] * 2)  # nobody has a peer
    with pytest.raises(ConfigError, match="peer"):
        g.core.freeze()
    g = graph(2)
    g.devices([g.program(g.template(g.all_reduce(8)))] * 2)  # nobody has a group
    with pytest.raises(ConfigError, match="group"):
        g.core.freeze()


def test_groups_must_have_as_many_ranks_as_their_schedule(graph):
    g = graph(3)
    body = g.template(g.all_reduce(8, ranks=3))
    g.group(0, 1)
    g.group(2, slot=2)
    g.slots[2, 0, :2] = 0, 1
    g.devices([g.program(body)] * 3)
    with pytest.raises(ConfigError, match="3 ranks"):
        g.core.freeze()


@pytest.mark.parametrize(("options", "message"), [
    ({"num_planes": 0}, "0 planes"), ({"max_iterations": 0}, "iterations 1 to 0"),
    ({"link_events": [(0, 99, 1.0)]}, "link 99"), ({"link_events": [(0, 0, -1.0)]}, "-1"),
])  # fmt: skip
def test_sessions_refuse_options_out_of_range(graph, options, message):
    with pytest.raises(ConfigError, match=message):
        ring_job(graph).run(**options)


def test_a_receive_that_nobody_sends_is_a_deadlock_that_says_who_waits(graph):
    # Device 1 waits on channel 3; device 0 sends on channel 2.
    g = graph(2)
    first, second = g.template(g.compute(5), g.send(2, 10, deps=[0])), g.template(g.recv(3), g.compute(5, deps=[0]))
    g.peer(0, 1)
    g.peer(1, 0)
    g.devices([g.program(first), g.program((second, 4))])
    with pytest.raises(DeadlockError) as caught:
        g.run()
    text = str(caught.value)
    assert "nothing can happen any more" in text
    assert "recv task 0 of template 1, micro-batch 4, iteration 0, on accelerator 1 (x) awaits" in text
    assert "compute task 1 of template 1, micro-batch 4, iteration 0, on accelerator 1 awaits 1 dependencies" in text


def test_a_deadlock_lists_ten_tasks_at_most(graph):
    g = graph(8)
    body = g.template(g.recv(0), g.compute(1, deps=[0]))
    for d in range(8):
        g.peer(d, (d + 1) % 8)
    g.devices([g.program(body)] * 8)
    with pytest.raises(DeadlockError) as caught:
        g.run()
    assert str(caught.value).count("\n") == 10


def test_ranks_that_call_collectives_in_different_orders_on_two_streams_deadlock(graph):
    # Rank 0: x then y; rank 1: y then x, each second one after the first.
    g = graph(2)
    one = g.all_reduce(10), g.all_reduce(10, deps=[0], slot=2)
    other = g.all_reduce(10, slot=2), g.all_reduce(10, deps=[0])
    g.group(0, 1)
    g.group(0, 1, slot=2)
    g.devices([g.program(g.template(*one)), g.program(g.template(*other))])
    with pytest.raises(DeadlockError, match="collective task 0"):
        g.run()


def test_sessions_of_one_process_know_nothing_of_each_other(graph):
    alone = as_bytes(ring_job(graph).run())
    other = ring_job(graph, 5, slowdown=[1, 2, 3, 4, 5])
    other.run()
    assert as_bytes(ring_job(graph).run()) == alone


def test_sessions_in_threads_give_the_bytes_of_sessions_in_turn(graph):
    jobs = [ring_job(graph, 4 + k % 3, slowdown=np.linspace(1, 1.5, 4 + k % 3)) for k in range(12)]
    in_turn = [as_bytes(ring_job(graph, 4 + k % 3, slowdown=np.linspace(1, 1.5, 4 + k % 3)).run()) for k in range(12)]
    with ThreadPoolExecutor(4) as pool:
        in_threads = list(pool.map(lambda g: as_bytes(g.run()), jobs))
    assert in_threads == in_turn


def test_one_frozen_graph_serves_many_sessions(graph):
    g = ring_job(graph)
    first = as_bytes(g.run())
    assert as_bytes(g.run(freeze=False)) == first


def test_folding_simulates_alike_devices_once_and_splits_off_a_slow_one(graph):
    whole = ring_job(graph).run()
    folded = ring_job(graph).run(fold=True)
    assert (whole["num_simulated_devices"], folded["num_simulated_devices"]) == (8, 1)
    assert folded["ends"] == whole["ends"]
    assert folded["breakdown"] == whole["breakdown"]
    slow = [1, 1, 1, 1.5, 1, 1, 1, 1]
    whole, folded = ring_job(graph, slowdown=slow).run(), ring_job(graph, slowdown=slow).run(fold=True)
    assert folded["num_simulated_devices"] == 8
    assert folded["ends"] == whole["ends"]
    assert folded["breakdown"] == whole["breakdown"]


def test_an_empty_program_does_not_hang(graph):
    g = graph(2)
    body = g.template(g.compute(5))
    g.devices([g.program(body), g.program(g.template())])
    assert g.run()["ends"] == [0, 5]


def test_unknown_devices_in_the_timeline_are_refused(graph):
    with pytest.raises((ConfigError, IndexError)):
        ring_job(graph).run(timeline_devices=[99])


def test_the_core_has_no_state_between_routers():
    assert _core.schedule_names() == _core.schedule_names()


def test_every_recorded_device_has_its_own_timeline_when_folded(graph, spans):
    whole = ring_job(graph).run()
    folded = ring_job(graph).run(fold=True, timeline_devices=[2, 5])
    assert folded["num_simulated_devices"] == 1
    assert set(folded["timeline"]["device"].tolist()) == {2, 5}
    assert spans(folded, 5) == spans(whole, 5)
