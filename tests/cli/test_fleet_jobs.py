"""``rostam fleet fleet.jobs=...``: tables, document and files of many jobs; bad input is refused before any work."""

import csv
import json

import pytest

from rostam_py.cli.main import main

SERVERS = ["fabric=electrical_cluster", "num_accelerators=32", "fleet.faults=none"]
ROWS = "submit_s,gpus,duration_s\n0,30,7200\n60,8,3600\n120,1,3600\n"


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(ROWS)
    return f"fleet.jobs={path}"


def ran(tmp_path, *arguments):
    assert main(["fleet", *arguments, "report=false", f"out={tmp_path / 'out'}"]) == 0
    return json.loads((tmp_path / "out" / "result.json").read_text())


def test_waits_hours_and_files_are_those_of_three_jobs_by_hand(tmp_path, jobs, capsys):
    """The second job has no room until the first ends at 7,200 s; the third waits behind it."""
    found = ran(tmp_path, *SERVERS, jobs, "accelerator_usd_per_hour=2")
    assert found["wait_s"]["mean"] == (0 + 7140 + 7080) / 3
    assert found["window_s"] == 10_800
    hours = found["job_accelerator_hours"]
    assert hours["useful"] == 30 * 2 + 8 + 1
    assert hours["waiting"] == pytest.approx((8 * 7140 + 7080) / 3600)
    assert found["utilisation"] == pytest.approx(69 / (32 * 3))
    assert found["usd"] == pytest.approx(32 * 3 * 2)
    assert found["most_kwh"] == pytest.approx(32 * 0.4 * 3)
    cluster = found["cluster_accelerator_hours"]
    assert sum(cluster.values()) == pytest.approx(32 * 3)
    assert cluster["too few"] == pytest.approx(2 * 7140 / 3600)
    text = capsys.readouterr().out
    assert "3 jobs for 3 h on 32 accelerators" in text
    assert "mean 79 min" in text
    rows = list(csv.DictReader((tmp_path / "out" / "jobs.csv").open()))
    assert [float(row["first_start_s"]) for row in rows] == [0, 7200, 7200]
    lines = (tmp_path / "out" / "series.csv").read_text().splitlines()
    assert lines[0].startswith("# means of 60 s each")
    series = list(csv.DictReader(lines[1:]))
    assert sum(float(row["held"]) for row in series) / 60 == pytest.approx(69)


def test_backfilling_lets_the_small_job_go_first(tmp_path, jobs, capsys):
    found = ran(tmp_path, *SERVERS, jobs, "fleet.order=backfill")
    assert found["wait_s"]["mean"] == 7140 / 3
    assert found["order"] == "backfill"


def test_equal_seeds_give_equal_bytes_and_others_do_not(tmp_path, capsys):
    drawn = [
        "fleet.jobs=targets", "fleet.draw={count: 400, load: 1.1}", *SERVERS[:2], "fleet.mtbf=2 d", "fleet.repair=5 h",
        "--json",
    ]  # fmt: skip
    texts, files = [], []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert main(["fleet", *drawn, f"fleet.seed={seed}", "report=false", f"out={tmp_path / name}"]) == 0
        texts.append(capsys.readouterr().out)
        written = ("jobs.csv", "series.csv", "placements.csv", "result.json")
        files.append([(tmp_path / name / one).read_bytes() for one in written])
    assert texts[0] == texts[1] != texts[2]
    assert files[0] == files[1] != files[2]
    found = json.loads(texts[0])
    assert found["num_cuts"] > 0
    parts = found["goodput"]
    assert parts["whole"] == pytest.approx(parts["scheduling"] * parts["runtime"] * parts["program"])


def test_jobs_that_move_are_counted_and_pause_for_a_checkpoint_and_a_restart(tmp_path, capsys):
    """Two jobs of 4 are left in two servers when one of 8 comes."""
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,gpus,duration_s\n0,4,7200\n0,4,60\n0,4,60\n0,4,7200\n100,8,600\n")
    common = [f"fleet.jobs={path}", "fabric=electrical_cluster", "num_accelerators=16", "fleet.faults=none"]
    found = ran(tmp_path, *common, "fleet.defragment=true")
    assert (found["num_moves"], found["wait_s"]["mean"]) == (1, 0)
    assert found["job_accelerator_hours"]["moved"] == pytest.approx(4 * 630 / 3600)
    assert "moves" in capsys.readouterr().out
    quick = ran(tmp_path, *common, "fleet.defragment=true", "fleet.move=172 ms")
    assert quick["job_accelerator_hours"]["moved"] == pytest.approx(4 * 0.172 / 3600)
    assert ran(tmp_path, *common)["wait_s"]["mean"] == pytest.approx(7100 / 5)


