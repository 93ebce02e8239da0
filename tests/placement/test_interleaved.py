"""Pipelines whose stages hold several chunks of layers: cuts, messages and memory."""

from collections import Counter

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.placement.megatron.chunk_balance import balance_devices, devices_of
from rostam_py.plan import Strategy

ACTIVATION = 2048 * 768 * 2  # of a micro-batch of one sample between layers of gpt_125m, 2 bytes each


def listed(plan, axis):
    """Return {(kind, stages, bytes): count} of one axis."""
    found = Counter()
    for m in plan.messages():
        if m.group == axis:
            found[m.kind, m.stages, m.num_bytes] += m.count
    return dict(found)


def blocks_of(stage):
    """Return the numbers of the layers that a stage holds."""
    return [int(name.split(".")[1]) for name in stage.modules if name.endswith("norm1")]


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("pp", [2, 3])
def test_each_micro_batch_crosses_every_boundary_of_the_chunks_once_each_way(placed, twelve_layers, pp, chunks):
    # p v - 1 boundaries: k goes from device k mod p to the next, v - 1 of them from the last back to the first.
    m = 2 * pp
    plan = placed(twelve_layers, Strategy(pp=pp, virtual_stages=chunks, precision="bf16_mixed"), m)
    expected = Counter()
    for boundary in range(pp * chunks - 1):
        source, target = boundary % pp, (boundary + 1) % pp
        for kind in ("send", "recv"):
            expected[kind, (source, target), ACTIVATION] += m
            expected[kind, (target, source), ACTIVATION] += m
    assert listed(plan, "pp") == expected
    assert sum(n for (kind, _, _), n in listed(plan, "pp").items() if kind == "send") == 2 * m * (pp * chunks - 1)


def test_chunks_hold_consecutive_layers_in_turns(placed, twelve_layers):
    plan = placed(twelve_layers, Strategy(pp=2, virtual_stages=3, precision="bf16_mixed"), 4)
    held = [blocks_of(stage) for stage in plan.stages]
    assert sorted(held[0] + held[1]) == list(range(12))
    # modules are in the graph's order: each device's layers in up to three runs, which alternate
    owner = [0 if block in held[0] else 1 for block in range(12)]
    assert owner[0] == 0
    assert sum(a != b for a, b in zip(owner, owner[1:], strict=False)) in (4, 5)


@pytest.mark.parametrize(("pp", "chunks"), [(4, 1), (3, 2), (2, 3)])
def test_even_stages_hold_as_many_layers_each_in_turns(placed, twelve_layers, pp, chunks):
    strategy = Strategy.of(pp=pp, virtual_stages=chunks, stage_blocks="even", precision="bf16_mixed")
    each = 12 // (pp * chunks)
    plan = placed(twelve_layers, strategy, 2 * pp)
    for stage in plan.stages:
        first = [(stage.index + chunk * pp) * each for chunk in range(chunks)]
        assert blocks_of(stage) == [one + i for one in first for i in range(each)]
    # all in front of the first layer is with it, all behind the last one with that
    assert "tokens" in plan.stages[0].modules
    assert "loss" in plan.stages[-1].modules


def test_the_two_ends_may_count_as_a_layer_each(placed, twelve_layers):
    # 14 of them, two for each of seven chunks, or one in each of fourteen: the first and the last have no layer.
    strategy = Strategy.of(pp=7, stage_blocks="even_with_ends", precision="bf16_mixed")
    held = [blocks_of(stage) for stage in placed(twelve_layers, strategy, 14).stages]
    assert held == [[0], [1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11]]
    strategy = Strategy.of(pp=7, virtual_stages=2, stage_blocks="even_with_ends", precision="bf16_mixed")
    held = [blocks_of(stage) for stage in placed(twelve_layers, strategy, 14).stages]
    assert held == [[6], [0, 7], [1, 8], [2, 9], [3, 10], [4, 11], [5]]


@pytest.mark.parametrize(
    ("stage_blocks", "pp", "counted"),
    [("even", 5, "12 blocks, for 5"), ("even_with_ends", 4, "12 blocks, the model's two ends as one each, for 4")],
)
def test_layers_that_stages_cannot_share_evenly_are_an_error(placed, twelve_layers, stage_blocks, pp, counted):
    with pytest.raises(
        ConfigError, match=f"software.rules.stage_blocks is '{stage_blocks}', but .* has {counted} stages"
    ):
        placed(twelve_layers, Strategy.of(pp=pp, stage_blocks=stage_blocks, precision="bf16_mixed"), 2 * pp)


@pytest.mark.parametrize("stage_blocks", ["even", "even_with_ends"])
def test_a_model_without_repeated_blocks_has_none_to_share(placed, stage_blocks):
    with pytest.raises(ConfigError, match="'cosmoflow' has 0 blocks, for 2 stages"):
        placed(rostam.trace("cosmoflow"), Strategy.of(pp=2, stage_blocks=stage_blocks), 4)


