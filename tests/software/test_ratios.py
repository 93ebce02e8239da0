"""Ratios of measured jobs: groups, quantiles, files, and what shipped ones foretell of rows that they do not hold."""

import json
import statistics

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.plan.software import Software
from rostam_py.software.ratios import Job, Ratios, expected_of
from rostam_py.validation.ratios import judge


def job(time, software="torchtitan", release="", accelerator="h100_80gb", has_experts=False, **more):
    return Job(
        table="t", row=f"{time}", source="s", software=software, release=release, accelerator=accelerator,
        has_experts=has_experts, time=time, **more,
    )  # fmt: skip


def ask(jobs, name="torchtitan", release="", accelerator="h100_80gb", has_experts=False):
    software = Software(name=name, release=release)
    return Ratios(tuple(jobs)).time_of(software, accelerator, has_experts=has_experts)


TIMES = [1.0, 1.1, 1.2, 1.3, 1.4]


def test_the_median_of_a_group_is_expected():
    found = ask([job(time) for time in TIMES])
    assert found.ratios.middle == 1.2
    assert found.num_jobs == 5
    assert found.of(10.0).middle == 12.0


def test_quantiles_are_ranks_of_one_more_job():
    # 19 jobs: a 20th lies below the 2nd, or above the 18th, in 2 of 20 places each.
    found = ask([job(1 + k / 100) for k in range(19)])
    assert found.ratios.low == pytest.approx(1.01)
    assert found.ratios.high == pytest.approx(1.17)


def test_few_jobs_take_the_spread_of_all_about_their_groups():
    many = [job(ratio, software="fsdp1") for ratio in [0.5] * 4 + [1.0] * 11 + [2.0] * 4]
    found = ask([*many, *(job(3.0 + k / 100) for k in range(5))])
    assert found.ratios.middle == pytest.approx(3.02)
    assert found.ratios.low < 2.0
    assert found.ratios.high > 5.0


def test_a_group_of_fewer_than_five_takes_a_wider_one():
    few = [job(2.0, release="new")] * 4
    same = [job(1.5, release="old")] * 5
    part = [job(1.2, software="fsdp1")] * 5
    rest = [job(1.1, software="fsdp1", accelerator="a100_80gb")] * 9
    experts = [job(3.0, has_experts=True)] * 3
    assert ask(few + same + part, release="new").whose == "torchtitan on h100_80gb, dense models"
    assert ask(few + part, release="new").whose == "any program on h100_80gb, dense models"
    assert ask(few + experts, release="new").whose == "any program on h100_80gb"
    found = ask(rest, release="new")
    assert (found.whose, found.ratios.middle) == ("any program on any accelerator", 1.1)


def test_programs_take_the_jobs_of_those_that_stand_for_them():
    jobs = [job(1.3, software="fsdp1")] * 3 + [job(1.1)] * 3 + [job(9.0, software="nemo")] * 9
    found = ask(jobs, name="pytorch")
    assert (found.num_jobs, found.ratios.middle) == (6, pytest.approx(1.2))


def test_nothing_is_expected_of_the_ideal_program_nor_by_its_jobs():
    assert ask([job(2.0)] * 9, name="ideal") is None
    assert ask([job(2.0, software="ideal")] * 9) is None
    assert ask([]) is None


