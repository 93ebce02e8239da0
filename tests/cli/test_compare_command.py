"""``rostam compare A B``: folders and overrides, the same figures either way, errors that say what a side is."""

import json
from pathlib import Path

import pytest

from rostam_py.cli.main import main

pytestmark = pytest.mark.usefixtures("cached_traces")

COMMON = ["model=transformer_350m", "global_batch=128"]
WIDE = "fabric=tree_64 fabric.accelerator_bandwidth=800 Gb/s"


def document(capsys, *arguments):
    assert main(["compare", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def folders(tmp_path, capsys):
    """Two finished runs."""
    pair = [str(tmp_path / name) for name in ("a", "b=2")]
    assert main(["run", *COMMON, "strategy.tp=2", f"out={pair[0]}"]) == 0
    assert main(["run", *COMMON, *WIDE.split(" ", 1), f"out='{pair[1]}'"]) == 0
    capsys.readouterr()
    return pair


def test_overrides_are_compared_as_finished_runs_of_them_are(folders, capsys):
    finished = document(capsys, *folders)
    simulated = document(capsys, "strategy.tp=2", WIDE, *COMMON)
    assert [simulated[side].pop("run") for side in ("a", "b")] == ["strategy.tp=2", WIDE]
    assert [finished[side].pop("run") for side in ("a", "b")] == folders
    assert simulated == finished
    assert [tuple(row.values()) for row in finished["configuration"]] == [
        ("fabric.accelerator_bandwidth", "400 Gb/s", "800 Gb/s"), ("strategy.tp", 2, 1),
    ]  # fmt: skip
    results = [json.loads(Path(folder, "result.json").read_text()) for folder in folders]
    iteration = next(row for row in finished["time_s"] if row["name"] == "iteration")
    assert (iteration["a"], iteration["b"]) == tuple(result["iteration_time_s"] for result in results)
    for section in ("breakdown_s", "critical_path_s"):
        change = sum(row["difference"] for row in finished[section])
        assert change == pytest.approx(iteration["difference"], rel=1e-6)
    # 12 switches of 14,280, 64 copper cables of 272 and 64 optical ones of 603; twice that at 800 Gb/s.
    (price,) = finished["usd"]
    assert (price["a"], price["b"]) == (227_360.0, 454_720.0)


def test_memory_parts_of_a_result_sum_to_its_fullest_device(folders):
    result = json.loads(Path(folders[0], "result.json").read_text())
    assert sum(result["memory_parts_bytes"].values()) == result["memory_bytes"]
    assert result["network_usd"] == 227_360.0


def test_the_tables_name_sides_and_differences(folders, capsys):
    assert main(["compare", folders[0], "", *COMMON]) == 0
    text = capsys.readouterr().out
    for words in ("defaults", "strategy.tp", "differences of the configuration", "exposed tensor-parallel", "points",
                  "memory, optimizer state", "price, network", "227,360 USD", "difference: B - A"):  # fmt: skip
        assert words in text
    assert main(["compare", "", "", *COMMON]) == 0
    assert "the configurations are the same" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["sides given: none", "give two"]),
        (["strategy.tp=2"], ["sides given: 'strategy.tp=2'"]),
        (["strategy.tp=2", "somewhere"], ["'somewhere' is neither the folder of a run nor settings"]),
        (["strategy.tp=2", "strategy.tq=2"], ["unknown key 'strategy.tq'", "tp"]),
        (["strategy.tp=2", "out=x"], ["'out=x'", "writes no folder"]),
        (["strategy.tp=2", "strategy.tp=4", "wandb.enable=true"], ["'wandb.enable=true'", "writes no folder"]),
        (["strategy.tp=2", "/tmp"], ["/tmp/result.json is missing"]),
        (["/tmp", "/tmp", "seed=1"], ["'seed=1' changes nothing in two folders"]),
    ],
)  # fmt: skip
def test_errors_say_what_a_side_is(arguments, words, capsys):
    assert main(["compare", *arguments]) == 2
    text = capsys.readouterr().err
    for word in words:
        assert word in text


def test_help_lists_examples(capsys):
    assert main(["compare", "--help"]) == 0
    assert "rostam compare A B [--json] [key=value ...]" in capsys.readouterr().out


@pytest.fixture
def queues(tmp_path, capsys):
    """Three jobs first come, first served, and with backfilling."""
    (tmp_path / "jobs.csv").write_text("submit_s,gpus,duration_s\n0,30,7200\n60,8,3600\n120,1,3600\n")
    common = ["fabric=cluster_64", "num_accelerators=32", "fleet.faults=none", "accelerator_usd_per_hour=2"]
    for order in ("first_come", "backfill"):
        jobs = [f"fleet.jobs={tmp_path / 'jobs.csv'}", f"fleet.order={order}", f"out={tmp_path / order}"]
        assert main(["fleet", *common, *jobs, "report=false"]) == 0
    capsys.readouterr()
    return [str(tmp_path / "first_come"), str(tmp_path / "backfill")]


def test_two_queues_of_jobs_are_compared_by_waits_goodput_hours_and_price(queues, capsys):
    found = document(capsys, *queues)
    assert found["configuration"] == [{"key": "fleet.order", "a": "first_come", "b": "backfill"}]
    (mean,) = (row for row in found["wait_s"] if row["name"] == "mean")
    assert (mean["a"], mean["b"]) == ((7140 + 7080) / 3, 7140 / 3)
    assert mean["ratio"] == pytest.approx(7140 / (7140 + 7080))
    results = [json.loads(Path(folder, "result.json").read_text()) for folder in queues]
    goodput = found["goodput"][0]
    assert [goodput["a"], goodput["b"]] == [result["goodput"]["whole"] for result in results]
    for section in ("job_accelerator_hours", "cluster_accelerator_hours"):
        for side, result in zip("ab", results, strict=True):
            assert sum(row[side] for row in found[section]) == pytest.approx(sum(result[section].values()))
    assert {row["name"]: row["a"] for row in found["usd"]}["cluster"] == pytest.approx(2 * 32 * 3)
    assert main(["compare", *queues]) == 0
    text = capsys.readouterr().out
    for words in ("two queues of jobs", "waiting, mean", "fleet.order", "scheduling", "useful", "192.00 USD"):
        assert words in text


def test_a_queue_is_compared_with_nothing_else(queues, folders, capsys):
    for pair in ((queues[0], folders[0]), (folders[0], queues[0]), (queues[0], "strategy.tp=2")):
        assert main(["compare", *pair]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "holds rostam-jobs, not a run" in said
        assert "jobs of rostam fleet are compared with other jobs" in said
    Path(queues[0], "config.yaml").unlink()
    assert main(["compare", *queues]) == 2
    assert "config.yaml is missing" in " ".join(capsys.readouterr().err.split())
