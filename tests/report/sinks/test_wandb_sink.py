"""Weights & Biases: offline runs are written for real and read back from their files; nothing reaches a network."""

import gzip
import json
import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from rostam_py.errors import ConfigError
from rostam_py.report.sinks import wandb_content as content
from rostam_py.report.sinks import wandb_sink
from rostam_py.report.sinks.wandb_sink import SweepLogger, WandbOptions, log_run, log_sweep, resolve_mode
from rostam_py.report.sweep.load import SweepData
from rostam_py.simulation.detail import VERSION as DETAIL_VERSION

pytest.importorskip("wandb")
pl = pytest.importorskip("polars")

# Two stages; 4 + 2 + 1 + 3 ms on the critical path, 10 ms an iteration. 1,000 iterations of 64 samples take 10 s.
RESULT = {
    "version": 1, "model": "gpt_125m", "fabric": "torus, 16 accelerators, 400 Gb/s each", "accelerator": "a100_80gb",
    "num_accelerators": 16, "strategy": {"dp": 8, "tp": 1, "pp": 2}, "global_batch": 64, "micro_batch": 1,
    "fidelity": "flow", "routing": "spray", "seed": 0, "iteration_time_s": 0.010, "first_iteration_s": 0.012,
    "iteration_times_s": [0.012, 0.010], "is_steady": True, "samples_per_s": 6400.0,
    "breakdown_s": {"compute": 0.006, "bubble": 0.003, "dp": 0.001},
    "critical_path_s": {"compute": 0.007, "pp": 0.002, "dp": 0.001},
    "critical_tasks": [{"kind": "compute", "name": "forward blocks.*", "count": 2, "duration_s": 0.007}],
    "bytes_sent": {"dp": 1000, "pp": 10}, "bytes_received": {"dp": 1000, "pp": 10}, "num_messages": {"dp": 8, "pp": 2},
    "mfu": 0.25, "hfu": 0.25, "memory_bytes": 10**9, "num_simulated_devices": 2, "checks": [], "notes": ["a note"],
    "busiest_links": [{"link": 0, "name": "0 -> 1", "num_bytes": 500.0, "busy_fraction": 0.5, "utilization": 0.125}],
    "reconfigurations": {
        "control": "periodic", "num_reconfigurations": 3, "num_changed_circuits": 12, "duty_cycle": 0.75,
        "dark_s": 0.004, "relayed_bytes": 0.0,
    },
}  # fmt: skip
ANSWER = {
    "time_s": 10.0, "iterations": 1000.0, "global_batch": 64, "convergence": "own", "target": "loss 3",
    "is_extrapolated": False, "band_iterations": [900.0, 1100.0], "band_s": [9.0, 11.0], "notes": [],
}  # fmt: skip
PATH = [("compute", 0.0, 0.004), ("pp", 0.004, 0.002), ("dp", 0.006, 0.001), ("compute", 0.007, 0.003)]
DETAIL = {
    "version": DETAIL_VERSION, "title": "gpt_125m on torus", "result": RESULT,
    "memory": [
        {"stage": s, "devices": 8, "parameters": 1, "gradients": 1, "optimizer_state": 2, "activations": 3}
        for s in range(2)
    ],
    "critical_path": [
        {"kind": kind, "name": kind, "stage": 0, "device": 0, "start_s": start, "duration_s": duration}
        for kind, start, duration in PATH
    ],
}  # fmt: skip
MANIFEST = {
    "version": 1, "rostam_version": "0.1.0", "title": "two fabrics", "mode": "run", "num_points": 5,
    "axes": [
        {"key": "fabric", "labels": ["torus_4x4", "tree_16"]},
        {"key": "fabric.accelerator_bandwidth", "labels": ["400 Gb/s", "800 Gb/s"]},
    ],
    "base": {"model": "gpt_125m", "fabric": {"planes": 1}}, "details": ["k0"],
}  # fmt: skip


def _point(index, fabric, gbits, seconds, error=None):
    return {
        "key": f"k{index}", "index": index, "status": "error" if error else "ok", "error": error,
        "fabric": fabric, "fabric.accelerator_bandwidth": f"{gbits} Gb/s", "model": "gpt_125m",
        "accelerator_bandwidth_bytes_per_s": gbits / 8 * 1e9, "strategy": None if error else "dp 8 x tp 1 x pp 2",
        "iteration_time_s": seconds, "time_to_accuracy_s": seconds and 1000 * seconds, "slowdown_mean": None,
        "notes": ["a note"] if index == 0 else [],
    }  # fmt: skip


