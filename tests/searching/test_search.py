"""Searching: what is enumerated, pruned, ranked, refused and repeated."""

import dataclasses
import json
import math
import re

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.convergence import Curve, Point, get_curve
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan import PLACERS
from rostam_py.plan.divisors import divisors
from rostam_py.searching import Searcher
from rostam_py.searching.candidates import default_batches


def candidates(placer, base, num_accelerators, batch):
    """Return what a search considers of a placer."""
    strategy = dataclasses.replace(base, placer=placer)
    return list(PLACERS.get(placer)(strategy, "roofline", {}).candidates(num_accelerators, batch))


def test_chunks_are_kept_where_a_pipeline_has_micro_batches_for_them(base):
    found = candidates("megatron", dataclasses.replace(base, pp=2, virtual_stages=2), 12, 24)
    assert {s.virtual_stages for s in found if s.pp == 1} == {1}
    assert {s.virtual_stages for s in found if s.pp > 1} == {2}
    assert all(24 // s.dp // s.micro_batch % s.pp == 0 for s in found if s.pp > 1)


def test_strategies_fill_the_machine_and_divide_the_batch(base):
    found = candidates("megatron", base, 12, 24)
    assert {s.dp * s.tp * s.pp for s in found} == {12}
    assert all(24 % s.dp == 0 for s in found)
    assert {(s.dp, s.tp, s.pp) for s in found} == {
        (12 // (t * p), t, p) for t in divisors(12) for p in divisors(12 // t)
    }


def test_pipelines_are_offered_with_several_numbers_of_micro_batches(base):
    # dp 2 x pp 4 of a batch of 64: 32 samples a replica in 4, 8, 16 or 32 micro-batches
    sizes = {s.micro_batch for s in candidates("megatron", base, 8, 64) if (s.dp, s.pp) == (2, 4)}
    assert sizes == {8, 4, 2, 1}


def test_model_parallel_groups_fill_the_machine(base):
    assert {(s.dp, s.mp) for s in candidates("sip_ml", base, 8, 64)} == {(8, 1), (4, 2), (2, 4), (1, 8)}


def test_named_values_of_dp_hold_for_model_parallel_groups(gpt, machine, base):
    found = rostam.search(
        gpt, machine, batches=[64], base=base, placers=["sip_ml"], axes={"dp": [machine.num_accelerators]},
        num_simulated=1, software="ideal",
    )  # fmt: skip
    assert [(c.strategy.dp, c.strategy.mp) for c in found.candidates] == [(machine.num_accelerators, 1)]


@pytest.mark.parametrize(
    ("curve", "batches"),
    [
        ("resnet50_mlperf", (4096, 8192, 16384, 32768)),
        ("transformer_sip_ml", (1024,)),
        ("gpt3_175b_brown", (1536,)),
    ],
)
def test_default_batches_are_powers_of_two_inside_the_measured_range(curve, batches):
    assert default_batches(get_curve(curve)) == batches


def test_the_best_is_the_best_of_all_simulated(gpt, machine, base):
    found = rostam.search(gpt, machine, batches=[32], base=base, num_simulated=4, software="ideal")
    assert len(found.simulated) == 4
    every = rostam.search(gpt, machine, batches=[32], base=base, num_simulated=1000, software="ideal")
    assert len(every.simulated) == len(every.estimated) > 10
    assert found.best.simulated_s == pytest.approx(every.best.simulated_s, rel=0.05)
    assert found.best.simulated_s >= every.best.simulated_s


def test_estimates_count_links_inside_servers_that_are_faster_than_the_nic(gpt, base):
    # A group of four sends at 300 GB/s inside a server; held to the NIC's 1 GB/s it would look five times slower.
    fabric = rostam.fabric("fat_tree", num_accelerators=8, radix=16, server_size=4, link_bandwidth="8 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    found = rostam.search(gpt, machine, batches=[32], base=base, num_simulated=8, software="ideal")
    grouped = next(c for c in found.simulated if c.strategy.degrees() == {"dp": 2, "mp": 4})
    assert grouped.estimate_s == pytest.approx(grouped.simulated_s, rel=0.05)
    assert all(c.bound_s <= c.simulated_s for c in found.simulated)


def test_candidates_left_out_for_their_bound_cannot_be_among_the_best(gpt, cluster, base):
    found = rostam.search(gpt, cluster, batches=[32], base=base, num_simulated=2, software="ideal")
    pruned = [c for c in found.candidates if "alone take longer" in c.reason]
    assert pruned
    worst_kept = sorted(c.estimate_s for c in found.estimated)[1]
    assert all(c.bound_s > worst_kept for c in pruned)


def test_with_a_curve_time_to_accuracy_ranks_the_batches(gpt, machine, base):
    # Twice the batch needs as many iterations: the smaller batch must win, though the larger has more samples a second.
    curve = Curve(
        name="flat",
        models=(),
        target="any",
        source="made up",
        points=(Point(16, 100, 100), Point(32, 100, 100)),
        form="log_log",
    )
    found = rostam.search(gpt, machine, convergence=curve, base=base, num_simulated=4, software="ideal")
    assert {c.global_batch for c in found.candidates} == {16, 32}
    assert found.best.global_batch == 16
    assert found.best.time_to_accuracy_s == pytest.approx(100 * found.best.simulated_s)
    by_throughput = rostam.search(gpt, machine, batches=[16, 32], base=base, num_simulated=4, software="ideal")
    assert by_throughput.best.global_batch == 32


def test_what_does_not_fit_gets_smaller_micro_batches_then_recomputation(gpt, base):
    # 2 layers at s 2,048 hold about 0.5 GB of activations a sample: 256 samples need far more than 80 GB.
    fabric = rostam.fabric("electrical_flat", num_accelerators=1)
    found = Searcher(gpt, base=base, placers=("megatron",), software="ideal").search(
        rostam.Machine(fabric=fabric, accelerator="a100_80gb"), batches=[512], num_simulated=1
    )
    assert found.best.num_microbatches > 1
    assert found.best.memory_bytes <= 80 * 2**30
    assert found.best.strategy.recompute == "none"


def test_a_model_too_large_is_refused_with_the_memory_it_needs(machine, base):
    graph = rostam.trace("gpt_125m", num_layers=2)
    tiny = rostam.Machine(fabric=machine.fabric, accelerator=small_accelerator())
    with pytest.raises(ConfigError, match="needs"):
        rostam.search(graph, tiny, batches=[8], base=base, placers=["megatron"], software="ideal")


def small_accelerator():
    """Return an A100 with 100 MB of memory."""
    import dataclasses

    from rostam_py.costs import get_accelerator

    return dataclasses.replace(get_accelerator("a100_80gb"), name="tiny", memory_bytes=100_000_000)


def test_degrees_above_the_limit_are_refused(gpt, machine, base):
    found = rostam.search(
        gpt,
        machine,
        batches=[32],
        base=base,
        placers=["megatron"],
        max_circuit_degree=1,
        num_simulated=1,
        software="ideal",
    )
    assert any("strategy.max_circuit_degree allows it 1 circuit;" in c.reason for c in found.candidates)
    assert all(c.circuit_degree <= 1 for c in found.estimated)


def test_a_searchers_second_machine_needs_no_new_plans(gpt, machine, base):
    searcher = Searcher(gpt, base=base, placers=("megatron",), software="ideal")
    first = searcher.search(machine, batches=[32], num_simulated=1)
    placed = len(searcher._plans)
    fabric = rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth="400 Gb/s")
    again = searcher.search(rostam.Machine(fabric=fabric, accelerator="a100_80gb"), batches=[32], num_simulated=1)
    assert len(searcher._plans) == placed
    assert again.to_dict() == first.to_dict()


def test_what_a_search_simulated_is_what_placing_its_strategy_anew_gives(machine):
    # An encoder-decoder: the order of its gradient sums is changed before Algorithm 1 places them, in both.
    graph = rostam.trace("transformer_350m", num_layers=2)
    strategy = rostam.Strategy(dp=2, mp=4, placer="sip_ml")
    best = rostam.search(graph, machine, batches=[64], strategies=[strategy], software="ideal").best
    plan = rostam.place(graph, machine, global_batch=64, strategy=best.plan.strategy, software="ideal")
    assert [s.templates for s in best.plan.stages] == [s.templates for s in plan.stages]
    assert best.simulated_s == rostam.simulate(plan).iteration_time_s


def test_equal_searches_give_equal_values(gpt, cluster, base):
    texts = [
        json.dumps(rostam.search(gpt, cluster, batches=[32], base=base, num_simulated=2, software="ideal").to_dict())
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


def test_explicit_strategies_are_the_only_ones(gpt, machine, base):
    chosen = [rostam.Strategy(dp=8, precision="bf16_mixed"), rostam.Strategy(dp=4, tp=2, precision="bf16_mixed")]
    found = rostam.search(gpt, machine, batches=[32], strategies=chosen, software="ideal")
    assert {c.describe() for c in found.candidates} == {"dp 8 x tp 1 x pp 1", "dp 4 x tp 2 x pp 1"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "batches"),
        ({"batches": []}, "empty"),
        ({"batches": [0]}, "integers"),
        ({"batches": [32], "num_simulated": -1}, "num_simulated"),
        ({"batches": [32], "placers": ["annealing"]}, "annealing"),
        ({"batches": [512], "convergence": "megatron_18b_sip_ml"}, "1,024"),
    ],
)
def test_bad_arguments_are_refused(gpt, machine, options, said):
    with pytest.raises(ConfigError, match=said):
        rostam.search(gpt, machine, **options, software="ideal")


def test_a_batch_that_no_degrees_divide_is_refused(gpt, base):
    fabric = rostam.fabric("electrical_flat", num_accelerators=7)
    found = rostam.search(
        gpt, rostam.Machine(fabric=fabric), batches=[14], base=base, num_simulated=1, software="ideal"
    )
    assert found.best.strategy.dp in (1, 7)
    with pytest.raises(DegreeError, match="no degrees"):
        rostam.search(
            gpt, rostam.Machine(fabric=fabric), batches=[3], placers=["megatron"],
            base=rostam.Strategy(precision="bf16_mixed", micro_batch=2), software="ideal",
        )  # fmt: skip


@pytest.mark.parametrize("fabric_name", ["sip_ocs", "sip_ring"])
def test_optical_fabrics_are_searched_with_each_plans_own_circuits(gpt, base, fabric_name):
    fabric = rostam.fabric(fabric_name, num_accelerators=8, accelerator_bandwidth="400 Gb/s")
    found = rostam.search(
        gpt, rostam.Machine(fabric=fabric), batches=[32], base=base, num_simulated=2, software="ideal"
    )
    assert len(found.simulated) == 2
    assert all(c.circuit_degree is not None for c in found.estimated)


def test_plans_that_need_more_circuits_than_there_are_are_refused_not_raised(gpt, base):
    # One switch: one circuit out and one in, enough for one data-parallel ring and for nothing else.
    fabric = rostam.fabric("sip_ocs", num_accelerators=8, num_ocs=1, accelerator_bandwidth="400 Gb/s")
    found = rostam.search(
        gpt, rostam.Machine(fabric=fabric, accelerator="a100_80gb"), batches=[32], base=base, software="ideal"
    )
    assert found.best.circuit_degree == 1
    assert any("sip_ocs gives it 1 circuit;" in candidate.reason for candidate in found.candidates)


def test_the_function_stays_the_function_after_the_package_is_imported():
    import rostam_py.searching  # noqa: F401

    assert callable(rostam.search)


@pytest.mark.parametrize(
    ("fixed", "where"),
    [
        ({"tp": 2, "sequence_parallel": True}, lambda s: s.sequence_parallel == (s.tp > 1)),
        ({"tp": 2, "sequence_parallel": True, "tp_overlap": True}, lambda s: s.rules.tp_overlap == (s.tp > 1)),
        ({"pp": 2, "virtual_stages": 2}, lambda s: (s.virtual_stages == 2) == (s.pp > 1)),
        ({"dp": 2, "ep": 2}, lambda s: s.ep == 2 and (s.dp * s.cp) % 2 == 0),
        ({"dp": 4, "shard": 1, "shard_group": 4}, lambda s: (s.shard_group == 4) == (s.dp > 1) and s.dp in (1, 4, 8)),
        ({"dp": 2, "shard": 3}, lambda s: (s.shard == 3) == (s.dp > 1)),
        ({"cp": 2}, lambda s: s.cp == 2),
        ({"dp": 4, "shard": 1, "overlap_param_gather": True}, lambda s: s.rules.overlap_param_gather == (s.dp > 1)),
    ],
)
def test_what_the_base_asks_for_is_taken_where_the_degrees_allow_it(base, fixed, where):
    found = candidates("megatron", base.with_keys(**fixed), 8, 16)
    assert found
    assert all(where(s) for s in found)
    assert {s.tp * s.cp * s.pp * s.dp for s in found} == {8}


def test_a_base_that_degree_1_cannot_take_is_searched_and_says_what_it_left_out(gpt, machine, base):
    split = dataclasses.replace(base, dp=4, tp=2, sequence_parallel=True, shard=1, shard_group=4)
    found = rostam.search(gpt, machine, batches=[16], base=split, num_simulated=1, software="ideal")
    assert {c.strategy.tp for c in found.candidates} >= {1, 2, 4}
    assert all(c.strategy.sequence_parallel == (c.strategy.tp > 1) for c in found.candidates)
    reasons = dict(found.left_out)
    # shard_group 4 does not divide dp 2, which tp 4 and tp 2 x pp 2 leave (two blocks are two stages at most) ...
    assert reasons["strategy.shard_group is N; it must divide strategy.dp = N"] == 2
    # ... and Algorithm 1 does not know tensor-parallel sequences at all.
    assert any("strategy.placer=sip_ml takes no strategy.sequence_parallel" in reason for reason in reasons)
    assert found.to_dict()["left_out"] == reasons


def test_a_search_that_leaves_nothing_says_why(gpt, machine, base):
    asked = dataclasses.replace(base, dp=3, ep=3)
    with pytest.raises(DegreeError, match=r"left out.*strategy.ep is N"):
        rostam.search(gpt, machine, batches=[16], base=asked, placers=["megatron"], num_simulated=1, software="ideal")


def test_plans_made_for_a_fabric_are_dropped_when_a_search_asks_for_them_no_more(base):
    # 3 and 4 switches leave groups of 16 windows that differ.
    graph = rostam.trace("transformer_350m", num_layers=1)

    def search(searcher, num_ocs):
        fabric = rostam.fabric("sip_ocs", num_accelerators=16, num_ocs=num_ocs, accelerator_bandwidth="400 Gb/s")
        on = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
        return searcher.search(on, batches=[64], num_simulated=2)

    def made_for_fabrics(searcher):
        return {key for key in searcher._plans.known if key.fabric is not None}

    searcher, fresh = (Searcher(graph, base=base, placers=("sip_ml",), software="ideal") for _ in range(2))
    search(searcher, 3)
    before = made_for_fabrics(searcher)
    assert search(searcher, 4).to_dict() == search(fresh, 4).to_dict()
    assert before - made_for_fabrics(searcher)
    assert made_for_fabrics(searcher) == made_for_fabrics(fresh)
    assert searcher._plans.known >= fresh._plans.known


def test_settings_that_one_placer_has_leave_the_other_out(gpt, machine):
    base = rostam.Strategy.of(precision="fp16_mixed", gradient_buffer="copied")
    found = rostam.search(gpt, machine, batches=[64], base=base, num_simulated=1, software="ideal")
    assert {c.strategy.placer for c in found.simulated} == {"megatron"}
    assert any(
        "strategy.placer=sip_ml: software.rules.gradient_buffer is 'copied'" in reason for reason, _ in found.left_out
    )
    with pytest.raises(ConfigError, match=r"gradient_buffer is 'copied'; with strategy\.placer=sip_ml"):
        rostam.search(gpt, machine, batches=[64], base=base, placers=["sip_ml"], software="ideal")


class Tables(nn.Module):
    """Two embedding tables and a layer on what they look up."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(1000, 32, mode="sum") for _ in range(2))
        self.layer = nn.Linear(64, 1)

    def forward(self, ids):
        """Return a number for each sample."""
        found = [table(ids[:, place : place + 1]) for place, table in enumerate(self.tables)]
        return self.layer(torch.cat(found, 1))


def test_plans_that_depend_on_servers_are_those_of_the_machine(cluster):
    graph = rostam.trace(Tables(), torch.zeros(1, 2, dtype=torch.int64), name="tables")
    base = rostam.Strategy(tables="hierarchical", optimizer="sgd", precision="fp32")
    best = rostam.search(graph, cluster, batches=[64], base=base, num_simulated=1, software="ideal").best
    plan = rostam.place(graph, cluster, global_batch=64, strategy=best.strategy, software="ideal")
    assert rostam.simulate(plan).iteration_time_s == best.simulated_s


def test_a_search_in_which_nothing_fits_names_what_needs_least(machine):
    graph = rostam.trace("gpt_6_7b")
    small = dataclasses.replace(machine, accelerator=small_accelerator())
    with pytest.raises(ConfigError) as error:
        rostam.search(graph, small, batches=[8], placers=["megatron"], software="ideal")
    needs = [float(one) for one in re.findall(r"needs ([\d.]+) GB", str(error.value))]
    assert len(needs) == 3
    assert needs == sorted(needs)
    degrees = [math.prod(int(one) for one in found) for found in re.findall(r"tp (\d+) x pp (\d+)", str(error.value))]
    assert min(degrees) > 1  # the whole model on each device needs most


def test_searches_of_programs_say_which_placers_they_leave_out():
    graph = rostam.trace("gpt_125m")
    fabric = rostam.fabric("electrical_flat", num_accelerators=4)
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    found = rostam.search(graph, machine, batches=[8], num_simulated=1)
    assert {one.strategy.placer for one in found.candidates} == {"megatron"}
    assert {one.plan.software.name for one in found.estimated} == {"megatron_core"}
    assert any(note.startswith("not searched: strategy.placer=sip_ml") for note in found.notes)
    both = rostam.search(graph, machine, batches=[8], num_simulated=1, placers=["megatron", "sip_ml"])
    assert {one.plan.software.name for one in both.estimated} == {"ideal"}
