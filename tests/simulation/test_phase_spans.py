"""Phases of micro-batches as they ran: hand-drawn pipelines, in the detail document and in the timeline's names."""

import json
from dataclasses import replace

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.plan import KernelTime, Task
from rostam_py.simulation import pipeline_detail as module
from rostam_py.simulation.compile import GraphNames, TemplateInfo
from rostam_py.simulation.detail import run_detail
from rostam_py.simulation.phase_spans import phase_spans
from rostam_py.simulation.pipeline_detail import is_drawable, pipeline_detail


def rows_of(pipeline):
    """Marks as (stage, phase, chunk, micro-batch, start, end) in ms, by stage and start."""
    marks = pipeline["marks"]
    columns = (marks[key] for key in ("stage", "phase", "chunk", "microbatch", "start_s", "duration_s"))
    found = [
        (stage, phase, chunk, m, round(start * 1e3, 6), round((start + length) * 1e3, 6))
        for stage, phase, chunk, m, start, length in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda row: (row[0], row[4]))


@pytest.fixture
def two_stages(hand_plan, free_fabric):
    """f 1, b 2, messages of 0.5 ms, two micro-batches: drawn by hand in test_pipeline."""
    return hand_plan(free_fabric(2), pp=2, num_microbatches=2, schedule="gpipe", act_bytes=500_000)


def with_early_kernel(plan):
    """The plan whose stage 1 computes 0.25 ms of a forward before it looks at what it receives."""
    early = Task(
        kind="compute", name="mask", kernels=(KernelTime(name="mask", module="", op_type="", duration_s=0.25e-3),)
    )
    templates = dict(plan.stages[1].templates)
    receive, compute, *rest = templates["forward"]
    assert not rest
    templates["forward"] = (early, receive, replace(compute, deps=(1,)))
    return replace(plan, stages=(plan.stages[0], replace(plan.stages[1], templates=templates)))


@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"fold": False}])
def test_marks_are_those_of_the_hand_drawn_pipeline(options, two_stages):
    result = rostam.simulate(two_stages, timeline=True, **options)
    pipeline = pipeline_detail(result)
    assert rows_of(pipeline) == [
        (0, "forward", 0, 0, 0, 1), (0, "forward", 0, 1, 1, 2), (0, "backward", 0, 0, 6, 8),
        (0, "backward", 0, 1, 8, 10),
        (1, "forward", 0, 0, 1.5, 2.5), (1, "forward", 0, 1, 2.5, 3.5), (1, "backward", 0, 0, 3.5, 5.5),
        (1, "backward", 0, 1, 5.5, 7.5),
    ]  # fmt: skip
    assert pipeline["marks"]["busy_s"] == pipeline["marks"]["duration_s"]
    assert (pipeline["end_s"], pipeline["is_whole"], pipeline["num_shown"]) == (pytest.approx(10e-3), True, 2)
    assert pipeline["accelerators"] == [0, 1]
    assert run_detail(result)["pipeline"] == pipeline


def test_a_wait_for_a_message_within_a_phase_is_a_gap_and_no_part_of_it(two_stages):
    result = rostam.simulate(with_early_kernel(two_stages), timeline=True)
    # stage 1: mask at the iteration's begin, then a wait for x0, which is there at 1.5; x1 has long come
    forwards = [row for row in rows_of(pipeline_detail(result)) if row[:2] == (1, "forward")]
    (start, stop), *later = [row[4:] for row in forwards]
    assert stop - start == pytest.approx(0.25)
    assert later == [(1.5, 2.5), (2.5, 3.75)]