def test_the_tied_embedding_is_reduced_once_over_the_devices_of_the_first_and_the_last_chunk(placed, twelve_layers):
    plan = placed(twelve_layers, Strategy(pp=4, dp=2, virtual_stages=3, precision="bf16_mixed"), 8)
    assert plan.tied == ((0, 3),)
    assert listed(plan, "tied0") == {("all_reduce", (0, 3), 50257 * 768 * 4): 2}
    for stage in plan.stages:  # each gradient goes into one bucket, and all buckets come before the step
        dp = {k: n for k, n in listed(plan, "dp").items() if k[1] == (stage.index,)}
        assert sum(k[2] * n for k, n in dp.items()) == stage.num_parameters * 4
    words = 50257 * 768
    assert sum(stage.num_parameters for stage in plan.stages) == twelve_layers.num_parameters + words


def test_the_optimizer_waits_for_the_buckets_and_tied_gradients_of_all_chunks(placed, twelve_layers):
    plan = placed(twelve_layers, Strategy(pp=4, dp=2, virtual_stages=3, precision="bf16_mixed"), 8)
    for stage in plan.stages:
        steps = [(name, task) for name, tasks in stage.templates.items() for task in tasks if task.is_optimizer]
        ((name, step),) = steps
        assert name == "backward_last.0" == list(stage.program)[-1][0]
        tasks = stage.templates[name]
        assert {tasks[dep].group for dep in step.deps} >= {"dp"}
        own = [k for k, task in enumerate(tasks) if task.kind == "collective"]
        assert set(own) <= set(step.deps)
        # Collectives of a group run one after another: those of earlier chunks, of "dp" alone, have ended.
        earlier = [task.group for other in stage.templates if other != name for task in stage.templates[other]]
        assert set(earlier) <= {"", "dp", "pp"}


@pytest.mark.parametrize("bucket", ["1 kB", "25 MB", "1 TB"])
def test_every_gradient_is_in_one_bucket_whatever_their_size(placed, twelve_layers, bucket):
    for options in ({"virtual_stages": 2}, {"schedule": "zb_h1"}):
        plan = placed(twelve_layers, Strategy.of(pp=2, dp=2, precision="bf16_mixed", bucket_size=bucket, **options), 8)
        for stage in plan.stages:
            dp = {k: n for k, n in listed(plan, "dp").items() if k[1] == (stage.index,)}
            assert sum(k[2] * n for k, n in dp.items()) == stage.num_parameters * 4


def test_first_stage_of_equal_chunks_holds_korthikantis_factor(placed, twelve_layers):
    # Without embedding and head layers alone: all of one size per micro-batch, 1 + (p - 1) / (p v) times as many.
    plain, chunked = (
        placed(twelve_layers, Strategy(pp=2, virtual_stages=v, precision="bf16_mixed", check_memory=False), 8)
        for v in (1, 2)
    )
    per_layer = []
    for plan, held in ((plain, 2), (chunked, 2 + 1 / 2)):
        layers = len(blocks_of(plan.stages[0]))
        per_layer.append(plan.stages[0].memory.activations / (held * layers))
    assert per_layer[1] == pytest.approx(per_layer[0], rel=0.05)  # embedding's output, uneven chunks


def test_more_chunks_than_layers_are_refused_with_the_most_there_can_be(placed, gpt):
    with pytest.raises(DegreeError, match=r"strategy.pp is 4, each of strategy.virtual_stages = 9 chunks"):
        placed(gpt, Strategy(pp=4, virtual_stages=9), 4)


def test_micro_batches_must_be_a_multiple_of_the_stages(placed, gpt):
    with pytest.raises(DegreeError, match=r"a replica has 6 micro-batches .* multiple of strategy.pp = 4"):
        placed(gpt, Strategy(pp=4, virtual_stages=2), 6)


def test_a_device_with_more_work_gives_layers_away():
    # Ten layers of 1 and a head of 3 on 2 devices x 2 chunks: 13 in all, so that 6 and 7 are best.
    seconds = np.array([1.0] * 10 + [3.0])
    bounds = balance_devices(seconds, list(range(1, 11)), [3, 6, 9], devices_of(4, 2))
    parts = [float(part.sum()) for part in np.split(seconds, bounds)]
    assert sum(parts) == 13
    assert sorted([parts[0] + parts[2], parts[1] + parts[3]]) == [6, 7]


@pytest.mark.parametrize(("is_v", "places"), [(False, [0, 1, 0, 1]), (True, [0, 1, 1, 0])])
def test_balanced_cuts_are_as_good_as_the_best_of_all(is_v, places):
    assert devices_of(4, 2, is_v).tolist() == places
    rng = np.random.default_rng(7)
    for _ in range(20):
        seconds = rng.integers(1, 6, size=9).astype(float)
        found = balance_devices(seconds, list(range(1, 9)), [2, 4, 6], devices_of(4, 2, is_v))
        assert found == sorted(set(found))
        assert len(found) == 3

        def slowest(bounds, seconds=seconds):
            parts = [part.sum() for part in np.split(seconds, bounds)]
            return max(np.bincount(places, weights=parts))

        best = min(slowest([a, b, c]) for a in range(1, 7) for b in range(a + 1, 8) for c in range(b + 1, 9))
        assert slowest(found) <= slowest([2, 4, 6])
        assert slowest(found) <= 1.25 * best
