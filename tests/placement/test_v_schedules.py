"""ZB-V and DualPipe-V: torch's order, stages in a V, what they send, hold and compute."""

import pytest
import torch.distributed.pipelining.schedules as torch_schedules

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.placement.schedule import stage_program
from rostam_py.plan import Strategy
from rostam_py.plan.pairs import pair_up
from rostam_py.plan.phases import chunk_of, is_last, phase_of

TORCHS = {"zb_v": "ScheduleZBVZeroBubble", "dual_pipe_v": "ScheduleDualPipeV"}
NAMES = {
    "FORWARD": "forward",
    "BACKWARD_INPUT": "backward",
    "BACKWARD_WEIGHT": "weight",
    "FULL_BACKWARD": "full_backward",
}


def torchs_order(schedule, num_devices, num_microbatches):
    """Return (phase, stage, micro-batch) of every device, and the pairs that torch overlaps, without process groups."""
    kind = getattr(torch_schedules, TORCHS[schedule])
    made = object.__new__(kind)
    made.pp_group_size, made._n_microbatches = num_devices, num_microbatches
    made._num_stages = made.num_stages = 2 * num_devices
    order, pairs = [], []
    for rank in range(num_devices):
        row, both = [], []
        for action in made._calculate_single_rank_operations(rank):
            found = () if action is None else action.sub_actions or (action,)
            row += [(NAMES[one.computation_type.name], one.stage_index, one.microbatch_index) for one in found]
            both += [tuple(row[-2:])] if len(found) == 2 else []
        order.append(row)
        pairs.append(both)
    return order, pairs


def own_order(schedule, num_devices, num_microbatches, rank):
    """Return the same of a program."""
    program = stage_program(schedule, rank, num_devices, num_microbatches, 2)
    stages = rank, 2 * num_devices - 1 - rank
    return [(phase_of(name), stages[chunk_of(name)], m) for name, m in program]


@pytest.mark.parametrize("schedule", TORCHS)
@pytest.mark.parametrize("num_devices", [1, 2, 3, 4, 5, 8])
def test_the_order_is_torchs(schedule, num_devices):
    fewest = 1 if schedule == "zb_v" else 2 * num_devices
    for num_microbatches in (*range(fewest, 2 * num_devices + 4), 5 * num_devices):
        order, _ = torchs_order(schedule, num_devices, num_microbatches)
        for rank in range(num_devices):
            assert own_order(schedule, num_devices, num_microbatches, rank) == order[rank]


@pytest.mark.parametrize("num_devices", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("more", [0, 1, 7])
def test_pairs_are_those_that_torch_overlaps(num_devices, more):
    num_microbatches = 2 * num_devices + more
    _, expected = torchs_order("dual_pipe_v", num_devices, num_microbatches)
    for rank in range(num_devices):
        program, pairs = pair_up(stage_program("dual_pipe_v", rank, num_devices, num_microbatches, 2))
        stages = rank, 2 * num_devices - 1 - rank
        found = [
            tuple(
                (phase_of(part), stages[chunk_of(part)], m + ahead)
                for part, ahead in ((pairs[name].forward, pairs[name].ahead), (pairs[name].backward, 0))
            )
            for name, m in program
            if name in pairs
        ]
        assert found == expected[rank]


@pytest.mark.parametrize("schedule", TORCHS)
def test_the_steady_state_is_one_segment_and_each_chunks_gradients_end_once(schedule):
    for rank in range(4):
        few, many = (stage_program(schedule, rank, 4, m, 2) for m in (64, 5000))
        assert len(many.segments) == len(few.segments) < 12
        assert sorted(chunk_of(name) for name, _ in many if is_last(name)) == [0, 1]
        ends = {
            chunk_of(name): at for at, (name, _) in enumerate(many) if phase_of(name) in ("weight", "full_backward")
        }
        assert {chunk_of(name): at for at, (name, _) in enumerate(many) if is_last(name)} == ends


@pytest.fixture(scope="module")
def deep():
    """Return a GPT of 8 layers."""
    return rostam.trace("gpt_125m", num_layers=8)


@pytest.fixture(scope="module")
def machine_of():
    """Return a function: a machine of so many accelerators."""

    def made(count):
        return rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=count), accelerator="a100_80gb")

    return made