POINTS = [
    _point(0, "torus_4x4", 400, 0.010), _point(1, "torus_4x4", 800, 0.008), _point(2, "tree_16", 400, 0.009),
    _point(3, "tree_16", 800, 0.007), _point(4, "tree_16", 800, None, "no room"),
]  # fmt: skip


@dataclass
class OfflineRun:
    """What one .wandb file holds. history: rows without wandb's own columns. artifacts: type, name and file paths."""

    folder: Path
    name: str = ""
    job_type: str = ""
    group: str = ""
    config: dict = field(default_factory=dict)
    summary: dict = field(default_factory=dict)
    history: list = field(default_factory=list)
    artifacts: list = field(default_factory=list)
    steps: dict = field(default_factory=dict)
    exit_code: int | None = None

    def curve(self, x, y):
        """The (x, y) values of the rows that hold both."""
        return [(row[x], row[y]) for row in self.history if x in row and y in row]

    def table(self, name):
        """Columns and rows of a logged table, from the media file that the history names."""
        path = next(row[f"{name}.path"] for row in self.history if f"{name}.path" in row)
        document = json.loads((self.folder / "files" / path).read_text())
        return document["columns"], document["data"]


def read_offline_run(folder):
    """Read a run's records back.

    The file is a log as LevelDB writes them, behind a header of 7 bytes: blocks of 32 KiB; a record is a checksum (4),
    a length (2), a type (1: whole, 2: first, 3: middle, 4: last part) and its bytes; no header crosses a block's end.
    """
    from wandb.proto import wandb_internal_pb2 as pb

    data = next(Path(folder).glob("run-*.wandb")).read_bytes()
    run, position, part = OfflineRun(Path(folder)), 7, b""
    while position + 7 <= len(data):
        if 2**15 - position % 2**15 < 7:
            position += 2**15 - position % 2**15
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + 7])
        part = (part if kind in (3, 4) else b"") + data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            record = pb.Record()
            record.ParseFromString(part)
            _apply(run, record)
    return run


def _apply(run, record):
    kind = record.WhichOneof("record_type")
    if kind == "run":
        run.name, run.job_type, run.group = record.run.display_name, record.run.job_type, record.run.run_group
        _update(run.config, record.run.config.update)
    elif kind == "config":
        _update(run.config, record.config.update)
    elif kind == "summary":
        _update(run.summary, record.summary.update)
    elif kind == "history":
        row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        run.history.append({key: value for key, value in row.items() if not key.startswith("_")})
    elif kind == "artifact":
        paths = [entry.path for entry in record.artifact.manifest.contents]
        run.artifacts.append((record.artifact.type, record.artifact.name, sorted(paths)))
    elif kind == "metric":
        run.steps[record.metric.name] = record.metric.step_metric
    elif kind == "exit":
        run.exit_code = record.exit.exit_code


def _update(target, items):
    for item in items:
        *parents, last = item.nested_key or [item.key]
        place = target
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = json.loads(item.value_json)


def write_run_folder(folder):
    """Write what rostam run writes."""
    folder.mkdir()
    (folder / "config.yaml").write_text("model: gpt_125m\nfabric:\n  planes: 1\nseed: 0\n")
    (folder / "run.json").write_text(json.dumps({"rostam_version": "0.1.0", "seed": 0, "overrides": []}))
    (folder / "result.json").write_text(json.dumps(RESULT | {"time_to_accuracy": ANSWER}))
    (folder / "report.html").write_text("<p>report</p>")
    with gzip.open(folder / "detail.json.gz", "wt") as file:
        json.dump(DETAIL, file)
    return folder


def write_sweep_folder(folder):
    """Write what rostam sweep writes."""
    (folder / "details").mkdir(parents=True)
    (folder / "sweep.json").write_text(json.dumps(MANIFEST))
    pl.DataFrame(POINTS, infer_schema_length=None).write_parquet(folder / "points.parquet")
    (folder / "report.html").write_text("<p>report</p>")
    with gzip.open(folder / "details" / "k0.json.gz", "wt") as file:
        json.dump(DETAIL, file)
    return folder