def test_the_optimizer_is_a_mark_of_its_own_after_the_wait_for_gradients(hand_plan, free_fabric):
    plan = hand_plan(free_fabric(4), pp=2, dp=2, num_microbatches=2, grad_bytes=1_000_000)
    step = (KernelTime(name="step", module="", op_type="", duration_s=0.5e-3),)
    stages = tuple(
        replace(s, templates={name: tuple(replace(t, kernels=step) if t.is_optimizer else t for t in tasks)
                              for name, tasks in s.templates.items()})
        for s in plan.stages
    )  # fmt: skip
    result = rostam.simulate(replace(plan, stages=stages), timeline=True)
    rows = [row for row in rows_of(pipeline_detail(result)) if row[0] == 0]
    # 1F1B of two stages and two micro-batches: 9 ms; a ring of 2 x 1 MB at 1 GB/s: 1 ms; the step
    assert [(row[1], *row[4:]) for row in rows[-2:]] == [("backward", 7, 9), ("optimizer", 10, 10.5)]


@pytest.mark.parametrize(
    ("degrees", "phases", "chunks"),
    [
        ({"schedule": "1f1b"}, {"forward", "backward"}, {0}),
        ({"schedule": "zb_h1"}, {"forward", "backward", "weight"}, {0}),
        ({"virtual_stages": 2}, {"forward", "backward"}, {0, 1}),
    ],
)
def test_every_micro_batch_and_chunk_is_marked_once_on_every_stage(degrees, phases, chunks, gpt, tmp_path):
    fabric = rostam.fabric("fat_tree", num_accelerators=8, radix=4, link_bandwidth="100 Gb/s")
    strategy = rostam.Strategy.of(dp=2, tp=1 if "zb_h1" in degrees.values() else 2, pp=2, precision="bf16_mixed",
                               allow_idle=True, micro_batch=1, **degrees)  # fmt: skip
    plan = rostam.place(gpt, rostam.Machine(fabric=fabric), global_batch=8, strategy=strategy, software="ideal")
    assert is_drawable(plan)
    result = rostam.simulate(plan, timeline=True)
    pipeline = pipeline_detail(result)
    rows = [row for row in rows_of(pipeline) if row[1] != "optimizer"]
    found = {row[:4] for row in rows}
    assert found == {(s, phase, chunk, m) for s in range(2) for phase in phases for chunk in chunks for m in range(4)}
    marks = pipeline["marks"]
    busy = [sum(b for b, s in zip(marks["busy_s"], marks["stage"], strict=True) if s == stage) for stage in range(2)]
    compute = result.breakdown_by_device[pipeline["accelerators"], list(result.breakdown).index("compute")]
    assert busy == pytest.approx(compute.tolist(), rel=1e-6)
    for stage in range(2):
        mine = [row for row in rows_of(pipeline) if row[0] == stage]
        assert all(one[5] <= other[4] + 1e-6 for one, other in zip(mine, mine[1:], strict=False))
    result.save_timeline(str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    named = {event["name"] for event in events if event["ph"] == "X" and "phase" in event["args"]}
    words = [f", chunk {chunk}" for chunk in chunks] if len(chunks) > 1 else [""]
    expected = {f"{phase} {m}{word}" for phase in phases for m in range(4) for word in words}
    assert named - {"optimizer"} == expected


def test_of_a_long_iteration_the_first_marks_are_kept_up_to_the_first_left_out(monkeypatch, two_stages):
    monkeypatch.setattr(module, "MAX_MARKS", 3)
    pipeline = pipeline_detail(rostam.simulate(two_stages, timeline=True))
    assert rows_of(pipeline) == [
        (0, "forward", 0, 0, 0, 1), (0, "forward", 0, 1, 1, 2), (1, "forward", 0, 0, 1.5, 2.5),
    ]  # fmt: skip
    # the next one begins at 2.5 ms
    assert (pipeline["end_s"], pipeline["is_whole"], pipeline["num_shown"]) == (pytest.approx(2.5e-3), False, 2)


def test_no_stage_has_more_marks_than_can_be_told_apart(monkeypatch, two_stages):
    result = rostam.simulate(two_stages, timeline=True)
    monkeypatch.setattr(module, "MAX_MARKS_A_STAGE", 3)
    pipeline = pipeline_detail(result)
    # the first six of eight by start: stage 0's backwards, at 6 and 8 ms, are left out
    assert {row[:2] for row in rows_of(pipeline)} == {(0, "forward"), (1, "forward"), (1, "backward")}
    assert (len(pipeline["marks"]["stage"]), pipeline["end_s"]) == (6, pytest.approx(6e-3))


def test_there_is_no_pipeline_without_one_or_without_its_times(hand_plan, free_fabric, two_stages):
    assert pipeline_detail(rostam.simulate(two_stages)) is None
    assert pipeline_detail(rostam.simulate(two_stages, timeline=[1])) is None
    alone = hand_plan(free_fabric(2), dp=2)
    assert not is_drawable(alone)
    assert pipeline_detail(rostam.simulate(alone, timeline=True)) is None
    assert run_detail([rostam.simulate(two_stages, timeline=True)])["pipeline"] is None


def test_a_run_records_a_pipeline_unasked_up_to_so_many_tasks(monkeypatch, two_stages):
    # stage 0: 2 x (f, send x) and 2 x (recv dx, b); stage 1: 2 x (recv x, f) and 2 x (b, send dx)
    for most, expected in ((16, True), (15, False)):
        monkeypatch.setattr(module, "MAX_RECORDED", most)
        assert is_drawable(two_stages) == expected


# One device whose template has a receive, two kernels and the optimizer's; its timeline is written by hand, in ps.
RECEIVE, FIRST, SECOND, STEP = range(4)


def spans_by_hand(*rows):
    """Begin, end and busy time of the spans of rows of (task, micro-batch, start, end)."""
    tasks = (
        Task(kind="recv", name="x", stream="in"),
        Task(kind="compute", name="a"),
        Task(kind="compute", name="b"),
        Task(kind="compute", name="step", is_optimizer=True),
    )
    none = np.zeros(1, int)
    names = GraphNames(
        templates=[TemplateInfo(0, 0, "forward", tasks)], categories=("pp",), kind_of={}, streams=[[]],
        accelerators=none, stage_of=none, job_of=none,
    )  # fmt: skip
    columns = zip(*rows, strict=True)
    timeline = dict(zip(("task", "microbatch", "start_ps", "end_ps"), map(np.array, columns), strict=True))
    timeline |= {key: np.zeros(len(rows), int) for key in ("device", "template", "iteration")}
    return [(one.title, one.start_ps, one.end_ps, one.busy_ps) for one in phase_spans(names, timeline)]


@pytest.mark.parametrize(
    ("arrival", "second", "expected"),
    [
        (10, 10, [("forward 0", 0, 20, 20)]),  # there when the first kernel ends, as the second begins: no wait
        (10, 15, [("forward 0", 0, 25, 20)]),  # the wait, if it was one, had another reason
        (9, 15, [("forward 0", 0, 25, 20)]),
        (11, 15, [("forward 0", 0, 10, 10), ("forward 0", 15, 25, 10)]),
        (15, 15, [("forward 0", 0, 10, 10), ("forward 0", 15, 25, 10)]),  # begins at the instant of the arrival
        (16, 15, [("forward 0", 0, 25, 20)]),  # came once both had begun
    ],
)
def test_a_phase_is_split_by_a_message_that_came_after_a_kernels_end_and_not_after_the_next_ones_begin(
    arrival, second, expected
):
    assert spans_by_hand((RECEIVE, 0, 5, arrival), (FIRST, 0, 0, 10), (SECOND, 0, second, second + 10)) == expected


def test_spans_of_equal_time_stamps_stay_apart_by_micro_batch_and_optimizer():
    rows = [(FIRST, 0, 0, 10), (FIRST, 1, 10, 20), (STEP, 1, 20, 20), (FIRST, 2, 20, 25)]
    assert spans_by_hand(*rows) == [
        ("forward 0", 0, 10, 10), ("forward 1", 10, 20, 10), ("optimizer", 20, 20, 0), ("forward 2", 20, 25, 5),
    ]  # fmt: skip
    # of two that begin at once the one that ends first is first: a kernel of no time stands before the next micro-batch
    assert spans_by_hand((FIRST, 1, 10, 20), (SECOND, 0, 10, 10), (FIRST, 0, 0, 10)) == [
        ("forward 0", 0, 10, 10), ("forward 1", 10, 20, 10),
    ]  # fmt: skip
