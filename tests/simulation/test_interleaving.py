"""Pairs of forwards and backwards whose parts take turns (software.rules.ep_overlap), against counts by hand."""

import functools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.models import mixtral
from rostam_py.placement.schedule import most_in_flight, stage_program
from rostam_py.plan import Strategy
from rostam_py.plan.pairs import Pair, backwards_first, pair_up
from rostam_py.plan.phases import phase_of
from rostam_py.plan.program import Program, Segment
from rostam_py.plan.tasks import Task
from rostam_py.simulation.interleaving import take_turns
from rostam_py.tracing import trace

LAYERS = 4
STRATEGY = Strategy.of(dp=4, ep=4, micro_batch=1, precision="bf16_mixed", ep_overlap=True)


@functools.cache
def mixed():
    """Four layers of 8 experts, 2 for a token."""
    config = mixtral.Config(
        num_layers=LAYERS, width=512, num_heads=8, num_key_heads=4, head_size=64, hidden=1024, num_experts=8,
        per_token=2, vocabulary=1000, sequence_length=512,
    )  # fmt: skip
    return trace(mixtral.build("mixed", config))


def placed(strategy, microbatches=4, bandwidth="100 Gb/s"):
    count = strategy.dp * strategy.pp
    machine = rostam.Machine(
        fabric=rostam.fabric("electrical_flat", num_accelerators=count, accelerator_bandwidth=bandwidth),
        accelerator="h100_80gb",
    )
    batch = strategy.dp * microbatches * (strategy.micro_batch or 1)
    return rostam.place(mixed(), machine, global_batch=batch, strategy=strategy, software="ideal")


def test_pairs_of_a_program():
    program = Program(
        (Segment((("forward", 0),)), Segment((("forward", 1), ("backward", 0)), 3), Segment((("backward_last", 3),)))
    )
    paired, pairs = pair_up(program)
    (pair,) = pairs.values()
    assert (pair.forward, pair.backward, pair.ahead) == ("forward", "backward", 1)
    assert list(paired) == [("forward", 0), (pair.name, 0), (pair.name, 1), (pair.name, 2), ("backward_last", 3)]
    assert [name for name, _ in backwards_first(program)] == ["forward", *["backward", "forward"] * 3, "backward_last"]
    assert pair_up(Program.of([("forward", 0), ("forward", 1), ("backward", 1)]))[1]["forward and backward, 0 ahead"]


def compute(*deps):
    return Task(kind="compute", name="kernels", deps=tuple(deps))


def exchange(*deps):
    return Task(kind="collective", name="rows", deps=tuple(deps), group="ep", collective="all_to_all", num_bytes=8)


def test_parts_take_turns_and_keep_their_order_and_dependencies():
    # Forward: a -> rows -> b -> rows -> c; backward: x -> rows -> y. Parts: (a, rows), (b, rows), (c); (x, rows), (y).
    forward = [compute(), exchange(0), compute(1), exchange(2), compute(3)]
    backward = [compute(), exchange(0), compute(1)]
    turns = take_turns(Pair("f", "b", 2), forward, backward, lambda task: task.group == "ep")
    assert [(turn.template, turn.index) for turn in turns] == [
        ("b", 0), ("b", 1), ("f", 0), ("f", 1), ("f", 2), ("f", 3), ("b", 2), ("f", 4),
    ]  # fmt: skip
    assert [turn.ahead for turn in turns] == [0, 0, 2, 2, 2, 2, 0, 2]
    for name, tasks in (("f", forward), ("b", backward)):
        place = {turn.index: at for at, turn in enumerate(turns) if turn.template == name}
        for turn in turns:
            if turn.template == name:
                assert turn.task.deps == tuple(place[dep] for dep in tasks[turn.index].deps)


def test_a_forward_sends_rows_whose_numbers_the_host_reads_behind_the_backwards_next_kernels():
    # Megatron-Core's order: combine back | attention, router | experts back | dispatch | dispatch back | experts,
    # combine | attention back. Forward: a -> rows (routed), w beside them, s sent for what they bring; b -> rows -> c.
    routed = replace(exchange(0), is_routed=True)
    forward = [
        compute(),
        routed,
        compute(0),
        Task(kind="send", name="s", deps=(1,)),
        compute(1),
        exchange(4),
        compute(5),
    ]
    backward = [compute(), exchange(0), compute(1), exchange(2), compute(3)]

    def order(tasks):
        turns = take_turns(Pair("f", "b", 2), tasks, backward, lambda task: task.group == "ep")
        place = {(turn.template, turn.index): at for at, turn in enumerate(turns)}
        for turn in turns:
            own = {"f": tasks, "b": backward}[turn.template][turn.index].deps
            assert turn.task.deps == tuple(place[turn.template, dep] for dep in own)
        return " ".join(f"{turn.template}{turn.index}" for turn in turns)

    assert order(forward) == "b0 b1 f0 f2 b2 f1 f3 b3 f4 f5 b4 f6"
    forward[1] = replace(routed, is_routed=False)
    assert order(forward) == "b0 b1 f0 f1 f2 f3 b2 b3 f4 f5 b4 f6"


