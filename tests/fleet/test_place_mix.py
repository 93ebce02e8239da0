"""Which accelerators jobs of a mix get, drawn mixes, and placements made once."""

import importlib

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError, UnitError
from rostam_py.fleet import Job, draw_jobs, place_mix
from rostam_py.fleet.allocation import allocate


def machine(num_accelerators=32, **failed):
    fabric = rostam.fabric("fat_tree", num_accelerators=num_accelerators, radix=8, server_size=4)
    return rostam.Machine(fabric=fabric.with_failures(**failed) if failed else fabric)


def job(gpt, name, dp=2, tp=2, **options):
    return Job(name, gpt, rostam.Strategy(dp=dp, tp=tp, precision="bf16_mixed"), 8, **options)


def given(jobs, on=None, allocation="linear", host_size=4, seed=0):
    return allocate(jobs, on or machine(), allocation=allocation, host_size=host_size, seed=seed)


def test_linear_hands_out_whole_hosts_by_number(gpt):
    # Hosts of 4: the second job takes hosts 1 and 2 and half of the latter, which the third leaves alone.
    jobs = [job(gpt, "a"), job(gpt, "b", dp=3), job(gpt, "c", dp=1)]
    assert given(jobs) == [(0, 1, 2, 3), (4, 5, 6, 7, 8, 9), (12, 13)]


def test_hosts_with_failed_accelerators_or_named_ones_are_left_out(gpt):
    # Accelerator 1 has failed; job b names 9: hosts 0 and 2 are out.
    jobs = [job(gpt, "a", dp=4), job(gpt, "b", dp=1, tp=1, accelerators=(9,))]
    assert given(jobs, machine(accelerators=[1])) == [(4, 5, 6, 7, 12, 13, 14, 15), (9,)]