@pytest.fixture(scope="module", autouse=True)
def isolated(tmp_path_factory):
    """Keep wandb's folders here and its network behind a proxy that notes who calls: a listening socket."""
    import wandb

    folder = tmp_path_factory.mktemp("wandb")
    wandb.teardown()  # a service started before would keep its environment
    with socket.socket() as proxy, pytest.MonkeyPatch.context() as patch:
        proxy.bind(("127.0.0.1", 0))
        proxy.listen()
        proxy.setblocking(False)
        for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_DIR", "WANDB_SILENT", "WANDB_ERROR_REPORTING", "NO_PROXY"):
            patch.delenv(name, raising=False)
        for name in ("WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
            patch.setenv(name, str(folder / name))
        patch.setenv("HOME", str(folder))
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        patch.chdir(folder)
        yield proxy
        wandb.teardown()


def offline_runs(folder):
    """Read every offline run below a folder, in order of job type and name.

    A run's end is written by wandb's service, which may do so a moment after ``finish`` has come back.
    """
    deadline = time.monotonic() + 120
    runs = []
    while not runs or any(run.exit_code is None for run in runs):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder} holds runs that never ended: {[run.folder.name for run in runs]}")
        time.sleep(0.02)
        runs = [read_offline_run(path) for path in (folder / "wandb").glob("offline-run-*")]
    return sorted(runs, key=lambda run: (run.job_type, run.name))


@pytest.fixture(scope="module")
def logged_run(tmp_path_factory, isolated):
    """A run's folder sent offline, what was said, and the run read back."""
    folder = write_run_folder(tmp_path_factory.mktemp("run") / "mine")
    said = log_run(folder, WandbOptions(project="tests", tags=("a",), group="mine"))
    return said, offline_runs(folder)


@pytest.fixture(scope="module")
def logged_sweep(tmp_path_factory, isolated):
    """A sweep watched while it runs, then sent offline with a run for each point."""
    folder = write_sweep_folder(tmp_path_factory.mktemp("sweep") / "mine")
    logger = SweepLogger(WandbOptions(), MANIFEST, folder)
    logger.log_progress(2, 0, 0.010)
    logger.log_progress(5, 1, 0.007)
    said = logger.finish(folder)
    return said, offline_runs(folder)


def test_run_holds_configuration_and_figures(logged_run):
    _, (run,) = logged_run
    assert (run.name, run.job_type, run.group, run.exit_code) == (
        "gpt_125m on torus, 16 accelerators, 400 Gb/s each, dp 8 x pp 2", "run", "mine", 0,
    )  # fmt: skip
    assert run.config["fabric"] == {"planes": 1}
    assert run.config["resolved"]["strategy"] == {"dp": 8, "tp": 1, "pp": 2}
    assert run.config["rostam_version"] == "0.1.0"
    assert run.summary["iteration_time_s"] == 0.010
    assert run.summary["breakdown_s"] == RESULT["breakdown_s"]
    assert (run.summary["mfu"], run.summary["memory_bytes"]) == (0.25, 10**9)
    assert (run.summary["time_to_accuracy_s"], run.summary["time_to_accuracy_high_s"]) == (10.0, 11.0)
    assert run.summary["max_link_utilization"] == 0.125
    assert (run.summary["num_reconfigurations"], run.summary["num_changed_circuits"]) == (3, 12)
    assert (run.summary["duty_cycle"], run.summary["dark_s"], run.summary["relayed_bytes"]) == (0.75, 0.004, 0.0)


def test_run_holds_curves_over_their_own_axes(logged_run):
    _, (run,) = logged_run
    assert run.curve("iteration", "iteration_time_s") == [(0, 0.012), (1, 0.010)]
    times = [0.004, 0.006, 0.007, 0.010]
    compute = run.curve("critical_path/time_s", "critical_path/compute_s")
    assert compute == [
        (pytest.approx(t), pytest.approx(s)) for t, s in zip(times, (0.004, 0.004, 0.004, 0.007), strict=True)
    ]
    assert run.curve("critical_path/time_s", "critical_path/pp_s")[-1] == (pytest.approx(0.010), pytest.approx(0.002))
    # half of training: 500 of 1,000 iterations, of 64 samples each, in 5 of 10 s
    assert run.curve("training/time_s", "training/samples")[25] == (5.0, 32000.0)
    assert run.steps["iteration_time_s"] == "iteration"
    assert run.steps["critical_path/compute_s"] == "critical_path/time_s"


def test_run_holds_tables(logged_run):
    _, (run,) = logged_run
    columns, rows = run.table("breakdown")
    assert columns == ["kind", "mean_device_s", "share", "critical_path_s", "bytes_sent", "messages"]
    assert rows[0] == ["compute", 0.006, 0.6, 0.007, None, None]
    assert ["pp", 0.0, 0.0, 0.002, 10, 2] in rows  # only on the critical path
    assert run.table("critical_tasks")[1] == [["compute", "forward blocks.*", 2, 0.007]]
    assert run.table("busiest_links")[1][0][1] == "0 -> 1"
    assert run.table("memory_by_stage")[1] == [[0, 8, 1, 1, 2, 3], [1, 8, 1, 1, 2, 3]]