def ran(plan, result):
    """How often each task of each template ran for each micro-batch in the last iteration, on the first device."""
    timeline, names = result._timeline, result._names
    mine = (timeline["device"] == 0) & (timeline["iteration"] == timeline["iteration"].max())
    return Counter(
        (names.templates[template].name, task, microbatch)
        for template, task, microbatch in zip(
            *(timeline[key][mine].tolist() for key in ("template", "task", "microbatch")), strict=True
        )
    )


@pytest.mark.parametrize(
    "changes", [{}, {"dp": 8, "ep": 8}, {"pp": 2, "virtual_stages": 2}, {"pp": 2, "virtual_stages": 2, "shard": 1}]
)
def test_every_task_runs_once_as_without_and_rows_travel_behind_kernels(changes):
    strategy = STRATEGY.with_keys(**changes)
    results = []
    for overlap in (False, True):
        plan = placed(strategy.with_keys(ep_overlap=overlap))
        results.append(rostam.simulate(plan, timeline=True))
        found = ran(plan, results[-1])
        for name, microbatch in plan.stages[0].program:
            for task in range(len(plan.stages[0].templates[name])):
                assert found.pop((name, task, microbatch)) == 1
        assert not found
    plain, overlapped = results
    assert overlapped.breakdown["compute"] == pytest.approx(plain.breakdown["compute"], rel=1e-9)
    assert overlapped.bytes_sent == plain.bytes_sent
    assert overlapped.breakdown["ep"] < 0.6 * plain.breakdown["ep"]
    assert overlapped.iteration_time_s < plain.iteration_time_s
    assert sum(overlapped.breakdown.values()) == pytest.approx(overlapped.iteration_time_s, rel=1e-6)
    assert overlapped.iteration_time_s >= overlapped.breakdown["compute"]
    for one in overlapped.memory_over_time():
        assert max(one.num_bytes) == pytest.approx(overlapped.plan.stages[one.stage].memory.total, rel=1e-9)


@pytest.mark.parametrize("overlap", [False, True])
def test_pairs_of_dual_pipe_v_run_each_task_once_and_hide_rows_where_they_take_turns(overlap):
    keys = {"pp": 2, "virtual_stages": 2, "schedule": "dual_pipe_v", "ep_overlap": overlap}
    plan = placed(STRATEGY.with_keys(**keys), 12)
    result = rostam.simulate(plan, timeline=True)
    found = ran(plan, result)
    for name, microbatch in plan.stages[0].program:
        for task in range(len(plan.stages[0].templates[name])):
            assert found.pop((name, task, microbatch)) == 1
    assert not found
    assert rostam.simulate(plan, fold=False).iteration_time_s == pytest.approx(result.iteration_time_s, rel=1e-9)
    for one in result.memory_over_time():
        assert max(one.num_bytes) == pytest.approx(plan.stages[one.stage].memory.total, rel=1e-9)
    plain = rostam.simulate(placed(STRATEGY.with_keys(**keys | {"ep_overlap": False}), 12))
    if overlap:
        assert result.breakdown["ep"] < 0.6 * plain.breakdown["ep"]
        assert result.iteration_time_s < plain.iteration_time_s


def test_without_time_for_rows_there_is_nothing_to_hide():
    times = [
        rostam.simulate(placed(STRATEGY.with_keys(ep_overlap=overlap), bandwidth="1 Pb/s")).iteration_time_s
        for overlap in (False, True)
    ]
    assert times[1] == pytest.approx(times[0], rel=0.02)  # a launch behind each exchange is hidden as well


def test_two_micro_batches_of_equal_parts_by_hand():
    """m micro-batches: the first forward and the last backward alone, m - 1 pairs that take what their kernels take."""
    bandwidth, microbatches = "400 Gb/s", 6
    plain = placed(STRATEGY.with_keys(ep_overlap=False), microbatches, bandwidth)
    alone = {name: sum(t.duration_s for t in plain.stages[0].templates[name]) for name in ("forward", "backward")}
    whole = rostam.simulate(plain)
    pairs = rostam.simulate(placed(STRATEGY, microbatches, bandwidth))
    exposed_once = whole.breakdown["ep"] / microbatches  # of one forward and one backward that nothing runs beside
    kernels = microbatches * sum(alone.values())
    assert pairs.iteration_time_s >= kernels + exposed_once * 0.9
    assert pairs.breakdown["ep"] == pytest.approx(exposed_once, rel=0.25)


