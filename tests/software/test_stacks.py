"""Stacks: what flags come to, what the strategy keeps, what is refused; and which one a job takes that names none."""

import dataclasses

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.plan import Strategy
from rostam_py.plan.software import IDEAL_SOFTWARE, Software
from rostam_py.software.names import AUTO, STACKS
from rostam_py.software.program import Program, stack_of
from rostam_py.software.stack import HOST_RULES, KERNEL_RULES, PROGRAM_RULES, RULES

REAL = [name for name in STACKS if name not in (AUTO, "ideal")]
SPREAD = [
    Strategy(dp=8),
    Strategy(dp=8, shard=3, recompute="full"),
    Strategy(dp=2, tp=4, sequence_parallel=True, precision="bf16_mixed"),
    Strategy(dp=2, pp=4, virtual_stages=2, precision="bf16_mixed", shard=1),
    Strategy(dp=4, cp=2, precision="bf16_mixed"),
]


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("gpt_125m")


def on(given, strategy, graph, machine):
    return Program.of(given, graph, cost="calibrated").on(strategy, machine)


def test_ideal_leaves_a_strategy_and_a_machine_as_they_are(graph, machine):
    strategy = Strategy(dp=8, shard=3)
    found, software = on("ideal", strategy, graph, machine)
    assert found is strategy
    assert software == IDEAL_SOFTWARE
    assert software.on(machine) is machine
    assert "upper bound" in software.describe()


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("strategy", SPREAD, ids=Strategy.describe)
def test_a_program_takes_what_it_has_made_of_a_strategy_as_it_is(name, strategy, graph, machine):
    """So that a strategy that a search found, or a saved plan's, is not changed again."""
    if name in ("torchtitan", "fsdp1") and strategy.shard == 1:
        pytest.skip("FSDP shards weights, too")
    if (name == "mlperf_images" and strategy.pp > 1) or (name == "mlperf_images" and strategy.tp > 1):
        pytest.skip("its norms inside convolutions need tp and pp 1")
    if name == "mlperf_images" and strategy.recompute != "none":
        pytest.skip("nor do they go with recomputation")
    if name == "mlperf_images":
        strategy = dataclasses.replace(strategy, precision="fp16_mixed")
    once, software = on(name, strategy, graph, machine)
    twice, again = on(name, once, graph, machine)
    assert twice == once
    assert again == dataclasses.replace(software, sets=())
    assert software.on(software.on(machine)) == software.on(machine)


@pytest.mark.parametrize("name", REAL)
def test_what_a_strategy_says_stays(name, graph, machine):
    strategy = Strategy.of(dp=8, bucket_size="7 MB", clip_gradients=True, precision="fp16_mixed")
    found, _ = on(name, strategy, graph, machine)
    assert (found.rules.bucket_size, found.rules.clip_gradients, found.precision) == ("7 MB", True, "fp16_mixed")


def test_rules_hold_against_strategy_and_program(graph, machine):
    given = {"name": "torchtitan", "rules": {"allocator": "exact", "host": "graphs", "attention": "flash3"}}
    program = Program.of(given, graph, cost="calibrated")
    strategy, software = program.on(Strategy.of(dp=8, allocator="torch"), machine)
    assert strategy.rules.allocator == "exact"
    assert software.on(machine).host == "graphs"
    assert program.costs({"attention": "cudnn"}, strategy, machine)["attention"] == "flash3"


def test_what_means_something_only_beside_another_rule_goes_with_it(graph, machine):
    """Eager code by hand: a program's choice of compiled blocks means nothing then."""
    found, _ = on("torchtitan", Strategy(dp=8), graph, machine)
    assert found.rules.fusion == "none"
    found, _ = on({"name": "megatron_core"}, Strategy.of(dp=8, fusion="none"), graph, machine)
    assert (found.rules.fusion, found.rules.fused_part, found.rules.eager_loss) == ("none", "everything", "torch")