@pytest.mark.parametrize(
    ("fabric", "allocation"),
    [("hx2mesh_8x8", "submesh"), ("torus_8x8", "blocks"), ("tree_64", "leaves"), ("cluster_64", "servers")],
)
def test_a_fabric_gives_accelerators_by_its_own_allocator(fabric, allocation, tmp_path, jobs, capsys):
    found = ran(tmp_path, f"fabric={fabric}", jobs, "fleet.faults=none")
    assert found["allocation"] == allocation


def test_jobs_with_a_model_run_with_and_without_neighbours(tmp_path, capsys):
    path = tmp_path / "jobs.csv"
    rows = ["0,6,gpt_125m,2000,,", "0,6,gpt_125m,2000,,", "0,4,,,,3600", "0,4,gpt_125m,2000,2,"]
    path.write_text("\n".join(["submit_s,gpus,model,iterations,strategy.tp,duration_s", *rows]) + "\n")
    common = [
        f"fleet.jobs={path}", "fabric=fat_tree", "num_accelerators=20", "fabric.levels=2", "fabric.leaf_down=5",
        "fabric.leaf_up=1", "fabric.accelerator_bandwidth=100 Gb/s", "strategy.micro_batch=1", "fleet.faults=none",
        "fleet.allocation=random", "software=ideal",
    ]  # fmt: skip
    found = ran(tmp_path, *common)
    assert found["slowdown"]["mean"] > found["without_network"]["slowdown"]["mean"] >= 1
    assert found["goodput"]["program"] < 1 == found["without_network"]["goodput"]["program"]
    said = capsys.readouterr()
    assert "without network" in said.out
    assert "of jobs that share links were simulated" in said.err
    alone = ran(tmp_path, *common, "fleet.contention=false")
    assert "without_network" not in alone
    assert alone["slowdown"] == found["without_network"]["slowdown"]