@pytest.mark.parametrize("seed", range(12))
def test_pipelines_of_chunks_never_wait_in_a_ring(seed):
    rng = np.random.default_rng(seed)
    pp, chunks = int(rng.choice([2, 4])), 2
    chunks = int(rng.choice([2, LAYERS // pp])) if pp == 2 else 1
    if pp * chunks > LAYERS or chunks == 1:
        pp, chunks = 2, 2
    ep = int(rng.choice([2, 4]))
    microbatches = pp * int(rng.integers(1, 5))
    strategy = replace(STRATEGY, dp=ep, ep=ep, pp=pp, virtual_stages=chunks, shard=int(rng.choice([0, 1])))
    bandwidth = f"{int(rng.choice([1, 50, 3200]))} Gb/s"
    times = []
    for overlap in (False, True):
        plan = placed(strategy.with_keys(ep_overlap=overlap), microbatches, bandwidth)
        folded = rostam.simulate(plan)
        times.append(folded.iteration_time_s)
        assert rostam.simulate(plan, fold=False).iteration_time_s == pytest.approx(folded.iteration_time_s, rel=1e-9)
    # Where rows take most of the time a pair holds up both stages that it serves, and nothing is left to hide behind.
    assert times[1] < (1.25 if bandwidth == "1 Gb/s" else 1.05) * times[0]


@pytest.mark.parametrize(("pp", "chunks", "microbatches"), [(1, 1, 6), (2, 2, 4), (4, 3, 8), (8, 2, 16)])
def test_programs_run_one_forward_more_ahead_and_keep_no_more_at_once(pp, chunks, microbatches):
    for stage in range(pp):
        plain = stage_program("1f1b", stage, pp, microbatches, chunks)
        ahead = stage_program("1f1b", stage, pp, microbatches, chunks, 1)
        assert Counter(plain) == Counter(ahead)
        first = [[phase_of(name) for name, _ in one].index("backward") for one in (plain, ahead)]
        assert first[1] == min(first[0] + 1, microbatches * chunks)
        assert most_in_flight(backwards_first(ahead)) <= most_in_flight(plain) + (1 if pp > 1 else 0)
        for pair in pair_up(ahead)[1].values():
            assert pair.ahead >= 0


def test_memory_is_that_of_one_micro_batch_without_a_pipeline():
    memory = [placed(STRATEGY.with_keys(ep_overlap=overlap)).stages[0].memory for overlap in (False, True)]
    assert memory[0] == memory[1]


def test_a_saved_graph_takes_turns_as_well(tmp_path):
    plan = placed(STRATEGY)
    rostam.TaskGraph.of(plan).save(tmp_path / "tasks.json")
    again = rostam.simulate(rostam.TaskGraph.load(tmp_path / "tasks.json"))
    assert again.iteration_times_s == rostam.simulate(plan).iteration_times_s
    assert again.iteration_time_s < rostam.simulate(placed(STRATEGY.with_keys(ep_overlap=False))).iteration_time_s


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"ep": 1}, "strategy.ep=1"),
        ({"schedule": "gpipe"}, "it must be 1f1b or dual_pipe_v"),
        ({"pp": 2}, "strategy.virtual_stages must be > 1"),
        ({"shard": 3}, "must be 0, 1 or 2"),
    ],
)
def test_what_has_nothing_to_take_turns_is_refused(given, needed):
    with pytest.raises(ConfigError, match=needed):
        STRATEGY.with_keys(**given)


def test_one_micro_batch_is_refused():
    with pytest.raises(ConfigError, match="there is one, of 1 samples"):
        placed(STRATEGY, microbatches=1)


def test_origins_that_are_none_are_refused():
    graph = _core.TaskGraph(["ep"], 1)
    task = {
        "kind": [0], "slot": [-1], "category": [0], "schedule": [-1], "channel": [-1], "num_bytes": [0],
        "duration_ps": [5], "dep_offset": [0, 0], "dep": np.array([], np.int32),
    }  # fmt: skip
    own = graph.add_template(**task)
    assert graph.add_template(**task, origin=np.array([[own, 0, 3]], np.int32)) == own + 1
    for wrong in ([7, 0, 0], [own, 1, 0], [own, 0, -1]):
        with pytest.raises(ConfigError, match="there is none such"):
            graph.add_template(**task, origin=np.array([wrong], np.int32))
