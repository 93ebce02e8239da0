"""Templates of sip_ml: messages, segments and gradient buckets of hand-placed sub-ops."""

import pytest

from rostam_py.placement.sip_ml.algorithm1 import SubOpPlacement
from rostam_py.placement.sip_ml.sub_op_templates import write_templates
from rostam_py.placement.sip_ml.sub_ops import GRADIENT, KERNEL, SUM, Flow, SubOpGraph, SubOps
from rostam_py.plan import KernelTime

KERNEL_S = 1e-5


def kernel(name, num_parts, *flows, **options):
    """Return a node of equal kernels."""
    time = KernelTime(name=name, module=name, op_type="aten.mm.default", duration_s=KERNEL_S, flops=10.0)
    return SubOps(kind=KERNEL, name=name, num_parts=num_parts, flows=flows, time=time, phase="forward", **options)


def written(nodes, where, bucket_bytes=10**9, has_replicas=False, num_devices=None):
    """Return the tasks of every device."""
    count = num_devices or 1 + max(d for devices in where for d in devices)
    placed = SubOpPlacement(where, [], 0.0, [])
    return write_templates(SubOpGraph(nodes), placed, count, bucket_bytes, has_replicas, [None] * count).tasks


def kinds(tasks):
    """Return the kinds of a device's tasks in order."""
    return [task.kind for task in tasks]


def moved(tasks):
    """Return (sender, receiver) -> bytes of all messages, after checking that every recv has its one send."""
    sent, received = {}, {}
    for d, own in enumerate(tasks):
        for task in own:
            if task.kind == "send":
                key = (d, d + task.peer, task.channel)
                assert key not in sent
                sent[key] = task.num_bytes
            elif task.kind == "recv":
                key = (d + task.peer, d, task.channel)
                assert key not in received
                received[key] = task.num_bytes
    assert sent == received
    total = {}
    for (source, target, _), size in sent.items():
        total[source, target] = total.get((source, target), 0) + size
    return total


def test_kernels_without_messages_are_one_task():
    nodes = [kernel("a", 1), kernel("b", 1, Flow(0, "t", "aligned", 100.0)), kernel("c", 1, Flow(1, "u", "all", 100.0))]
    (tasks,) = written(nodes, [(0,), (0,), (0,)])
    assert kinds(tasks) == ["compute", "compute"]  # and the optimizer
    assert [k.name for k in tasks[0].kernels] == ["a", "b", "c"]
    assert tasks[1].is_optimizer


def test_a_segment_ends_where_another_device_reads_and_begins_where_a_message_is_awaited():
    # a (device 0) -> b (device 1); c stays on 0 and reads a; d on 1 reads b, then e on 1 reads c.
    nodes = [
        kernel("a", 1),
        kernel("b", 1, Flow(0, "a", "aligned", 100.0)),
        kernel("c", 1, Flow(0, "a", "aligned", 100.0)),
        kernel("d", 1, Flow(1, "b", "aligned", 100.0)),
        kernel("e", 1, Flow(2, "c", "aligned", 70.0)),
    ]
    first, second = written(nodes, [(0,), (1,), (0,), (1,), (1,)])
    assert kinds(first) == ["compute", "send", "compute", "send", "compute"]
    assert [[k.name for k in t.kernels] for t in first if t.kind == "compute"] == [["a"], ["c"], []]
    assert first[1].deps == (0,)
    assert first[3].deps == (2,)
    # b and d run before e, which alone waits for c.
    assert kinds(second) == ["recv", "recv", "compute", "compute", "compute"]
    assert [[k.name for k in t.kernels] for t in second[2:]] == [["b", "d"], ["e"], []]
    assert second[2].deps == (0,)
    assert second[3].deps == (1,)
    assert moved((first, second)) == {(0, 1): 170}


def test_a_device_receives_a_slice_once():
    # Both sub-ops of b, and c after them, read all of a; they are on device 1.
    nodes = [
        kernel("a", 1),
        kernel("b", 2, Flow(0, "a", "all", 100.0)),
        kernel("c", 1, Flow(0, "a", "all", 100.0)),
    ]
    tasks = written(nodes, [(0,), (1, 1), (1,)])
    assert moved(tasks) == {(0, 1): 100}
    # Another region of the same tensor is another message.
    nodes[2] = kernel("c", 1, Flow(0, "half of a", "all", 50.0))
    assert moved(written(nodes, [(0,), (1, 1), (1,)])) == {(0, 1): 150}


def test_overlapping_parts_are_received_as_far_as_they_are_read():
    # Three sub-ops on device 1 read four parts of 30 bytes on device 0: [0, 40), [40, 80), [80, 120). Parts 1 and 2 are
    # read by two sub-ops each, half by either.
    nodes = [kernel("a", 4), kernel("b", 3, Flow(0, "a", "aligned", 120.0))]
    assert moved(written(nodes, [(0,) * 4, (1,) * 3])) == {(0, 1): 120}
    # Two of four parts each, and again for another op in halves: nothing more to send.
    nodes = [kernel("a", 4), *(kernel(n, 2, Flow(0, "a", "aligned", 120.0)) for n in "bc")]
    assert moved(written(nodes, [(0,) * 4, (1, 1), (1, 1)])) == {(0, 1): 120}


