"""``rostam fleet``: a table of policies, a document and days; what does not go together is said."""

import csv
import json
import math

import pytest

from rostam_py.cli.main import main

JOB = [
    "model=gpt_125m",
    "fabric=cluster_64",
    "strategy.tp=8",
    "global_batch=64",
    "strategy.micro_batch=1",
    "report=false",
]


@pytest.fixture
def faults(tmp_path):
    path = tmp_path / "faults.csv"
    path.write_text("start_days,end_days,server\n1,2.5,3\n2,2.2,0\n4,5,7\n")
    return f"fleet.faults={path}"


def test_policies_are_compared_by_causes_that_sum_to_the_window(tmp_path, faults, capsys):
    out = tmp_path / "out"
    assert main(["fleet", *JOB, faults, "fleet.servers=9", "fleet.spares=1", "fleet.days=8", f"out={out}"]) == 0
    text = capsys.readouterr().out
    assert "gpt_125m for 8.0 days on 8 servers" in text
    found = json.loads((out / "result.json").read_text())
    assert list(found["policies"]) == ["wait", "spares", "shrink", "rejoin"]
    for one in found["policies"].values():
        assert sum(one["seconds"].values()) == pytest.approx(8 * 86_400)
        assert one["goodput"] == pytest.approx(one["seconds"]["useful"] / (8 * 86_400))
    waits = {name: one["seconds"]["waiting"] for name, one in found["policies"].items()}
    assert waits["wait"] == pytest.approx((1.5 + 1) * 86_400, rel=0.01)  # the second fault lies in the first one's
    assert waits["shrink"] == waits["rejoin"] == 0
    assert 0 < waits["spares"] == pytest.approx(0.2 * 86_400, rel=0.01)
    rows = list(csv.DictReader((out / "days.csv").open()))
    assert len(rows) == 4 * 8
    assert sum(float(row["useful_s"]) for row in rows if row["policy"] == "shrink") == pytest.approx(
        found["policies"]["shrink"]["seconds"]["useful"]
    )


def test_equal_seeds_give_equal_bytes(tmp_path, capsys):
    texts = []
    for name in ("a", "b"):
        arguments = ["fleet", *JOB, "fleet.mtbf=20 d", "fleet.policies=[spares]", "--json", f"out={tmp_path / name}"]
        assert main(arguments) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["faults"]["num_faults"] > 3


def test_without_faults_all_of_an_hour_but_checkpoints_is_useful(tmp_path, capsys, recwarn):
    job = [*JOB, "fleet.days=0.04", "fleet.mtbf=100000 d", "fleet.policies=[spares]", f"out={tmp_path / 'out'}"]
    assert main(["fleet", *job]) == 0
    text = capsys.readouterr().out
    assert "gpt_125m for 57.6 min on 8 servers" in text
    assert "faults: 0 on 8 servers, 0.00 for 1,000 server-days; 0.00% of their time is lost" in text
    assert not [one for one in recwarn if issubclass(one.category, RuntimeWarning)]