def test_flags_that_are_parallelism_set_it_and_disagree_aloud(graph, machine):
    assert on({"name": "megatron_core"}, Strategy(dp=8), graph, machine)[0].shard == 0
    flag = {"name": "megatron_core", "use_distributed_optimizer": True}
    assert on(flag, Strategy(dp=8), graph, machine)[0].shard == 1
    with pytest.raises(ConfigError, match=r"use_distributed_optimizer is true, which means strategy.shard=1"):
        on(flag, Strategy(dp=8, shard=3), graph, machine)
    titan = {"name": "torchtitan", "compile": True, "float8": "rowwise"}
    assert on(titan, Strategy(dp=8, precision="bf16_mixed"), graph, machine)[0].precision == "fp8_row_mixed"
    with pytest.raises(ConfigError, match=r"software.float8 is 'rowwise'"):
        on(titan, Strategy(dp=8, precision="fp16_mixed"), graph, machine)


def test_levels_of_sharding_that_a_program_does_not_run_are_refused(graph, machine):
    for given, shard in (
        ("torchtitan", 1), ("fsdp1", 2), ({"name": "torchtitan", "data_parallel_shard_degree": 1}, 3),
        ({"name": "megatron_bridge", "use_distributed_optimizer": False}, 1),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=rf"shard is {shard}"):
            on(given, Strategy(dp=8, shard=shard), graph, machine)


def test_torchtitan_splits_sequences_where_it_splits_by_tp(graph, machine):
    found, software = on("torchtitan", Strategy(dp=4, tp=2), graph, machine)
    assert found.sequence_parallel
    assert ("sequence_parallel", True) in software.sets


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "torchtitan", "compiled": True}, "has no flag 'compiled'"),
        ({"name": "torchtitan", "use_megatron_fsdp": True}, "it is a flag of .*megatron_core"),
        ({"name": "torchtitan", "compile": 1}, "software.compile is 1; it must be true or false"),
        ({"name": "torchtitan", "release": "2020"}, "software.release is '2020'; it must be one of"),
        ({"name": "torchtitan", "float8": "blockwise"}, "software.float8 is 'blockwise'"),
        ({"name": "torchtitan", "data_parallel_shard_degree": 4}, "strategy.shard_group=N"),
        ({"name": "torchtitan", "enable_fsdp_float8_all_gather": True}, "needs software.float8=tensorwise"),
        ({"name": "megatron_core", "cuda_graph_scope": ["mlp"]}, "software.cuda_graph_scope holds 'mlp'"),
        ({"name": "ideal", "rules": {"alocator": "exact"}}, "software.rules.alocator is not a rule"),
        ({"name": "ideal", "rules": ["exact"]}, "software.rules is .*; it must be a mapping"),
        (3, "software is 3; it must be a name"),
        ({"name": "pytorch", "ratios": 5}, "software.ratios is 5; it must be the path"),
        ({"name": "pytorch", "bucket_cap_mb": 0}, "software.bucket_cap_mb is 0"),
        ({"name": "pytorch", "rules": {"attention": ["x"]}}, "software.rules.attention is .*; it must be a name"),
        (
            {"name": "megatron_core", "cuda_graph_scope": "attn"},
            "cuda_graph_scope is 'attn'; it must be a list",
        ),
        ({"name": "torchtitan", "fused": "no"}, "software.fused is 'no'"),
    ],
)
def test_what_a_program_does_not_have_is_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        stack_of(given)


def test_rules_by_hand_that_are_wrong_are_told_as_such(graph, machine):
    with pytest.raises(ConfigError, match=r"^software.rules.allocator is 'foo'; it must be one of"):
        on({"name": "pytorch", "rules": {"allocator": "foo"}}, Strategy(dp=8), graph, machine)


def test_unknown_programs_are_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="did you mean 'torchtitan'"):
        stack_of("torchtitn")


def test_a_program_says_what_it_sets_where_that_does_not_go_with_a_strategy(graph, machine):
    with pytest.raises(ConfigError, match=r"software=mlperf_images sets convolution_norms=forward"):
        on("mlperf_images", Strategy(dp=4, tp=2, precision="fp16_mixed"), graph, machine)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (Strategy(dp=8), "pytorch"),
        (Strategy(dp=8, shard=3), "pytorch"),
        (Strategy(dp=4, tp=2), "megatron_core"),
        (Strategy(dp=4, pp=2), "megatron_core"),
        (Strategy(dp=4, cp=2), "megatron_core"),
        (Strategy(dp=4, mp=2, placer="sip_ml"), "ideal"),
    ],
)
def test_a_job_that_names_no_program_takes_that_of_its_degrees(strategy, name, graph, machine):
    software = on(AUTO, strategy, graph, machine)[1]
    assert (software.name, software.was_chosen) == (name, True)


