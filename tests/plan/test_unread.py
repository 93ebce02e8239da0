"""Keys that are set and change nothing are named in a plan's notes, and no others."""

import pytest

import rostam_py as rostam
from rostam_py.plan import Strategy
from rostam_py.plan.strategy_names import key_of
from rostam_py.plan.unread import unread_keys


def test_defaults_say_nothing():
    assert unread_keys(Strategy()) == ()
    assert unread_keys(Strategy(placer="sip_ml")) == ()


@pytest.mark.parametrize(
    ("unread", "read"),
    [
        ({"window": "paper"}, {"placer": "sip_ml"}),
        ({"quantum": "20 us"}, {"placer": "sip_ml"}),
        ({"weight_splits": "sliced"}, {"placer": "sip_ml"}),
        ({"cp_algorithm": "ulysses"}, {"cp": 2}),
        ({"asynchronous_tp": False}, {"tp": 2}),
        ({"narrow_dispatch": True, "precision": "fp8_mixed"}, {"ep": 2}),
        ({"schedule": "gpipe"}, {"pp": 2}),
        ({"mapping_seed": 3}, {"mapping": "random"}),
        ({"bucket_size": "1 MB", "shard": 3}, {"shard": 2}),
        ({"bucket_size": "1 MB", "overlap_grad_reduce": False}, {"overlap_grad_reduce": True}),
        ({"overlap_grad_reduce": False, "placer": "sip_ml"}, {"placer": "megatron"}),
        ({"overlap_grad_reduce": False, "dp": 1}, {"dp": 2}),
        ({"split_p2p": True, "pp": 2, "tp": 2, "sequence_parallel": True}, {"sequence_parallel": False}),
        ({"overlap_p2p": False}, {"pp": 2}),
        ({"split_p2p": True, "pp": 2}, {"tp": 2}),
        ({"stage_blocks": "even"}, {"pp": 2}),
        (
            {"weight_decay": "all", "optimizer_kernels": "single", "optimizer": "momentum", "placer": "sip_ml"},
            {"placer": "megatron"},
        ),
        ({"accumulation": "separate", "placer": "sip_ml", "mp": 2}, {"placer": "megatron", "mp": 1}),
    ],
)
def test_a_key_without_effect_is_named_with_what_it_needs(unread, read):
    key, value = next(iter(unread.items()))
    (note,) = unread_keys(Strategy.of(**unread))
    assert note.startswith(f"{key_of(key)} is {value!r}, which has no effect: it needs s")
    assert unread_keys(Strategy.of(**(unread | read))) == ()


def test_sip_ml_has_one_micro_batch_and_so_no_gradients_to_add_up():
    graph = rostam.trace("gpt_125m", num_layers=1)
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=4), accelerator="a100_80gb")
    times = set()
    for accumulation in ("fused", "separate", "free"):
        strategy = Strategy.of(dp=2, mp=2, placer="sip_ml", accumulation=accumulation)
        plan = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal")
        assert (plan.num_microbatches, plan.micro_batch) == (1, 4)
        said = any("sip_ml runs a batch at once and adds up none" in note for note in plan.notes)
        assert said == (accumulation != "fused")  # the default stays unsaid
        times.add(rostam.simulate(plan).iteration_time_s)
    assert len(times) == 1


def test_plans_carry_it_among_their_notes():
    graph = rostam.trace("gpt_125m", num_layers=1)
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=4), accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=8, strategy=Strategy.of(cp_algorithm="ulysses"), software="ideal")
    assert "software.rules.cp_algorithm is 'ulysses', which has no effect: it needs strategy.cp > 1" in plan.notes


def test_keys_of_periodic_circuits_are_named_where_circuits_are_not_set_periodically():
    keys = {"period": "1 ms", "estimator": "backlog", "reporting_delay": "1 us"}

    def notes(**more):
        return rostam.fabric(
            "sip_ocs", num_accelerators=4, num_ocs=2, **{"reconfiguration_delay": "0 s", **more}
        ).config.unread_keys()

    assert notes() == notes(control="scheduled") == notes(control="periodic", **keys) == ()
    for control in ("one_shot", "scheduled"):
        assert notes(control=control, **keys) == tuple(
            f"fabric.{key} is {value!r}, which has no effect: it needs fabric.control=periodic"
            for key, value in keys.items()
        )
    # The delay holds for circuits that are set once, too: around parts that fail.
    assert notes(reconfiguration_delay="1 us") == ()


def test_plans_flows_and_collectives_carry_it_among_their_notes():
    fabric = rostam.fabric("sip_ring", num_accelerators=4, estimator="backlog")
    said = "fabric.estimator is 'backlog', which has no effect: it needs fabric.control=periodic"
    graph = rostam.trace("gpt_125m", num_layers=1)
    assert (
        said
        in rostam.place(
            graph,
            rostam.Machine(fabric=fabric, accelerator="a100_80gb"),
            global_batch=8,
            strategy=Strategy(),
            software="ideal",
        ).notes
    )
    assert said in rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[10]).notes
    assert said in rostam.run_collective(fabric, "all_reduce", num_bytes=4000).notes