def test_run_attaches_the_report(logged_run):
    _, (run,) = logged_run
    (name,) = [
        name for kind, name, paths in run.artifacts if kind == "report" and paths == ["report.html", "result.json"]
    ]
    assert name.startswith("report-gpt_125m-on-torus")


def test_offline_run_says_where_it_is_and_how_to_upload_it(logged_run):
    said, (run,) = logged_run
    assert f"wandb sync {run.folder}" in said
    assert run.folder.is_dir()


def test_sweep_is_a_group_of_one_summary_and_a_run_a_point(logged_sweep):
    said, runs = logged_sweep
    assert [run.job_type for run in runs] == ["point"] * 5 + ["sweep"]
    assert {run.group for run in runs} == {content.sweep_group(MANIFEST)}
    assert sorted(run.exit_code for run in runs) == [0] * 5 + [1]  # the failed point reads as failed
    assert "5 runs of its points" in said
    assert "wandb sync" in said


def test_sweep_run_holds_table_best_points_and_lines(logged_sweep):
    run = logged_sweep[1][-1]
    assert run.config["axes"]["fabric/accelerator_bandwidth"] == ["400 Gb/s", "800 Gb/s"]
    assert run.config["base"] == MANIFEST["base"]
    columns, rows = run.table("points_table")
    assert "slowdown_mean" not in columns  # no point has one
    assert [row[columns.index("iteration_time_s")] for row in rows] == [0.010, 0.008, 0.009, 0.007, None]
    assert (run.summary["points"], run.summary["errors"]) == (5, 1)
    best = run.summary["best"]["gpt_125m"]
    assert (best["index"], best["fabric"], best["time_to_accuracy_s"]) == (3, "tree_16", 7.0)
    # the chart's table: x [Gb/s], line, value [s]
    _, drawn = run.table("time_to_accuracy_s/gpt_125m_table")
    torus, tree = [[400, "torus_4x4", 10.0], [800, "torus_4x4", 8.0]], [[400, "tree_16", 9.0], [800, "tree_16", 7.0]]
    assert drawn == [*torus, *tree]
    assert "accelerator bandwidth [Gb/s]" in json.dumps(run.config["_wandb"])
    assert ("report", "report-two-fabrics", ["points.parquet", "report.html", "sweep.json"]) in run.artifacts


def test_sweep_run_holds_progress(logged_sweep):
    run = logged_sweep[1][-1]
    assert run.curve("progress/points", "progress/errors") == [(2, 0), (5, 1)]
    assert run.curve("progress/points", "progress/best_s") == [(2, 0.010), (5, 0.007)]


def test_point_run_holds_its_labels_figures_and_details(logged_sweep):
    points = {run.config["index"]: run for run in logged_sweep[1][:-1]}
    assert points[2].name == "gpt_125m on tree_16, 400 Gb/s, dp 8 x tp 1 x pp 2"
    assert points[2].config["axes"] == {"fabric": "tree_16", "fabric/accelerator_bandwidth": "400 Gb/s"}
    assert points[2].summary["time_to_accuracy_s"] == 9.0
    assert points[0].table("breakdown")[1][0][0] == "compute"  # of its detail document
    assert points[4].summary["error"] == "no room"


def test_offline_runs_are_silent_and_call_nobody(tmp_path, isolated, logged_run, logged_sweep, capfd):
    log_sweep(write_sweep_folder(tmp_path / "more"), WandbOptions(points=4))
    assert [run.job_type for run in offline_runs(tmp_path / "more")] == ["sweep"]  # 5 points are more than 4
    assert capfd.readouterr() == ("", "")
    with pytest.raises(BlockingIOError):
        isolated.accept()


def fake_wandb(fields=(), **settings):
    """Return a stand-in that has only what deciding the mode reads."""
    known = {"mode": "online", "base_url": "https://api.example.com", "api_key": None}
    found = SimpleNamespace(**(known | settings), model_fields_set={*fields, *settings})
    return lambda: SimpleNamespace(setup=lambda: SimpleNamespace(settings=found))