def test_rejoining_with_shared_state_is_left_out_and_said(tmp_path, faults, capsys):
    job = [*JOB, "strategy.shard=1", faults, "fleet.servers=8", f"out={tmp_path / 'out'}"]
    assert main(["fleet", *job]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "left out: rejoin: policy rejoin needs every replica to have all of the state; strategy.shard is 1" in said
    assert main(["fleet", *job, "fleet.policies=[rejoin]"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fleet.policies=[hope]"], "fleet.policies holds 'hope'; they may be: ragged, rejoin, shrink, spares, wait"),
        (["fleet.mtbf=0 s"], "fleet.mtbf is '0 s'; it must be a time > 0"),
        (["fleet.spares=-1"], "fleet.spares is -1; it must be an integer >= 0"),
        (["fleet.mtbf=null"], "fleet.mtbf is null; it must be a time, such as the default, '153.8 d'"),
        (["fleet.restart=null"], "fleet.restart is null; it must be a time, such as the default, '10 min'"),
        (["fleet.restart=5"], "fleet.restart is 5, a number without a unit"),
        (["fleet.faults=nothing.csv"], "fleet.faults is 'nothing.csv'; the file cannot be read"),
        (["fleet.servers=8", "fleet.spares=1"], "fleet.servers is 8, but the job has 8 and fleet.spares is 1"),
    ],
)
def test_bad_input_names_key_value_and_what_is_allowed(arguments, said, tmp_path, capsys):
    assert main(["fleet", *JOB, *arguments, f"out={tmp_path / 'out'}"]) == 2
    assert said in capsys.readouterr().err


def weeks(tmp_path, *arguments):
    """Return what a run of ``rostam fleet`` writes."""
    assert main(["fleet", *arguments, f"out={tmp_path / 'out'}"]) == 0
    return json.loads((tmp_path / "out" / "result.json").read_text())


def test_the_time_between_checkpoints_is_dalys_and_does_not_follow_the_draw(tmp_path):
    def between_s(*arguments):
        found = weeks(tmp_path, *JOB, "fleet.policies=[spares]", "fleet.checkpoint=60 s", *arguments)
        return found["checkpoint_iterations"] * found["iteration_s"]

    wanted_s = math.sqrt(2 * 60 * 40 * 86_400 / 8) - 60
    for spares, seed in ((0, 0), (5, 1), (40, 2)):
        given = ("fleet.mtbf=40 d", f"fleet.spares={spares}", f"fleet.seed={seed}")
        assert between_s(*given) == pytest.approx(wanted_s, rel=1e-3)
    assert between_s("fleet.mtbf=100000000 d", "fleet.days=2") == pytest.approx(2 * 86_400, rel=1e-3)  # the window


def test_faults_behind_the_window_and_those_that_cut_nothing_do_not_count(tmp_path):
    path = tmp_path / "long.csv"
    rows = [f"{day},{day + 0.1},{day % 8},{str(day % 2 == 0).lower()}" for day in range(1, 300, 3)]
    path.write_text("start_days,end_days,server,cuts\n" + "\n".join(rows) + "\n")
    found = weeks(
        tmp_path, *JOB, f"fleet.faults={path}", "fleet.days=30", "fleet.policies=[wait]", "fleet.checkpoint=9 s"
    )
    assert found["faults"]["num_faults"] == 10  # days 1 to 28
    assert found["policies"]["wait"]["num_cuts"] == 5
    of_server_s = (8 * 30 - 10 * 0.1) * 86_400 / 5
    between_s = found["checkpoint_iterations"] * found["iteration_s"]
    assert between_s == pytest.approx(math.sqrt(2 * 9 * of_server_s / 8) - 9, rel=1e-3)


def test_a_server_with_ranks_of_all_replicas_breaks_them_all(tmp_path, faults, capsys):
    """Ranks in the order dp, tp: each server of 8 holds one tp rank of every replica."""
    shared = [*JOB, "strategy.rank_order=[dp,tp,pp]", faults, "fleet.servers=8", "fleet.days=8"]
    found = weeks(tmp_path, *shared)
    assert found["units"] == [list(range(8))]
    assert "a fault breaks all replicas at once" in capsys.readouterr().out
    shares = {name: one["seconds"] for name, one in found["policies"].items()}
    assert shares["rejoin"]["waiting"] == pytest.approx(shares["wait"]["waiting"], abs=120)
    assert shares["rejoin"]["waiting"] > 2 * 86_400
    assert shares["rejoin"]["slower"] == 0


def test_keys_that_nothing_reads_are_noted(tmp_path, faults, capsys):
    weeks(tmp_path, *JOB, faults, "fleet.mtbf=3 d", "fleet.seed=3", "fleet.policies=[wait]", "fleet.batch=keep")
    said = " ".join(capsys.readouterr().err.split())
    for key in ("mtbf is '3 d'", "seed is 3", "batch is 'keep'"):
        assert f"fleet.{key}, which has no effect" in said
    weeks(tmp_path, *JOB, "fleet.memoryless=true", "fleet.policies=[wait]")
    assert "fleet.memoryless is true, which has no effect: it needs fleet.faults" in capsys.readouterr().err
    assert main(["fleet", *JOB, "outages.repair=3 s"]) == 2


def test_the_wall_time_to_a_target_is_that_of_the_iterations_over_goodput(tmp_path, faults, capsys):
    job = [*JOB, faults, "fleet.servers=8", "fleet.days=8", "target=10 G tokens", "accelerator_usd_per_hour=2"]
    found = weeks(tmp_path, *job)
    iterations = 10e9 / (64 * 2048)
    for one in found["policies"].values():
        whole_s = iterations * found["iteration_s"]
        assert one["time_to_target_s"] == pytest.approx(whole_s / one["goodput"], rel=2e-3)
    assert "target" in capsys.readouterr().out


def test_spares_cost_until_the_target_as_the_job_s_servers_do(tmp_path, faults, capsys):
    job = [*JOB, faults, "fleet.servers=9", "fleet.spares=1", "fleet.days=8", "fleet.policies=[spares]"]
    found = weeks(tmp_path, *job, "target=10 G tokens", "accelerator_usd_per_hour=2")
    hours = found["policies"]["spares"]["time_to_target_s"] / 3600
    assert f"{hours * (64 + 8) * 2:,.0f} USD" in capsys.readouterr().out


def test_the_iteration_is_what_measured_jobs_let_expect(tmp_path, faults, capsys):
    fast = weeks(tmp_path, *JOB, faults, "fleet.policies=[wait]", "software=ideal")
    assert fast["iteration_s"] == fast["simulated_iteration_s"]
    assert "an upper bound of speed" in capsys.readouterr().out
    slow = weeks(tmp_path, *JOB, faults, "fleet.policies=[shrink]", "software=pytorch", "accelerator=h100_80gb")
    assert slow["iteration_s"] > slow["simulated_iteration_s"]
    assert "as measured jobs let expect" in capsys.readouterr().out


def test_more_faults_than_can_be_replayed_are_refused(tmp_path, capsys):
    assert main(["fleet", *JOB, "fleet.days=1e9", f"out={tmp_path / 'out'}"]) == 2
    assert "faults would be drawn, of 8 servers in 1,000,000,000 days; at most 5,000,000 are" in capsys.readouterr().err


def test_json_states_what_the_weeks_cost(tmp_path, faults, capsys):
    job = ["model=gpt_125m", "machine=dgx_h100", "machine.servers=4", "global_batch=64", "strategy.micro_batch=1"]
    job += ["report=false", faults, "fleet.servers=8", "fleet.spares=1", "fleet.days=8", "fleet.policies=[wait,spares]"]
    assert main(["fleet", *job, "target=1 T tokens", "accelerator_usd_per_hour=2", "--json", f"out={tmp_path}"]) == 0
    found = json.loads(capsys.readouterr().out)
    watts = found["watts_per_accelerator"]
    assert found["num_accelerators"] == 40
    for one in found["policies"].values():
        assert one["cost"]["accelerator_hours"] == pytest.approx(40 * 8 * 24)
        assert one["cost"]["usd"] == pytest.approx(40 * 8 * 24 * 2)
        assert one["cost"]["energy_kwh"] == pytest.approx(40 * 8 * 24 * watts / 1e3)
        assert one["cost_to_target"]["usd"] == pytest.approx(one["time_to_target_s"] / 3_600 * 40 * 2)
    assert 700 < watts < 2_000  # an H100 and its share of a server and the network, at most


def test_break_even_is_written_and_may_be_left_out(tmp_path, capsys):
    found = weeks(tmp_path, *JOB, "fleet.mtbf=20 d", "fleet.policies=[spares]")
    rows = list(csv.DictReader((tmp_path / "out" / "break_even.csv").open()))
    assert len(rows) == len(found["break_even"]["points"])
    assert found["break_even"]["num_traces"] == 5
    assert sum(row["is_least_cost"] == "True" for row in rows) == 2
    assert weeks(tmp_path, *JOB, "fleet.policies=[spares]", "fleet.break_even=false")["break_even"] is None
    assert not (tmp_path / "out" / "break_even.csv").exists()


def test_recorded_faults_have_no_spares_beyond_their_servers(tmp_path, faults):
    found = weeks(tmp_path, *JOB, faults, "fleet.servers=9", "fleet.policies=[spares]")["break_even"]
    assert (found["num_traces"], found["is_drawn"]) == (1, False)
    assert max(row["num_spares"] for row in found["points"]) == 1


def test_weeks_are_drawn_as_a_report(tmp_path, faults):
    assert main(["fleet", *JOB[:-1], faults, "fleet.servers=9", "fleet.days=8", f"out={tmp_path / 'out'}"]) == 0
    assert "Where the time goes: shrink" in (tmp_path / "out" / "report.html").read_text()
    assert main(["report", str(tmp_path / "out"), f"out={tmp_path / 'again.html'}"]) == 0


def test_ragged_replicas_go_on_with_a_share_of_whole_micro_batches(tmp_path, capsys):
    """Two replicas of 4 servers: 3 of 4 servers do 3 of 4 micro-batches, or 12 of 16."""
    path = tmp_path / "faults.csv"
    path.write_text("start_days,end_days,server\n1,3,0\n")
    job = ["model=gpt_125m", "fabric=cluster_64", "strategy.tp=8", "strategy.pp=4", "strategy.rank_order=[tp,pp,dp]"]
    job += ["strategy.micro_batch=1", "global_batch=8", "report=false", f"fleet.faults={path}", "fleet.servers=8"]
    job += ["fleet.days=4", "fleet.policies=[ragged,shrink]", "fleet.checkpoint_every=1 h"]
    found = weeks(tmp_path, *job)
    assert found["parts"] == {"1": 0.25, "2": 0.5, "3": 0.75}
    assert found["reshard_s"] == found["restart_s"]
    ragged, shrink = (found["policies"][name]["seconds"] for name in ("ragged", "shrink"))
    # Two days with a share of (1 + 0.75) / 2 of the batch, from the first fault until a checkpoint behind the repair.
    assert ragged["slower"] == pytest.approx(2 * 86_400 * 0.125, rel=0.02)
    assert shrink["slower"] > 2 * ragged["slower"]
    assert weeks(tmp_path, *job, "fleet.reshard=1 min")["reshard_s"] == 60
    capsys.readouterr()
    weeks(tmp_path, *JOB, "fleet.policies=[wait]", "fleet.reshard=3 min")
    assert "fleet.reshard is '3 min', which has no effect: it needs fleet.policies to hold ragged" in (
        " ".join(capsys.readouterr().err.split())
    )


def test_asynchronous_checkpoints_are_written_beside_training(tmp_path, capsys):
    job = [*JOB, "fleet.mtbf=20 d", "fleet.policies=[spares]", "fleet.spares=2", "fleet.checkpoint=1 s"]
    found = weeks(tmp_path, *job, "fleet.asynchronous=true", "fleet.storage_bandwidth=1 GB/s")
    writing = found["writing"]
    assert writing["basis"] == "simulated"
    assert 12 * 163e6 < writing["num_bytes"] < 16 * 163e6  # fp32 weights and two moments; the head is not tied
    each = math.floor(1e9 / 64 * found["simulated_iteration_s"])
    assert writing["iterations"] == pytest.approx(writing["num_bytes"] / 64 / each, abs=1)
    assert 1 <= writing["stretch"] < 1.2
    cost_s = 1 + writing["iterations"] * found["iteration_s"] * (writing["stretch"] - 1)
    wanted_s = math.sqrt(2 * max(cost_s, 1) * 20 * 86_400 / 8) - max(cost_s, 1)
    assert found["checkpoint_iterations"] * found["iteration_s"] == pytest.approx(wanted_s, rel=1e-2)
    said = " ".join(capsys.readouterr().out.split())
    assert f"is written in {writing['iterations']} iterations" in said
    assert main(["fleet", *job, "fleet.asynchronous=true", f"out={tmp_path / 'out'}"]) == 2
    assert "fleet.storage_bandwidth is null; it must be what storage takes" in " ".join(capsys.readouterr().err.split())
    slow = ["fleet.asynchronous=true", "fleet.storage_bandwidth=1 MB/s", "fleet.checkpoint_every=1 min"]
    assert main(["fleet", *job, *slow, f"out={tmp_path / 'out'}"]) == 2
    assert "fleet.checkpoint_every is '1 min', but a checkpoint of" in " ".join(capsys.readouterr().err.split())
    weeks(tmp_path, *job, "fleet.storage_bandwidth=1 GB/s")
    said = " ".join(capsys.readouterr().err.split())
    assert "fleet.storage_bandwidth is '1 GB/s', which has no effect: it needs fleet.asynchronous=true" in said


def test_traces_too_long_for_curves_are_noted(tmp_path, capsys, monkeypatch):
    from rostam_py.spec import build_break_even

    monkeypatch.setattr(build_break_even, "_MOST", 2)
    assert weeks(tmp_path, *JOB, "fleet.mtbf=20 d", "fleet.policies=[spares]")["break_even"] is None
    assert "no break-even curves: a trace of" in " ".join(capsys.readouterr().err.split())
