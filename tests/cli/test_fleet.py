"""``rostam fleet``: a table of policies, a document and days; what does not go together is said."""

import csv
import json

import pytest

from rostam_py.cli.main import main

JOB = ["model=gpt_125m", "fabric=cluster_64", "strategy.tp=8", "global_batch=64", "strategy.micro_batch=1"]


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
    found = json.loads((out / "fleet.json").read_text())
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
    assert "policy rejoin is left out: fleet.policies holds 'rejoin', for which every replica must have all" in said
    assert main(["fleet", *job, "fleet.policies=[rejoin]"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fleet.policies=[hope]"], "fleet.policies holds 'hope'; they may be: rejoin, shrink, spares, wait"),
        (["fleet.mtbf=0 s"], "fleet.mtbf is '0 s'; it must be a time > 0"),
        (["fleet.spares=-1"], "fleet.spares is -1; it must be an integer >= 0"),
        (["fleet.restart=5"], "fleet.restart is 5, a number without a unit"),
        (["fleet.faults=nothing.csv"], "fleet.faults is 'nothing.csv'; the file cannot be read"),
        (["fleet.servers=8", "fleet.spares=1"], "fleet.servers is 8, but the job has 8 and fleet.spares is 1"),
        (["fleet.accelerators_per_server=5"], "fleet.accelerators_per_server is 5, but the job has 8 replicas of 8"),
    ],
)
def test_bad_input_names_key_value_and_what_is_allowed(arguments, said, tmp_path, capsys):
    assert main(["fleet", *JOB, *arguments, f"out={tmp_path / 'out'}"]) == 2
    assert said in capsys.readouterr().err
