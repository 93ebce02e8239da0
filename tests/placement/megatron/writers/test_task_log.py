"""TaskLog: where segments end, and what waits for what, without a graph."""

from types import SimpleNamespace

import pytest

from rostam_py.placement.experts.hops import ExpertHops
from rostam_py.placement.megatron.writers.task_log import TaskLog
from rostam_py.plan.program_rules import DTENSOR, MCORE
from rostam_py.plan.tasks import KernelTime


def make_log(style=MCORE, is_asynchronous=True):
    """Return the log of a context in which a group tp shares products."""
    sharding = SimpleNamespace(groups=("tp",))
    context = SimpleNamespace(
        sharding=sharding, tp_style=style, is_tp_asynchronous=is_asynchronous, hops=ExpertHops(), dispatcher=""
    )
    return TaskLog(context, "forward")


def kernel(name):
    return KernelTime(name=name, module="", op_type="", duration_s=1.0, flops=0.0)


def run(log, name, made, reads=()):
    """Append a kernel behind what it reads."""
    log.wait_for(reads, [])
    log.add(kernel(name))
    log.provide([made], log.open_task)


def names(log):
    """Return the kernels of each task, or the name of what is none."""
    log.close()
    return [[k.name for k in task.kernels] or task.name for task in log.tasks]


def test_a_segment_ends_where_a_message_needs_it_and_one_begins_where_a_kernel_needs_the_message():
    log = make_log()
    run(log, "a", made=1)
    log.provide([1], log.collective("sum", "tp", "all_reduce", 8, log.deps_on([1])))
    run(log, "free", made=2)
    run(log, "waiting", made=3, reads=(1,))
    run(log, "again", made=4, reads=(1,))
    assert names(log) == [["a"], "sum", ["free"], ["waiting", "again"]]
    assert [task.deps for task in log.tasks] == [(), (0,), (), (1,)]


@pytest.mark.parametrize(("options", "deps"), [({}, [(), (), ()]), ({"is_asynchronous": False}, [(), (), (1,)])])
def test_what_follows_a_synchronous_collective_waits_for_it(options, deps):
    log = make_log(**options)
    run(log, "a", made=1)
    log.collective("sum", "tp", "all_reduce", 8, ())
    run(log, "b", made=2)
    assert names(log) == [["a"], "sum", ["b"]]
    assert [task.deps for task in log.tasks] == deps


def test_collectives_of_dtensors_begin_behind_all_kernels_before_them():
    log = make_log(DTENSOR)
    run(log, "a", made=1)
    log.collective("sum", "tp", "all_reduce", 8, ())
    log.collective("of others", "dp", "all_reduce", 8, ())
    assert [task.deps for task in log.tasks] == [(), (0,), ()]


def test_a_template_begins_where_it_reads_what_earlier_ones_have_made():
    log = make_log()
    log.find_ready([7])
    assert (log.deps_on([7]), names(log)) == ((0,), ["forward begins"])


def test_held_multiprocessors_are_those_of_the_tp_group():
    log = make_log()
    log.held = {"all_gather": 3}
    for group, kind in (("tp", "all_gather"), ("tp", "all_reduce"), ("dp", "all_gather")):
        log.message(kind, group, kind, 8, ())
    assert [task.multiprocessors for task in log.tasks] == [3, 0, 0]
