"""software= on the command line: flags, rules by hand, errors that name the program which has a flag, listing."""

import json

import pytest

from rostam_py.cli.main import main

RUN = ["run", "model=gpt_125m", "fabric=flat_64", "num_accelerators=8", "accelerator=h100_80gb", "global_batch=16"]


def run(words, capsys, tmp_path):
    assert main([*RUN, *words, f"out={tmp_path}", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_flags_and_rules_by_hand(tmp_path, capsys):
    words = ["software=torchtitan", "software.compile=true", "software.rules.allocator=exact", "strategy.shard=3"]
    found = run(words, capsys, tmp_path)
    assert found["software"] == {
        "name": "torchtitan", "release": "2025-06", "compile": True, "rules": {"allocator": "exact"},
    }  # fmt: skip
    assert found["expected"]["iteration_time_s"] > 0
    most = found["highest_measured_mfu"]
    assert found["is_upper_bound"] == (most is None or found["mfu"] > most)
    assert found["expected_memory_bytes"]["high"] > found["memory_bytes"]


def test_who_names_none_is_told_which_and_what_to_expect(tmp_path, capsys):
    assert main([*RUN, f"out={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert "pytorch (none was named)" in said
    assert "expected" in said
    assert main([*RUN, "software=ideal", f"out={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert "ideal, an upper bound" in said
    assert "expected" not in said


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["software=torchtitn"], ["did you mean 'torchtitan'"]),
        (["software=pytorch", "software.release=2024-12"], ["it is a setting of", "software=torchtitan"]),
        (["software.compile=true"], ["it is a setting of", "software=pytorch", "software=torchtitan"]),
        (["software=torchtitan", "software.use_distributed_optimizer=true"], ["software=megatron_core"]),
        (["software=torchtitan", "software.rules.alocator=exact"], ["software.rules.alocator is not a rule"]),
        (["software=torchtitan", "strategy.placer=sip_ml", "strategy.mp=2"], ["set software=ideal"]),
    ],
)
def test_errors_say_what_to_do(words, parts, tmp_path, capsys):
    assert main([*RUN, *words, f"out={tmp_path}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert all(part in said for part in parts), said


def test_programs_are_listed_with_flags_jobs_and_rules(capsys):
    assert main(["list", "software", "--json"]) == 0
    rows = {row["software"]: row for row in json.loads(capsys.readouterr().out)["software"]}
    assert "compile=false" in rows["torchtitan"]["flags (software.KEY=...)"]
    assert "times simulated" in rows["fsdp1"]["measured"]
    assert "allocator" in rows["auto"]["habits that may be set by hand (software.rules.KEY=...)"]


@pytest.mark.parametrize("key", ["strategy.zero_stage", "software.zero_stage"])
def test_deepspeeds_own_flag_is_hinted_beside_the_strategys(key, capsys):
    assert main(["run", "software=deepspeed", f"{key}=3"]) == 2
    assert "(did you mean strategy.shard=3, or software.stage=3?)" in " ".join(capsys.readouterr().err.split())
    assert main(["run", "software=fsdp2", f"{key}=3"]) == 2
    assert "software.stage" not in capsys.readouterr().err