def test_files_hold_what_was_saved_and_say_what_is_wrong(tmp_path):
    ratios = Ratios((job(1.25, memory=1.5, mfu=0.4, peak="bf16"), job(1.5, has_experts=True)))
    ratios.save(tmp_path / "mine.json")
    assert Ratios.load(tmp_path / "mine.json") == ratios
    document = json.loads((tmp_path / "mine.json").read_text())
    del document["jobs"][0]["source"]
    (tmp_path / "mine.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"mine.json.*source"):
        Ratios.load(tmp_path / "mine.json")


def test_a_run_takes_the_file_of_its_software(tmp_path):
    Ratios((job(2.0, software="pytorch"),) * 9).save(tmp_path / "mine.json")
    fabric = rostam.fabric("electrical_flat", num_accelerators=2)
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    given = {"name": "pytorch", "ratios": str(tmp_path / "mine.json")}
    plan = rostam.place(
        rostam.trace("gpt_125m"), machine, global_batch=2, strategy=rostam.Strategy(dp=2), software=given
    )
    result = rostam.simulate(plan)
    assert result.expected_iteration_s.middle == 2 * result.iteration_time_s
    assert result.to_dict()["expected"]["jobs"] == 9
    assert "9 measured jobs (pytorch or torchtitan or fsdp1 on h100_80gb" in result.expected.describe()


def test_the_highest_measured_mfu_is_of_a_part_and_a_precision():
    ratios = Ratios((job(1.0, mfu=0.4, peak="bf16"), job(1.0, mfu=0.5, peak="fp8"), job(1.0)))
    assert ratios.highest_mfu("h100_80gb", "bf16") == 0.4
    assert ratios.highest_mfu("a100_80gb", "bf16") is None


SHIPPED = [one for one in Ratios.shipped().jobs if one.time is not None]
PROGRAMS = [one for one in SHIPPED if one.software != "ideal"]


def test_shipped_jobs_are_told_apart():
    assert len({(one.table, one.row) for one in SHIPPED}) == len(SHIPPED) > 290
    assert all(0.3 < one.time < 3 for one in SHIPPED)
    assert all(0.01 < one.mfu < 0.9 for one in SHIPPED)
    assert len({one.source for one in SHIPPED}) > 8


def test_ranges_hold_their_share_of_rows_that_they_do_not_know():
    """Nominal 80%: three quarters to nine tenths of rows, without their own; 70% without their whole source."""
    row, source = judge(PROGRAMS, "row"), judge(PROGRAMS, "source")
    assert 0.75 <= row.coverage <= 0.90
    assert source.coverage >= 0.70


def test_ratios_halve_errors_and_take_the_sign_out():
    simulated, row, source = judge(PROGRAMS), judge(PROGRAMS, "row"), judge(PROGRAMS, "source")
    assert row.mean < 0.7 * simulated.mean
    assert source.mean < simulated.mean
    assert abs(row.signed) < 2
    assert simulated.mean == pytest.approx(statistics.fmean(abs(100 * (1 / one.time - 1)) for one in PROGRAMS))


def test_a_plan_of_no_program_expects_nothing():
    fabric = rostam.fabric("electrical_flat", num_accelerators=2)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(
        rostam.trace("gpt_125m"), machine, global_batch=2, strategy=rostam.Strategy(dp=2), software="ideal"
    )
    assert expected_of(plan) is None
    assert rostam.simulate(plan).to_dict()["is_upper_bound"] is True


def test_few_jobs_of_ones_own_have_the_spread_of_published_ones():
    found = ask([job(1.25)])
    assert found.num_jobs == 1
    assert found.ratios.low < 1.2
    assert found.ratios.high > 1.3
    assert found.describe().startswith("1 measured job (")


def test_files_without_times_and_times_of_nothing_are_refused(tmp_path):
    Ratios((job(None, memory=1.1),)).save(tmp_path / "empty.json")
    fabric = rostam.fabric("electrical_flat", num_accelerators=2)
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    graph, strategy = rostam.trace("gpt_125m"), rostam.Strategy(dp=2)
    given = {"name": "pytorch", "ratios": str(tmp_path / "empty.json")}
    with pytest.raises(ConfigError, match="holds no job with a measured time"):
        rostam.place(graph, machine, global_batch=2, strategy=strategy, software=given)
    Ratios((job(1.0),)).save(tmp_path / "zero.json")
    text = (tmp_path / "zero.json").read_text().replace('"time":1.0', '"time":0.0')
    (tmp_path / "zero.json").write_text(text)
    with pytest.raises(ConfigError, match="it must be > 0"):
        Ratios.load(tmp_path / "zero.json")


def test_times_of_other_cost_models_are_not_expected_by_those_of_calibrated_ones():
    fabric = rostam.fabric("electrical_flat", num_accelerators=2)
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    graph, strategy = rostam.trace("gpt_125m"), rostam.Strategy(dp=2)
    how = {"global_batch": 2, "strategy": strategy, "software": "pytorch"}
    assert expected_of(rostam.place(graph, machine, **how)) is not None
    other = rostam.place(graph, machine, cost="roofline", **how)
    assert expected_of(other) is None
    assert expected_of(other, "memory") is not None