def test_what_no_program_runs_is_ideal(graph, machine):
    """Published times are not made longer, and no kernels are known that other parts launch."""
    constant = Program.of(AUTO, graph, cost="constant").on(Strategy(dp=8), machine)[1]
    tpu = dataclasses.replace(machine, accelerator="tpu_v4")
    assert constant.is_ideal
    assert on(AUTO, Strategy(dp=8), graph, tpu)[1].is_ideal
    with pytest.raises(ConfigError, match=r"which runs plans of strategy.placer=megatron"):
        on("pytorch", Strategy(dp=4, mp=2, placer="sip_ml"), graph, machine)


def test_images_split_by_tp_are_pytorchs_for_megatron_trains_none(machine):
    images = rostam.trace("resnet50")
    assert on(AUTO, Strategy(dp=4, tp=2), images, machine)[1].name == "pytorch"


def test_a_machines_own_host_stays(graph, machine):
    eager = dataclasses.replace(machine, host="eager")
    software = on("megatron_core", Strategy(dp=8), graph, machine)[1]
    assert software.on(machine).host == "transformer_engine"
    assert software.on(eager) is eager


def test_a_plan_keeps_its_program_on_other_machines_and_in_files(graph, machine, tmp_path):
    given = {"name": "megatron_core", "cuda_graph_scope": ["attn"], "rules": {"bucket_size": "40 MB"}}
    plan = rostam.place(graph, machine, global_batch=16, strategy=Strategy(dp=8), software=given)
    assert plan.software.settings == given
    assert plan.machine.host_graphs == ["attention"]
    plan.save(tmp_path / "plan.json")
    loaded = rostam.Plan.load(tmp_path / "plan.json")
    assert loaded.software == plan.software
    other = rostam.Machine(fabric=rostam.fabric("torus", dims=[2, 4]), accelerator="h100_80gb")
    assert loaded.on(other).machine.host == "transformer_engine"
    again = rostam.place(graph, machine, global_batch=16, strategy=plan.strategy, software=plan.software.settings)
    assert rostam.simulate(again).iteration_time_s == rostam.simulate(loaded).iteration_time_s


def test_rules_are_fields_of_what_they_are_said_of():
    from rostam_py.costs.calibrated import CalibratedCost

    assert set(PROGRAM_RULES) <= set(Strategy().settings())
    assert set(HOST_RULES) <= {entry.name for entry in dataclasses.fields(rostam.Machine)}
    assert set(KERNEL_RULES) <= {entry.name for entry in dataclasses.fields(CalibratedCost.Config)}
    assert len(set(RULES)) == len(RULES)


@pytest.mark.parametrize("name", list(STACKS))
def test_every_program_says_what_it_is_and_where_that_is_from(name):
    stack = STACKS.get(name)
    assert len(stack.SOURCES) > 20
    first = stack.__doc__.splitlines()[0]
    assert first.endswith(".")
    assert len(first) < 120
    for entry in dataclasses.fields(stack):
        owners = " ".join(one.__doc__ or "" for one in stack.__mro__)
        assert f"{entry.name}" in owners, f"{name}.{entry.name} is told nowhere"


def test_a_new_program_is_a_file_and_a_line(graph, machine, monkeypatch):
    """One of the test tree: nothing else knows its name."""
    monkeypatch.setitem(STACKS._targets, "mine", "tests_software_mine:Mine")
    import sys
    import types

    from rostam_py.software.stack import Stack

    @dataclasses.dataclass(kw_only=True)
    class Mine(Stack):
        """A program of the test tree."""

        sums: bool = True

        def strategy(self, job):
            return {"accumulation": "separate" if self.sums else "fused"}

    module = types.ModuleType("tests_software_mine")
    Mine.__module__ = module.__name__
    module.Mine = Mine
    monkeypatch.setitem(sys.modules, module.__name__, module)
    plan = rostam.place(graph, machine, global_batch=16, strategy=Strategy(dp=8), software="mine")
    assert (plan.software, plan.strategy.rules.accumulation) == (Software(name="mine"), "separate")
    assert plan.software.describe() == "mine"