def test_an_exchange_sends_every_part_to_every_sub_op_but_the_one_beside_it():
    # 4 x 4 slices of 300 / 16 bytes, 19 rounded up; the sums run where the parts are.
    nodes = [
        kernel("a", 4),
        SubOps(kind=SUM, name="sum", num_parts=4, flows=(Flow(0, "a", "exchange", 300.0),), beside=0),
    ]
    tasks = written(nodes, [(0, 1, 2, 3)] * 2)
    assert moved(tasks) == {(i, j): 19 for i in range(4) for j in range(4) if i != j}


def test_sums_make_their_readers_wait_for_all_summands():
    nodes = [
        kernel("a", 2),
        SubOps(kind=SUM, name="sum", num_parts=2, flows=(Flow(0, "a", "exchange", 100.0),), beside=0),
        kernel("b", 2, Flow(1, "sum", "aligned", 50.0)),
    ]
    for d, tasks in enumerate(written(nodes, [(0, 1)] * 3)):
        last = [t for t in tasks if t.kind == "compute" and t.kernels][-1]
        assert last.kernels[0].name == "b"
        assert [tasks[i].kind for i in last.deps] == ["recv"]
        assert [t.num_bytes for t in tasks if t.kind == "send"] == [25], d


# Gradients


def gradients(sizes, num_parts, is_replicated=False):
    """Return a backward kernel and a gradient of each size, in parts."""
    nodes = []
    for number, size in enumerate(sizes):
        nodes.append(kernel(f"backward{number}", num_parts))
        flow = Flow(len(nodes) - 1, f"g{number}", "aligned", float(size * num_parts))
        nodes.append(
            SubOps(
                kind=GRADIENT, name=f"w{number}", num_parts=num_parts, flows=(flow,), part_bytes=size,
                is_replicated=is_replicated,
                is_gradient=True,
            )
        )  # fmt: skip
    return nodes


def test_buckets_start_when_they_are_full_and_the_rest_at_the_end():
    # 40 + 40 >= 70 fills the first bucket, 90 the second, 10 is left.
    nodes = gradients([40, 40, 90, 10], 1)
    (tasks,) = written(nodes, [(0,)] * len(nodes), bucket_bytes=70, has_replicas=True)
    reduced = [(i, t) for i, t in enumerate(tasks) if t.kind == "collective"]
    assert [t.num_bytes for _, t in reduced] == [80, 90, 10]
    assert {(t.group, t.collective) for _, t in reduced} == {("dp", "all_reduce")}
    # Each waits for the compute task before it, the optimizer for all of them.
    assert [tasks[t.deps[0]].kernels[-1].name for _, t in reduced] == ["backward1", "backward2", "backward3"]
    assert tasks[-1].is_optimizer
    assert tasks[-1].deps == tuple(i for i, _ in reduced)


def test_without_replicas_nothing_is_reduced_but_the_optimizer_waits():
    nodes = gradients([40, 40], 1)
    (tasks,) = written(nodes, [(0,)] * len(nodes), bucket_bytes=70)
    assert kinds(tasks) == ["compute"] * 3
    assert tasks[-1].deps == (1,)  # the last backward kernel; the one before it ended earlier


@pytest.mark.parametrize("has_replicas", [False, True])
def test_copies_of_a_parameter_get_every_slice_after_it_is_reduced(has_replicas):
    # Three devices with a copy each hold a slice of 40 and of 20 bytes; every one hands both to the other two.
    nodes = gradients([40, 20], 3, is_replicated=True)
    tasks = written(nodes, [(0, 1, 2)] * 4, has_replicas=has_replicas)
    assert moved(tasks) == {(i, j): 60 for i in range(3) for j in range(3) if i != j}
    for own in tasks:
        sends = [t for t in own if t.kind == "send"]
        before = "collective" if has_replicas else "compute"
        assert {own[t.deps[-1]].kind for t in sends} == {before}
        assert {t.group for t in own if t.kind in ("send", "recv")} == {"mp_gradient"}
        received = {i for i, t in enumerate(own) if t.kind == "recv"}
        assert received <= set(own[-1].deps)


def test_copies_leave_bucket_by_bucket():
    nodes = gradients([40, 40, 40], 2, is_replicated=True)
    tasks = written(nodes, [(0, 1)] * 6, bucket_bytes=70)
    assert [t.num_bytes for t in tasks[0] if t.kind == "send"] == [80, 40]
    assert moved(tasks) == {(0, 1): 120, (1, 0): 120}


def test_dependencies_point_backwards(small_gpt, placed):
    from rostam_py.plan import Strategy

    plan = placed(small_gpt, Strategy.of(dp=2, mp=4, placer="sip_ml", quantum="1 us"), 8)
    for stage in plan.stages:
        for index, task in enumerate(stage.templates["iteration"]):
            assert all(dep < index for dep in task.deps)
            assert list(task.deps) == sorted(set(task.deps))
