"""Searches over all axes: what is pruned before placing, how good quick estimates are, what is said of the rest."""

import dataclasses
import random
import statistics

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.graph.shortened import shortened, stacks_of
from rostam_py.plan.searched_axes import SEARCHED_AXES, ModelFacts, Site, Space, check_axes, without_axes
from rostam_py.searching import Searcher

BATCH = 64


@pytest.fixture(scope="module")
def deep():
    """Eight layers of gpt_125m."""
    return rostam.trace("gpt_125m", num_layers=8)


@pytest.fixture(scope="module")
def planned(deep, cluster, base):
    """The planner of eight layers on eight accelerators, its searcher, and all strategies of the space."""
    searcher = Searcher(deep, base=base, placers=["megatron"], software="ideal")
    space = Space.of(base, "all")
    fields = list(space.fields(Site(8, BATCH, searcher._facts)))
    return searcher, searcher._planner(cluster), fields


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_shortened_model_is_the_model_traced_with_so_many_layers(deep, machine, base, depth):
    strategy = dataclasses.replace(base, dp=4, tp=2, sequence_parallel=True, micro_batch=1)
    plans = [
        rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal")
        for graph in (shortened(deep, {0: depth}), rostam.trace("gpt_125m", num_layers=depth))
    ]
    assert plans[0].stages[0].memory == plans[1].stages[0].memory
    times = [rostam.simulate(plan).iteration_time_s for plan in plans]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_stacks_whose_blocks_feed_others_are_not_shortened():
    graph = rostam.trace("transformer_350m", num_layers=3)  # all blocks of the decoder read the encoder's output
    assert len(stacks_of(graph)) == 2
    assert shortened(graph, {0: 2, 1: 2}) is None


@pytest.mark.parametrize("count", [12, pytest.param(30, marks=pytest.mark.slow)])
def test_quick_estimates_and_bounds_of_drawn_strategies(planned, cluster, base, count):
    searcher, planner, fields = planned
    draw = random.Random(7)
    ratios, bounds, memories = [], [], []
    for chosen in draw.sample(fields, count):
        strategy = without_axes(base).with_keys(check_memory=False, **chosen)
        try:
            plan = rostam.place(searcher.graph, cluster, global_batch=BATCH, strategy=strategy, software="ideal")
        except ConfigError:
            continue
        real = rostam.simulate(plan).iteration_time_s
        ratios.append((chosen["pp"], planner.seconds(chosen, BATCH) / real))
        bounds.append(planner._least_s(chosen, BATCH) / real)
        if chosen["pp"] == 1 and chosen["cp"] == 1:
            memories.append(planner.memory_bytes(chosen, BATCH) / plan.memory_bytes)
    assert len(ratios) >= 2 * count // 3
    errors = [(pp, abs(ratio - 1)) for pp, ratio in ratios]
    assert statistics.median(error for pp, error in errors if pp == 1) < 0.08
    assert statistics.median(error for _, error in errors) < 0.15  # stages of few small blocks beside a large head
    assert min(ratio for _, ratio in ratios) > 0.7  # also where stages share links with what they reduce all along
    assert max(bounds) < 1
    assert all(0.8 < share < 1.01 for share in memories)  # a bound: gathered units of ZeRO 3 are not in it


def test_a_search_over_all_axes_finds_the_best_of_all_simulated(deep, cluster, base):
    axes = {"tp": [1, 2], "pp": [1, 2], "shard": [0, 3], "virtual_stages": [1, 2], "recompute": ["none"]}
    axes |= {"sequence_parallel": [True], "micro_batch": [1, 4]}
    found = rostam.search(deep, cluster, batches=[BATCH], base=base, axes=axes, num_simulated=3, software="ideal")
    every = rostam.search(deep, cluster, batches=[BATCH], base=base, axes=axes, num_simulated=1000, software="ideal")
    assert len(every.simulated) > 12
    assert found.best.simulated_s <= 1.03 * every.best.simulated_s
    assert {c.strategy.shard for c in every.simulated} == {0, 3}
    assert {c.strategy.virtual_stages for c in every.simulated} == {1, 2}


def test_what_cannot_fit_is_pruned_before_it_is_placed(deep, cluster, base):
    small = dataclasses.replace(cluster, accelerator=_with_memory(2_000_000_000))
    found = rostam.search(deep, small, batches=[BATCH], base=base, axes="all", num_simulated=2, software="ideal")
    reasons = dict(found.left_out)
    assert reasons["pruned by memory, before placing"] > 100
    assert found.best.memory_bytes <= 2_000_000_000
    assert any("searched: tp (" in note and "algorithms" in note for note in found.notes)


def _with_memory(num_bytes):
    from rostam_py.costs import get_accelerator

    return dataclasses.replace(get_accelerator("a100_80gb"), name="small", memory_bytes=num_bytes)


def test_axes_of_a_space_take_the_values_that_the_model_and_the_machine_allow():
    facts = ModelFacts(num_heads=4, num_experts=8, num_blocks=8, sequence_length=64)
    space = Space.of(rostam.Strategy(), "all")
    drawn = list(space.strategies(without_axes(rostam.Strategy()), Site(16, 32, facts)))
    assert {s.tp for s in drawn} == {1, 2, 4}
    assert {s.cp for s in drawn} == {1}  # 64 tokens
    assert {s.pp for s in drawn} == {1, 2, 4, 8}
    assert {s.ep for s in drawn} == {1, 2, 4, 8}
    assert {s.virtual_stages for s in drawn} == {1, 2, 4}
    assert {s.shard for s in drawn if s.dp * s.cp > 1} == {0, 1, 2, 3}
    assert {s.shard for s in drawn if s.dp * s.cp == 1} == {0}
    assert all(s.tp * s.pp * s.cp * s.dp == 16 and 32 % s.dp == 0 for s in drawn)
    assert all(32 // s.dp // s.micro_batch >= s.pp or s.micro_batch == 1 for s in drawn)
    assert len({repr(s) for s in drawn}) == len(drawn)


def test_named_degrees_that_the_machine_does_not_hold_are_left_out_with_the_reason():
    space = Space.of(rostam.Strategy(), {"tp": [1], "pp": [1], "cp": [1, 3]})
    drawn = list(space.fields(Site(8, 16, ModelFacts(4, 0, 8, 64))))
    assert {fields["cp"] for fields in drawn} == {1}
    assert space.left_out == {"tp x pp x cp does not divide 8 accelerators": 1}


def test_axes_that_are_not_named_are_as_the_base_has_them():
    base = rostam.Strategy(dp=2, ep=2, shard=1, recompute="selective")
    space = Space.of(base, ["tp", "virtual_stages"])
    drawn = list(space.strategies(without_axes(base), Site(8, 16, ModelFacts(4, 8, 8, 64))))
    assert {(s.pp, s.cp, s.ep, s.shard) for s in drawn} == {(1, 1, 2, 1)}
    assert {s.recompute for s in drawn} == {"selective", "full"}
    assert {s.tp for s in drawn} == {1, 2, 4}


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ("some", "must be all, a list of axes"),
        ({"tpp": [1]}, "names 'tpp'; a search varies: tp, pp"),
        ({"tp": 4}, "axes.tp is 4; it must be a list"),
        ([], "must be all"),
    ],
)
def test_bad_axes_are_refused_by_name(axes, said):
    with pytest.raises(ConfigError, match=said):
        check_axes(axes)


def test_every_axis_is_a_field_of_a_strategy_with_a_neutral_value_that_it_takes():
    assert rostam.Strategy.of(**{name: axis.neutral for name, axis in SEARCHED_AXES.items()}).num_ranks == 1