@pytest.mark.parametrize(
    ("pp", "virtual_stages", "stage_blocks"),
    [(2, 1, "even"), (2, 7, "even_with_ends"), (4, 2, "balanced"), (1, 1, "balanced")],
)
def test_stages_are_even_where_the_blocks_allow_it(pp, virtual_stages, stage_blocks, graph, machine):
    """12 blocks: on 2 stages 6 each, in 14 chunks with the ends as one each, and not at all in 8 chunks."""
    strategy = Strategy(dp=8 // pp, pp=pp, virtual_stages=virtual_stages)
    found, _ = on("megatron_core", strategy, graph, machine)
    assert found.rules.stage_blocks == stage_blocks


def test_a_program_says_what_of_the_strategy_it_sets(graph, machine):
    _, software = on({"name": "torchtitan", "compile": True}, Strategy(dp=8), graph, machine)
    assert software.describe() == (
        "torchtitan 2025-06, compile=true; it sets optimizer=adam, precision=bf16_mixed, shard=3"
    )
    given = Strategy(dp=8, shard=3, precision="bf16_mixed", optimizer="adam")
    assert "it sets" not in on("torchtitan", given, graph, machine)[1].describe()


@pytest.mark.parametrize("name", [name for name in REAL if name != "mlperf_images"])
@pytest.mark.parametrize("model", ["dlrm", "resnet50"])
def test_programs_take_models_that_are_no_language(name, model, machine):
    other = rostam.trace(model)
    for strategy in (Strategy(dp=8), Strategy(dp=4, tp=2), Strategy(dp=4, pp=2)):
        plan = rostam.place(
            other, machine, global_batch=16, strategy=dataclasses.replace(strategy, check_memory=False), software=name
        )
        assert plan.strategy.rules.eager_loss == "torch"


def test_notes_tell_of_keys_that_a_person_set_alone(graph, machine):
    """DTensor is PyTorch's way to split over tp, of which there is none here: nobody asked for it."""
    plan = rostam.place(graph, machine, global_batch=16, strategy=Strategy(dp=8), software="pytorch")
    assert plan.strategy.rules.tp_style == "dtensor"
    assert not any("tp_style" in note for note in plan.notes)
    mine = Strategy.of(dp=8, tp_style="dtensor")
    plan = rostam.place(graph, machine, global_batch=16, strategy=mine, software="pytorch")
    assert any("tp_style" in note for note in plan.notes)


def test_jobs_of_a_mix_whose_hosts_would_differ_are_all_ideal(graph, machine):
    images = rostam.trace("resnet50")
    dense, split = Strategy(dp=4), Strategy(dp=2, tp=2)
    first = rostam.Job("a", graph, split, 8)
    alike = rostam.place_mix([first, rostam.Job("b", graph, split, 8)], machine, host_size=4)
    assert {plan.software.name for plan in alike} == {"megatron_core"}
    mixed = rostam.place_mix(
        [rostam.Job("a", graph, split, 8), rostam.Job("b", images, dense, 8)], machine, host_size=4
    )
    assert {plan.software.name for plan in mixed} == {"ideal"}


def test_a_programs_shards_count_before_a_model_is_traced(machine):
    from rostam_py.software.program import sharded_by

    assert sharded_by("torchtitan", Strategy(dp=8), machine).shard == 3
    assert sharded_by("megatron_bridge", Strategy(dp=8), machine).shard == 1
    assert sharded_by("auto", Strategy(dp=8), machine).shard == 0


def test_small_buckets_by_hand_have_no_larger_first_one(graph, machine):
    found, _ = on("pytorch", Strategy.of(dp=8, bucket_size="40 kB"), graph, machine)
    assert (found.rules.bucket_size, found.rules.first_bucket) == ("40 kB", None)


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ({"dp": 8}, r"overlap_moe_expert_parallel_comm.*strategy\.ep > 1"),
        ({"dp": 4, "ep": 4, "pp": 2}, r"overlap_moe_expert_parallel_comm.*strategy\.virtual_stages must be > 1"),
    ],
)
def test_rows_of_experts_are_overlapped_or_the_flag_is_refused(graph, machine, degrees, said):
    with pytest.raises(ConfigError, match=said):
        on({"name": "megatron_core", "overlap_moe_expert_parallel_comm": True}, Strategy(**degrees), graph, machine)