@pytest.mark.parametrize(
    ("option", "variable", "file", "expected"),
    [
        (None, None, None, "offline"),  # a key alone uploads nothing
        (None, None, "online", "online"),
        (None, None, "disabled", "disabled"),
        (None, "offline", "online", "offline"),
        (None, "dryrun", None, "offline"),
        (None, "online", "offline", "online"),
        ("offline", "online", "online", "offline"),
        ("online", "offline", None, "online"),
    ],
)
def test_first_given_mode_wins(monkeypatch, option, variable, file, expected):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    if variable is not None:
        monkeypatch.setenv("WANDB_MODE", variable)
    monkeypatch.setattr(wandb_sink, "_import_wandb", fake_wandb(**({"mode": file} if file else {})))
    assert resolve_mode(WandbOptions(mode=option)) == expected


def test_online_without_a_key_is_refused_instead_of_prompting(monkeypatch, tmp_path):
    monkeypatch.setattr(wandb_sink, "_import_wandb", fake_wandb(["base_url"]))
    with pytest.raises(ConfigError, match="wandb login"):
        resolve_mode(WandbOptions(mode="online"))
    netrc = tmp_path / "netrc"
    netrc.write_text("machine api.example.com login user password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert resolve_mode(WandbOptions(mode="online")) == "online"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "sometimes"}, "wandb.mode is 'sometimes'; it must be one of: offline, online, disabled"),
        ({"points": -1}, "wandb.points is -1"),
        ({"project": "a/b"}, "wandb.project is 'a/b'"),
        ({"tags": ("",)}, "wandb.tags holds ''"),
    ],
)
def test_bad_options_are_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        WandbOptions(**settings)


def test_unknown_variable_is_named(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "maybe")
    with pytest.raises(ConfigError, match="WANDB_MODE is 'maybe'"):
        resolve_mode(WandbOptions())


def test_missing_wandb_names_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"wandb\.enable=true needs wandb.*rostam\[wandb\]"):
        log_run(write_run_folder(tmp_path / "mine"), WandbOptions())


def test_lines_take_the_best_point_and_the_manifests_order():
    again = [*POINTS, _point(5, "torus_4x4", 400, 0.020)]
    (chart,) = content.sweep_charts(SweepData(MANIFEST, pl.DataFrame(again, infer_schema_length=None)))
    assert chart.lines == {"torus_4x4": ([400.0, 800.0], [10.0, 8.0]), "tree_16": ([400.0, 800.0], [9.0, 7.0])}
    assert list(chart.lines) == ["torus_4x4", "tree_16"]


def test_long_critical_paths_keep_their_end():
    path = [{"kind": "compute", "start_s": k * 1e-3, "duration_s": 1e-3} for k in range(2000)]
    curve = content.result_curves(RESULT, {"critical_path": path})["critical_path/time_s"]
    assert len(curve) <= 201
    assert curve[-1]["critical_path/compute_s"] == pytest.approx(2.0)


def test_mixes_are_compared_by_their_slow_down():
    rows = [
        point | {"model": None, "time_to_accuracy_s": None, "slowdown_mean": 1.0 + k / 10, "jobs": [{"name": "a"}]}
        for k, point in enumerate(POINTS[:4])
    ]
    data = SweepData(MANIFEST | {"mode": "mix"}, pl.DataFrame(rows))
    assert content.sweep_summary(data)["best"]["mix"]["slowdown_mean"] == 1.0
    (chart,) = content.sweep_charts(data)
    assert chart.lines["tree_16"] == ([400.0, 800.0], [1.2, 1.3])
    columns, cells = content.sweep_rows(data)
    assert cells[0][columns.index("jobs")] == '[{"name": "a"}]'


def test_sweep_without_any_result_still_has_a_summary():
    data = SweepData(MANIFEST, pl.DataFrame([_point(0, "torus_4x4", 400, None, "no room")], infer_schema_length=None))
    assert content.sweep_summary(data) == {"points": 1, "errors": 1, "best": {}}
    assert content.sweep_charts(data) == []


def test_points_of_different_batches_are_compared_by_time_per_sample():
    pl = pytest.importorskip("polars")
    batches = [128, 512, 128, 512]
    points = [_point(0, "torus_4x4", 400, 0.04), _point(1, "torus_4x4", 400, 0.08)]
    points += [_point(2, "torus_4x4", 800, 0.03), _point(3, "torus_4x4", 800, 0.06)]
    rows = [point | {"time_to_accuracy_s": None, "global_batch": n} for point, n in zip(points, batches, strict=True)]
    data = SweepData(MANIFEST, pl.DataFrame(rows, infer_schema_length=None))
    best = content.sweep_summary(data)["best"]["gpt_125m"]
    assert (best["index"], best["time_per_sample_s"]) == (3, 0.06 / 512)
    (chart,) = content.sweep_charts(data)
    assert chart.lines == {"torus_4x4": ([400.0, 800.0], [0.08 / 512, 0.06 / 512])}