@pytest.mark.parametrize("schedule", TORCHS)
def test_stages_lie_in_a_v_and_the_turn_sends_nothing(deep, placed, schedule):
    strategy = Strategy(
        pp=4, schedule=schedule, virtual_stages=2, precision="bf16_mixed", rules={"stage_blocks": "even"}
    )
    plan = placed(deep, strategy, 8)
    for r, stage in enumerate(plan.stages):
        blocks = sorted({int(name.split(".")[1]) for name in stage.modules if name.startswith("blocks.")})
        assert blocks == [r, 7 - r]  # one block a chunk: chunk k on device k and 7 - k
    assert {"tokens", "head", "loss"} <= set(plan.stages[0].modules)
    # 2 p - 1 boundaries, of which the middle one is on one device: 3 + 3 each way, neighbours only.
    tasks = [t for s in plan.stages for name, ts in s.templates.items() for t in ts if t.kind == "send"]
    assert {abs(t.peer) for t in tasks} == {1}
    per_microbatch = sum(
        1 for s in plan.stages for name, ts in s.templates.items() for t in ts
        if t.kind == "send" and name in ("forward.0", "forward.1", "backward.0", "backward.1")
    )  # fmt: skip
    assert per_microbatch == 2 * (2 * 4 - 2)


@pytest.mark.parametrize("schedule", TORCHS)
@pytest.mark.parametrize("options", [{}, {"tp": 2}, {"recompute": "full"}, {"shard": 1}, {"shard": 2}])
def test_a_v_does_the_work_of_one_f_one_b_and_sums_the_same_gradients(deep, placed, schedule, options):
    base = {"pp": 2, "dp": 2, "precision": "bf16_mixed"} | options
    whole = placed(deep, Strategy.of(schedule="1f1b", **base), 16)
    plan = placed(deep, Strategy.of(schedule=schedule, virtual_stages=2, **base), 16)
    for name in ("flops", "hardware_flops"):
        assert sum(getattr(s, name) for s in plan.stages) == pytest.approx(sum(getattr(s, name) for s in whole.stages))

    # The table and the head, which are tied, are on one device: each gradient is reduced once, in fp32.
    times = {2: 8}.get(options.get("shard"), 1)  # micro-batches
    reduced = sum(
        m.num_bytes * m.count for m in plan.messages() if m.kind in ("all_reduce", "reduce_scatter") and m.group != "tp"
    )
    if "tp" not in options:
        assert reduced == 4 * deep.num_parameters * times
    assert not any(m.group.startswith("tied") for m in plan.messages())


@pytest.mark.parametrize("schedule", TORCHS)
def test_memory_over_time_is_the_plans(deep, machine_of, schedule):
    strategy = Strategy(pp=4, dp=2, schedule=schedule, virtual_stages=2, precision="bf16_mixed", recompute="full")
    plan = rostam.place(deep, machine_of(8), global_batch=32, strategy=strategy, software="ideal")
    result = rostam.simulate(plan, timeline=True)
    assert {one.stage for one in result.memory_over_time()} == {0, 1, 2, 3}


def test_a_task_graph_keeps_its_pairs(deep, machine_of, tmp_path):
    strategy = Strategy(pp=2, schedule="dual_pipe_v", virtual_stages=2, precision="bf16_mixed")
    plan = rostam.place(deep, machine_of(2), global_batch=8, strategy=strategy, software="ideal")
    graph = rostam.TaskGraph.of(plan)
    graph.save(tmp_path / "graph.json")
    loaded = rostam.TaskGraph.load(tmp_path / "graph.json")
    assert rostam.simulate(loaded).iteration_time_s == rostam.simulate(plan).iteration_time_s
    with pytest.raises(ConfigError, match="dual_pipe_v has a forward and a backward send together"):
        rostam.Program.of(plan)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"pp": 4}, "strategy.virtual_stages is 1; it must be 2"),
        ({"pp": 1, "virtual_stages": 2}, "strategy.pp is 1; it must be > 1"),
        ({"pp": 4, "virtual_stages": 3}, "strategy.virtual_stages is 3; it must be 2"),
    ],
)
@pytest.mark.parametrize("schedule", TORCHS)
def test_what_makes_no_v_is_refused(schedule, keys, words):
    with pytest.raises(DegreeError, match=words):
        Strategy(schedule=schedule, **keys)


def test_dual_pipe_v_needs_as_many_micro_batches_as_stages():
    strategy = Strategy(dp=1, pp=4, virtual_stages=2, schedule="dual_pipe_v")
    with pytest.raises(DegreeError, match=r"has 7 micro-batches .*needs at least 8"):
        strategy.batches(7)
    assert strategy.batches(9) == (1, 9)
    assert Strategy(dp=1, pp=4, virtual_stages=2, schedule="zb_v").batches(3) == (1, 3)