def test_recorded_faults_beyond_the_cluster_and_the_trace_are_told(tmp_path, jobs, capsys):
    path = tmp_path / "faults.csv"
    path.write_text("start_hours,end_hours,server\n0.5,0.6,0\n0.7,0.8,9\n")
    found = ran(tmp_path, *SERVERS[:2], jobs, f"fleet.faults={path}", "fleet.restart=10 min")
    assert (found["num_faults"], found["num_cuts"]) == (1, 1)
    said = " ".join(capsys.readouterr().err.split())
    assert "faults of 1 server beyond the cluster's 4 are left out" in said
    assert "no server fails in between, which flatters" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fleet.order=fair"], "fleet.order is 'fair'; it must be one of: backfill, first_come, shortest_first"),
        (["fleet.allocation=hope"], "fleet.allocation is 'hope'; it must be one of: count, servers, arcs"),
        (["fleet.allocation=submesh"], "fleet.allocation is 'submesh', but the fabric is a ElectricalCluster"),
        (["fleet.allocation=linear", "fleet.allocation_options={hope: 1}"], "fleet.allocation_options has no key"),
        (["fleet.allocation=linear", "fleet.allocation_options={largest_first: true}"], "largest_first is for jobs of"),
        (["fleet.jobs=hope"], "fleet.jobs is 'hope'; it must be a file whose name ends in .csv, or one of: families"),
        (["fleet.jobs=hope.csv"], "fleet.jobs is 'hope.csv'; the file cannot be read"),
        (["num_accelerators=24"], "job 1 asks for 30 accelerators, but the cluster has 24 that work"),
        (["fleet.jobs=families", "fleet.draw={count: none}"], "fleet.draw.count is 'none'; it must be an integer"),
        (["fleet.defragment=true", "fleet.move=-1 s"], "fleet.move is '-1 s'"),
        (["fleet.days=0"], "fleet.days is 0.0; it must be a number > 0"),
        (["accelerator_usd_per_hour=-1"], "accelerator_usd_per_hour is -1.0"),
    ],
)
def test_bad_input_names_key_value_and_what_is_allowed(arguments, said, tmp_path, jobs, capsys):
    assert main(["fleet", *SERVERS, jobs, *arguments, f"out={tmp_path / 'out'}"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("0,8,gpt_125m,10,3,", "job 1 of 8 accelerators"),
        ("0,8,gpt_125m,10,x,", "job 1 of 8 accelerators"),
        ("0,8,no_model,10,2,", "no_model"),
        ("0,8,,10,2,", "duration_s is empty; it must be a number of seconds, or model and iterations"),
    ],
)
def test_bad_jobs_with_models_are_refused(row, said, tmp_path, capsys):
    path = tmp_path / "jobs.csv"
    path.write_text(f"submit_s,gpus,model,iterations,strategy.tp,duration_s\n{row}\n")
    assert main(["fleet", *SERVERS, f"fleet.jobs={path}", f"out={tmp_path / 'out'}"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_keys_that_nothing_reads_are_noted(tmp_path, jobs, capsys):
    ran(tmp_path, *SERVERS, jobs, "fleet.spares=2", "fleet.draw={count: 3}", "model=gpt_125m", "strategy.tp=2")
    said = " ".join(capsys.readouterr().err.split())
    assert "model=gpt_125m has no effect: it is of one job" in said
    assert "strategy.tp=2 has no effect: no job has a model" in said
    assert "fleet.spares is 2, which has no effect: it needs one job: no fleet.jobs" in said
    assert "fleet.draw is {'count': 3}, which has no effect" in said


def test_the_page_is_written_unless_it_is_not_wanted_and_an_old_one_goes(tmp_path, jobs, capsys):
    folder = tmp_path / "out"
    assert main(["fleet", *SERVERS, jobs, f"out={folder}"]) == 0
    assert f"open {folder / 'report.html'}" in "".join(capsys.readouterr().err.split("\n"))
    assert "3 jobs for 3 h" in (folder / "report.html").read_text()
    ran(tmp_path, *SERVERS, jobs)
    assert not (folder / "report.html").exists()


def test_a_page_without_its_packages_is_refused_before_any_work(tmp_path, jobs, capsys, monkeypatch):
    monkeypatch.setattr("rostam_py.extras._is_installed", lambda package: package != "plotly")
    assert main(["fleet", *SERVERS, jobs, f"out={tmp_path / 'out'}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "report=true needs plotly" in said
    assert "report=false" in said
    assert not (tmp_path / "out").exists()
    ran(tmp_path, *SERVERS, jobs)


def test_placements_are_cut_where_they_are_many_and_a_note_says_so(tmp_path, jobs, capsys, monkeypatch):
    from rostam_py.fleet.queueing import placements

    monkeypatch.setattr(placements.PlacementLog.__init__, "__defaults__", (30,))
    found = ran(tmp_path, *SERVERS, jobs)
    assert found["placements"] == {"num_left_out": 2, "until_s": 7200}
    said = " ".join(capsys.readouterr().err.split())
    assert "placements.csv has where jobs are until day 0.1, so that it stays small; 2 starts are left out" in said
    rows = list(csv.DictReader((tmp_path / "out" / "placements.csv").open()))
    assert [(row["job"], row["accelerators"]) for row in rows] == [("0", "0-29")]


def test_what_never_works_and_what_fails_are_rows_of_no_job(tmp_path, capsys):
    (tmp_path / "jobs.csv").write_text("submit_s,gpus,duration_s\n0,8,7200\n")
    (tmp_path / "faults.csv").write_text("start_hours,end_hours,server\n0.5,0.75,2\n")
    faults = [f"fleet.jobs={tmp_path / 'jobs.csv'}", f"fleet.faults={tmp_path / 'faults.csv'}"]
    ran(tmp_path, *SERVERS[:2], *faults, "failures.accelerators=1")
    rows = [tuple(row.values()) for row in csv.DictReader((tmp_path / "out" / "placements.csv").open())]
    lost = int(rows[0][3])
    assert rows == [
        ("", "0.0", "7200.0", str(lost)), ("", "1800.0", "2700.0", "16-23"),
        ("0", "0.0", "7200.0", "8-15" if lost < 8 else "0-7"),
    ]  # fmt: skip