@pytest.mark.parametrize("seed", range(5))
def test_random_takes_whole_disjoint_hosts_and_repeats_by_seed(gpt, seed):
    jobs = [job(gpt, f"j{k}", dp=k + 2) for k in range(4)]  # 4, 6, 8 and 10 accelerators: 1 + 2 + 2 + 3 of 8 hosts
    found = given(jobs, allocation="random", seed=seed)
    hosts = [set(np.array(ids) // 4) for ids in found]
    assert [len(h) for h in hosts] == [1, 2, 2, 3]
    assert len(set().union(*hosts)) == 8
    for ids in found:
        # Filled host by host, from each one's first accelerator.
        assert [a % 4 for a in ids] == [k % 4 for k in range(len(ids))]
    assert given(jobs, allocation="random", seed=seed) == found
    # Jobs of a smaller mix of the seed stay where they are.
    assert given(jobs[:2], allocation="random", seed=seed) == found[:2]


def test_random_differs_between_seeds_and_reaches_every_host(gpt):
    found = [given([job(gpt, "a")], allocation="random", seed=seed)[0] for seed in range(60)]
    assert {ids[0] // 4 for ids in found} == set(range(8))


def test_a_strategys_own_accelerators_and_mapping_are_kept(gpt):
    strategies = [
        rostam.Strategy(dp=2, tp=2, accelerators=[3, 2, 1, 0], precision="bf16_mixed"),
        rostam.Strategy(dp=2, tp=2, mapping=[8, 12, 9, 13], precision="bf16_mixed"),
    ]
    jobs = [Job(f"j{k}", gpt, strategy, 8) for k, strategy in enumerate(strategies)]
    first, second = place_mix(jobs, machine(), host_size=4, software="ideal")
    assert first.accelerators.reshape(-1).tolist() == [3, 2, 1, 0]
    assert second.accelerators.reshape(-1).tolist() == [8, 12, 9, 13]


def test_jobs_alike_are_placed_once_and_equal_plans_placed_by_themselves(gpt, monkeypatch):
    module = importlib.import_module("rostam_py.fleet.place_mix")
    made = []

    def counted(*arguments, **options):
        made.append(1)
        return rostam.place(*arguments, **options)

    monkeypatch.setattr(module, "place", counted)
    where = machine()
    jobs = [
        job(gpt, "a"),
        job(gpt, "b", start_s=1.0),
        job(gpt, "c", accelerators=(20, 22, 21, 23)),
        job(gpt, "d", tp=1),
    ]
    placed = {}
    plans = place_mix(jobs, where, host_size=4, placed=placed, software="ideal")
    assert len(made) == 2
    for one, plan in zip(jobs, plans, strict=True):
        ids = plan.accelerators.reshape(-1).tolist()
        strategy = rostam.Strategy(dp=2, tp=one.strategy.tp, precision="bf16_mixed", accelerators=ids)
        own = rostam.place(gpt, where, global_batch=8, strategy=strategy, software="ideal")
        assert plan.stages == own.stages
        assert plan.strategy == own.strategy
        assert plan.accelerators.tolist() == own.accelerators.tolist()
        assert plan.traffic_matrix.tolist() == own.traffic_matrix.tolist()
    # The mapping serves later calls, on other accelerators of any machine with the same devices.
    moved = place_mix(jobs[:2], machine(64), host_size=4, allocation="random", seed=1, placed=placed, software="ideal")
    assert len(made) == 2
    assert moved[0].machine.num_accelerators == 64
    # Another batch or cost setting is another placement.
    place_mix(
        [job(gpt, "a")], where, host_size=4, placed=placed, cost_config={"min_kernel_time": "2 us"}, software="ideal"
    )
    assert len(made) == 3


@pytest.mark.parametrize(
    ("jobs", "options", "error", "message"),
    [
        (
            [("a", {})],
            {"allocation": "best"},
            ConfigError,
            "mix.allocation is 'best'; it must be one of: arcs, blocks, leaves, linear, random",
        ),
        ([("a", {})], {"host_size": 0}, ConfigError, "mix.host_size is 0; it must be an integer from 1 to .* 32"),
        ([("a", {})], {"seed": -1}, ConfigError, "mix.seed is -1; it must be an integer from 0 to"),
        ([("a", {})], {"host_size": 64}, ConfigError, "mix.host_size is 64"),
        ([("a", {"accelerators": (0, 1.5, 2, 3)})], {}, ConfigError, r"jobs.a.accelerators\[1\] is 1.5"),
        ([], {}, ConfigError, "jobs is empty"),
        ([("a", {}), ("a", {})], {}, ConfigError, "jobs names 'a' more than once"),
        (
            [("a", {"dp": 8}), ("b", {"dp": 9})],
            {"host_size": 4},
            DegreeError,
            r"jobs ask for 9 hosts of mix.host_size = 4 accelerators \(a: 16, b: 18\), but 8 whole hosts",
        ),
        (
            [("a", {"accelerators": (0, 1, 2, 3)}), ("b", {"accelerators": (3, 4, 5, 6)})],
            {},
            DegreeError,
            "jobs.a.accelerators and jobs.b.accelerators both name 3; give each job its own",
        ),
        ([("a", {"accelerators": (0, 1, 2, 32)})], {}, ConfigError, "jobs.a.accelerators names 32; .* 0 to 31"),
    ],
)
def test_bad_mixes_name_the_key(gpt, jobs, options, error, message):
    with pytest.raises(error, match=message):
        place_mix([job(gpt, name, **settings) for name, settings in jobs], machine(), **options, software="ideal")


def test_bad_jobs_name_the_key(gpt):
    with pytest.raises(DegreeError, match=r"jobs.a.accelerators has 2 entries, but dp 2 x tp 2 x pp 1 has 4 ranks"):
        job(gpt, "a", accelerators=(0, 1))
    with pytest.raises(UnitError, match=r"jobs.a.start_s is '3', a number without a unit"):
        job(gpt, "a", start_s="3")
    with pytest.raises(ConfigError, match=r"jobs.a.accelerators and the accelerators or mapping list of its strategy"):
        Job("a", gpt, rostam.Strategy(dp=2, accelerators=[0, 1]), 8, accelerators=(0, 1))
    assert job(gpt, "a", start_s="2 ms").start_s == 2e-3


def test_mixes_of_a_seed_grow_by_adding_jobs_and_start_inside_the_window(gpt):
    templates = [job(gpt, "small"), job(gpt, "large", dp=4)]
    five = draw_jobs(templates, 5, seed=3, arrival_window_s="10 s")
    assert draw_jobs(templates, 2, seed=3, arrival_window_s=10.0) == five[:2]
    assert [one.name.split("_")[1] for one in five] == ["0", "1", "2", "3", "4"]
    assert all(0 <= one.start_s < 10 for one in five)
    assert draw_jobs(templates, 5, seed=4, arrival_window_s=10.0) != five
    assert {one.start_s for one in draw_jobs(templates, 5, seed=3)} == {0.0}


def test_templates_and_starts_are_drawn_uniformly(gpt):
    # 2,000 draws of two templates: 1,000 +- 22 each; starts average 5 s +- 0.065 (10 / sqrt(12 x 2,000)).
    templates = [job(gpt, "small"), job(gpt, "large", dp=4)]
    jobs = draw_jobs(templates, 2_000, seed=0, arrival_window_s=10.0)
    assert abs(sum(one.name.startswith("small") for one in jobs) - 1_000) < 5 * 22
    assert abs(np.mean([one.start_s for one in jobs]) - 5) < 5 * 0.065


def test_drawn_mixes_fit_the_machine_if_its_size_is_given(gpt):
    templates = [job(gpt, "small"), job(gpt, "large", dp=8)]  # 4 and 16
    for seed in range(20):
        jobs = draw_jobs(templates, 5, seed=seed, num_accelerators=32)
        assert sum(one.num_accelerators for one in jobs) <= 32
    with pytest.raises(
        ConfigError, match=r"mix.num_jobs is 9, but even .* takes 4 of the machine's 32 .* at most 8 jobs"
    ):
        draw_jobs(templates[:1], 9, num_accelerators=32)


@pytest.mark.parametrize(
    ("templates", "num_jobs", "message"),
    [
        ([], 1, "jobs is empty; a mix is drawn from at least one job"),
        ([{}], 0, "mix.num_jobs is 0; it must be an integer >= 1"),
        ([{"accelerators": (0, 1, 2, 3)}], 1, "jobs.t names accelerators; a job that mixes are drawn from"),
    ],
)
def test_bad_draws_name_the_key(gpt, templates, num_jobs, message):
    with pytest.raises(ConfigError, match=message):
        draw_jobs([job(gpt, "t", **options) for options in templates], num_jobs)


def test_programs_that_read_servers_and_list_their_graphs_are_placed_for_each_job(gpt):
    """Overlapped tp depends on what a server holds, which the strategy alone does not say; graphs are a list."""
    given = {"name": "megatron_core", "tp_comm_overlap": True, "cuda_graph_scope": ["attn"]}
    strategy = rostam.Strategy(dp=2, tp=2, sequence_parallel=True, precision="bf16_mixed")
    where = rostam.machine("dgx_h100", servers=1)
    jobs = [Job(name, gpt, strategy, 8) for name in "ab"]
    for plan in place_mix(jobs, where, host_size=4, software=given):
        own = rostam.place(gpt, where, global_batch=8, strategy=plan.strategy, software=given)
        assert plan.stages == own.stages
        assert plan.strategy.rules.tp_overlap
