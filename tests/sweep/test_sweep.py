"""Whole sweeps: rows are what single simulations give, errors are rows, backends agree to the byte."""

import functools
import json
import os
import socket

import polars as pl
import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.sweep import Sweep, SweepOptions, SweepResult, Tally, run_sweep
from rostam_py.sweep.backend import TOKEN_FILE, Batch, InlineBackend, Work, evaluate_batch
from rostam_py.sweep.columns import column_types
from rostam_py.sweep.driver import Driver
from rostam_py.sweep.evaluate import Evaluator
from rostam_py.sweep.identity import code_version
from rostam_py.sweep.store import Store, write_point

GRID = {"fabric.link_bandwidth": ["100 Gb/s", "400 Gb/s"], "strategy.tp": [1, 2]}


def inline(base, mlp, out, **more):
    """Run a sweep of the perceptron in this process."""
    return run_sweep(base, graphs={"mlp": mlp}, out=out, backend="inline", details=0, **{"grid": GRID, **more})


def test_a_row_is_what_simulate_returns(base, mlp, tmp_path):
    result = inline(base, mlp, tmp_path)
    row = result.table.row(3, named=True)
    fabric = rostam.fabric("torus", dims=(2, 4), link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(
        mlp, machine, global_batch=64, strategy=rostam.Strategy(dp=4, tp=2, precision="fp32"), software="ideal"
    )
    run = rostam.simulate(plan)
    assert (row["fabric.link_bandwidth"], row["strategy.tp"], row["dp"], row["tp"]) == ("400 Gb/s", "2", 4, 2)
    assert row["iteration_time_s"] == run.iteration_time_s
    assert row["exposed_tp_s"] == run.breakdown["tp"]
    assert row["bytes_sent"] == sum(run.bytes_sent.values())
    assert row["memory_bytes"] == plan.memory_bytes
    assert row["tokens_per_s"] is None  # a perceptron's samples are no sequences
    parts = [name for name in column_types() if name.startswith("exposed_") and name != "exposed_s"]
    total = sum(row[name] for name in [*parts, "compute_s", "launch_s", "bubble_s"])
    assert total == pytest.approx(row["iteration_time_s"], rel=1e-12)


class Tables(nn.Module):
    """Two embedding tables and a layer on what they look up."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(1000, 32, mode="sum") for _ in range(2))
        self.layer = nn.Linear(64, 1)

    def forward(self, ids):
        """Return a number for each sample."""
        found = [table(ids[:, place : place + 1]) for place, table in enumerate(self.tables)]
        return self.layer(torch.cat(found, 1))


def test_plans_that_depend_on_servers_are_made_for_servers_of_each_size(base):
    graph = rostam.trace(Tables(), torch.zeros(1, 2, dtype=torch.int64), name="tables")
    fabrics = [{"name": "electrical_cluster", "num_accelerators": 8, "server_size": size} for size in (2, 4)]
    settings = base | {"model": "graph:tables", "strategy": {"tables": "hierarchical", "precision": "fp32"}}
    one = Evaluator({"graph:tables": graph}.__getitem__)
    for point in Sweep(settings, grid={"fabric": fabrics}, graphs={"tables": graph}).points:
        machine = rostam.Machine(fabric=rostam.fabric(**point.settings["fabric"]), accelerator="a100_80gb")
        strategy = rostam.Strategy(dp=8, tables="hierarchical", precision="fp32")
        plan = rostam.place(graph, machine, global_batch=64, strategy=strategy, software="ideal")
        row = one.row(point.key, point.settings)
        assert row["iteration_time_s"] == rostam.simulate(plan).iteration_time_s


def test_a_row_holds_what_circuits_did_where_they_change(base, mlp, tmp_path):
    ocs = {"name": "sip_ocs", "num_accelerators": 8, "num_ocs": 2, "link_bandwidth": "100 Gb/s"}
    dynamic = {"control": "periodic", "period": "0 s", "estimator": "active", "reconfiguration_delay": "10 us"}
    result = inline(base, mlp, tmp_path, grid={"fabric": [ocs, ocs | dynamic], "strategy.tp": [2]})
    once, anew = result.table.iter_rows(named=True)
    columns = ("num_reconfigurations", "num_changed_circuits", "dark_s", "duty_cycle")
    assert [once[key] for key in columns] == [None] * 4
    fabric = rostam.fabric(**ocs, **dynamic)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=4, tp=2, precision="fp32")
    said = rostam.simulate(
        rostam.place(mlp, machine, global_batch=64, strategy=strategy, software="ideal")
    ).reconfigurations
    assert anew["num_reconfigurations"] == len(said.begin_s) > 0
    assert anew["num_changed_circuits"] == said.num_changed.sum()
    # Each lasts as long as the delay, and they do not overlap.
    assert anew["dark_s"] == pytest.approx((said.end_s - said.begin_s).sum())
    assert anew["duty_cycle"] == said.lit_circuit_s / (said.lit_circuit_s + said.dark_circuit_s)


def test_an_error_is_a_row_and_the_others_go_on(base, mlp, tmp_path):
    result = inline(base, mlp, tmp_path, grid={"strategy.tp": [1, 3, 2]})
    assert result.table["status"].to_list() == ["ok", "error", "ok"]
    row = result.table.row(1, named=True)
    assert row["error_type"] == "DegreeError"
    assert "strategy.tp = 3 does not divide the 8 accelerators" in row["error"]
    assert row["iteration_time_s"] is None
    assert result.num_errors == 1
    assert result.best()["strategy.tp"].to_list() in (["1"], ["2"])


def test_the_best_point_has_the_least_time_per_sample_not_per_iteration(base, mlp, tmp_path):
    result = inline(base, mlp, tmp_path, grid={"global_batch": [64, 512]})
    per_sample = [row["iteration_time_s"] / row["global_batch"] for row in result.table.iter_rows(named=True)]
    assert result.table["iteration_time_s"][0] < result.table["iteration_time_s"][1]
    assert per_sample[0] > per_sample[1]  # a larger batch hides more of the all-reduce
    assert result.goal == "time_per_sample_s"
    best = result.best(2)
    assert best["global_batch"].to_list() == [512, 64]
    assert best["time_per_sample_s"].to_list() == per_sample[::-1]


def test_rows_do_not_depend_on_what_was_evaluated_before(base, mlp):
    fabrics = [{"name": "torus", "dims": [2, 4]}, {"name": "fat_tree", "num_accelerators": 8, "radix": 4}]
    rows = [{"mode": "run", "label": "run"}, {"mode": "search", "search.batches": [64, 128], "label": "search"}]
    points = Sweep(base, grid={"fabric": fabrics, **GRID}, rows=rows, graphs={"mlp": mlp}).points
    load = {"graph:mlp": mlp}.__getitem__
    one, other = Evaluator(load), Evaluator(load)
    forward = {p.key: one.row(p.key, p.settings) for p in points}
    backward = {p.key: other.row(p.key, p.settings) for p in reversed(points)}
    assert {row["status"] for row in forward.values()} == {"ok"}
    assert json.dumps(forward, sort_keys=True) == json.dumps(backward, sort_keys=True)


def test_a_search_point_holds_the_best_and_how_to_run_it(base, mlp, tmp_path):
    searched = inline(base | {"mode": "search", "search": {"batches": [64]}, "strategy": {}}, mlp, tmp_path, grid={})
    row = searched.table.row(0, named=True)
    fabric = rostam.fabric("torus", dims=(2, 4))
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    best = rostam.search(mlp, machine, batches=[64], software="ideal").best
    assert row["iteration_time_s"] == best.simulated_s
    strategy = rostam.Strategy.of(**json.loads(row["strategy_settings"]))
    plan = rostam.place(mlp, machine, global_batch=row["global_batch"], strategy=strategy, software="ideal")
    assert rostam.simulate(plan).iteration_time_s == row["iteration_time_s"]


def test_process_pool_and_driver_give_equal_bytes(base, mlp, tmp_path):
    one = inline(base, mlp, tmp_path / "a")
    two = run_sweep(
        base, grid=GRID, graphs={"mlp": mlp}, out=tmp_path / "b", backend="process", workers=2, details=0
    )  # fmt: skip
    assert two.table.equals(one.table)
    for name in ("points.parquet", "points.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_ray_is_left_where_a_model_cannot_be_traced(base, tmp_path):
    ray = pytest.importorskip("ray")
    model = tmp_path / "mine.py"
    model.write_text("class Net: pass\n")
    with pytest.raises(ConfigError):
        run_sweep(base | {"model": f"{model}:Net"}, out=tmp_path / "c", backend="ray", workers=1, details=0)
    assert not ray.is_initialized()


def test_more_values_of_an_axis_evaluate_only_what_is_new(base, mlp, tmp_path):
    tallies = []
    inline(base, mlp, tmp_path, grid={"seed": [0, 1]})
    inline(base, mlp, tmp_path, grid={"seed": [0, 1, 2]}, progress=tallies.append)
    assert (tallies[-1].stored, tallies[-1].done) == (2, 1)


def test_sweeps_can_share_a_store(base, mlp, tmp_path):
    store = str(tmp_path / "shared")
    tallies = []
    inline(base, mlp, tmp_path / "a", store=store)
    result = inline(base, mlp, tmp_path / "b", store=store, progress=tallies.append)
    assert tallies == []
    assert result.num_points == 4


def test_two_sweeps_in_one_folder_at_once_are_refused(base, mlp, tmp_path):
    import fcntl

    store = Store(tmp_path / "store")
    with open(store.folder / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="in use by another sweep"):
            inline(base, mlp, tmp_path)


def test_details_are_written_for_the_most_stressed_points(base, mlp, tmp_path):
    run_sweep(base, grid=GRID, graphs={"mlp": mlp}, out=tmp_path, backend="inline", details=2)
    result = SweepResult.load(tmp_path)
    keys = result.manifest["details"]
    assert len(keys) == 2
    rows = [row for row in result.table.to_dicts() if row["key"] in keys]
    assert len({row["fabric"] for row in rows}) == min(2, result.table["fabric"].n_unique())
    assert {path.name for path in (tmp_path / "details").iterdir()} == {f"{key}.json.gz" for key in keys}


def test_an_unfinished_sweep_is_not_loaded(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no points.parquet"):
        SweepResult.load(tmp_path)


def test_a_stopped_sweep_leaves_a_table_of_what_is_finished(base, mlp, tmp_path):
    def stop(tally):
        if tally.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inline(base, mlp, tmp_path, progress=stop)
    part = SweepResult.load(tmp_path)
    assert (part.num_points, part.is_complete) == (3, False)
    whole = inline(base, mlp, tmp_path)
    assert whole.is_complete
    assert whole.table.filter(pl.col("key").is_in(part.table["key"].to_list())).equals(part.table)


def test_dry_run_counts_what_is_left_and_writes_nothing(base, mlp, tmp_path):
    sweep = Sweep(base, grid=GRID, graphs={"mlp": mlp})
    estimate = sweep.estimate(tmp_path / "none", SweepOptions(backend="inline"))
    assert (estimate.num_points, estimate.num_stored, estimate.left) == (4, 0, 4)
    assert estimate.seconds > 0
    assert not (tmp_path / "none").exists()
    sweep.run(tmp_path / "done", SweepOptions(backend="inline", details=0))
    estimate = sweep.estimate(tmp_path / "done", SweepOptions(backend="inline"))
    assert (estimate.num_stored, estimate.left, estimate.seconds) == (4, 0, 0.0)


def test_a_point_in_a_file_and_in_a_part_counts_once(tmp_path):
    store = Store(tmp_path)
    row = {"key": "k", "status": "ok", "iteration_time_s": 0.1 + 0.2}
    write_point(tmp_path, row, 1.0)
    content = (tmp_path / "k.json").read_bytes()
    store.fold()
    assert not (tmp_path / "k.json").exists()
    (tmp_path / "k.json").write_bytes(content)  # the driver was killed between writing the part and this removal
    assert store.finished() == {"k": 1.0}
    assert store.frame().select("key", "iteration_time_s").rows() == [("k", 0.1 + 0.2)]


def test_half_a_file_is_not_a_point(tmp_path):
    (tmp_path / ".k.json.123.tmp").write_bytes(b'{"key": "k", "wall')
    assert Store(tmp_path).finished() == {}


def test_a_lost_worker_is_an_error_that_the_next_sweep_tries_again(tmp_path):
    store = Store(tmp_path)
    write_point(tmp_path, {"key": "k", "status": "error", "error_type": "WorkerLost"}, 0.0)
    store.fold()
    assert store.finished() == {}
    write_point(tmp_path, {"key": "k", "status": "ok"}, 2.0)
    assert store.finished() == {"k": 2.0}
    assert store.frame()["status"].to_list() == ["ok"]


@pytest.mark.parametrize(
    ("error_type", "is_final"), [("DegreeError", True), ("NoRouteError", True), ("OSError", False)]
)
def test_errors_of_the_machine_are_tried_again_those_of_the_point_are_not(tmp_path, error_type, is_final):
    write_point(tmp_path, {"key": "k", "status": "error", "error_type": error_type}, 0.0)
    assert ("k" in Store(tmp_path).finished()) == is_final
    Store(tmp_path).fold()
    assert ("k" in Store(tmp_path).finished()) == is_final


def test_a_damaged_store_says_which_file(tmp_path):
    (tmp_path / "part-0.parquet").write_bytes(b"not parquet")
    with pytest.raises(ConfigError, match=r"part-0.parquet cannot be read"):
        Store(tmp_path).finished()


def test_a_point_that_kills_its_worker_every_time_becomes_an_error_row(base, mlp, tmp_path, monkeypatch):
    """Workers unpickle the graph's name first: a graph that ends its process stands for a point out of memory."""
    result = run_sweep(
        base, grid={"model": ["graph:mlp", "graph:deadly"]}, graphs={"mlp": mlp, "deadly": Deadly(mlp)},
        out=tmp_path, backend="process", workers=2, details=0,
    )  # fmt: skip
    assert result.table["status"].to_list() == ["ok", "error"]
    assert result.table["error_type"].to_list() == [None, "WorkerLost"]
    assert "died 3 times" in result.table["error"][1]


class Deadly:
    """A graph whose first use in another process is that process's end."""

    def __init__(self, graph):
        self.graph, self.home = graph, os.getpid()

    def save(self, path):
        """Save the graph in its place."""
        self.graph.save(path)

    def __getattr__(self, name):
        if name in ("graph", "home") or name.startswith("__"):
            raise AttributeError(name)
        if os.getpid() != self.home:
            os.kill(os.getpid(), 9)
        return getattr(self.graph, name)


def test_the_table_has_the_documented_columns(base, mlp, tmp_path):
    result = inline(base, mlp, tmp_path)
    assert result.table.columns[:4] == ["index", "fabric.link_bandwidth", "strategy.tp", "fabric"]
    assert set(column_types()) <= set(result.table.columns)
    assert (
        pl.read_csv(tmp_path / "points.csv")["iteration_time_s"].to_list() == result.table["iteration_time_s"].to_list()
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backend": "spark"}, "sweep.backend is 'spark'"),
        ({"workers": 0}, "sweep.workers is 0"),
        ({"backend": "process", "address": "auto"}, "sweep.address is 'auto', but sweep.backend=process"),
        ({"retries": -1}, "sweep.retries is -1"),
    ],
)
def test_bad_options_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        SweepOptions(**options)


def test_a_cluster_that_is_not_there_is_a_clear_error(base, mlp, tmp_path, monkeypatch):
    # "auto" finds whatever cluster runs on this machine, that of a test in another worker too.
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", functools.cache(set))
    with pytest.raises(ConfigError, match=r"sweep.address is 'auto', but no Ray cluster answers"):
        run_sweep(base, grid=GRID, graphs={"mlp": mlp}, out=tmp_path, backend="ray", address="auto")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_an_error_at_once(base, mlp, tmp_path, scheme):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{scheme}127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ConfigError, match=f"sweep.address is '{address}', but no Ray cluster answers there .*refused"):
        run_sweep(base, grid=GRID, graphs={"mlp": mlp}, out=tmp_path, backend="ray", address=address)


def test_a_worker_that_does_not_see_the_store_hands_its_rows_back(base, mlp, tmp_path):
    points = Sweep(base, grid=GRID, graphs={"mlp": mlp}).points
    batch = Batch(tuple((p.key, p.settings) for p in points))
    (tmp_path / TOKEN_FILE).write_text("of this sweep")
    evaluator = Evaluator({"graph:mlp": mlp}.__getitem__)
    far = evaluate_batch(evaluator, Work("of another machine's folder", str(tmp_path), code_version()), batch)
    assert [one.row["key"] for one in far] == [p.key for p in points]
    assert Store(tmp_path).finished() == {}
    near = evaluate_batch(evaluator, Work("of this sweep", str(tmp_path), code_version()), batch)
    assert [one.row for one in near] == [None] * 4
    assert set(Store(tmp_path).finished()) == {p.key for p in points}
    assert evaluate_batch(evaluator, Work("of this sweep", str(tmp_path), code_version()), batch) == ()


def test_rows_that_workers_hand_back_are_stored_by_the_driver(base, mlp, tmp_path):
    points = Sweep(base, grid=GRID, graphs={"mlp": mlp}).points
    store = Store(tmp_path)
    backend = InlineBackend(Work("unseen", str(tmp_path), code_version()), {"graph:mlp": mlp})
    Driver(store, backend, points, Tally(total=4), retries=0, progress=lambda tally: None).run()
    assert set(store.finished()) == {p.key for p in points}


def test_a_store_that_cannot_be_written_is_a_clear_error(base, mlp, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rostam_py.sweep.store.write_atomically", full)
    with pytest.raises(ConfigError, match=r"store cannot be written \(No space left on device\); make room"):
        inline(base, mlp, tmp_path)


@pytest.mark.parametrize("out", ["/proc/foo", "file", "file/below"])
def test_a_folder_that_cannot_be_is_a_clear_error(base, mlp, tmp_path, out):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"out is '.*'; it must be a folder that can be written to \("):
        inline(base, mlp, tmp_path / out)
    with pytest.raises(ConfigError, match=r"sweep.store is '.*'; it must be a folder"):
        inline(base, mlp, tmp_path / "good", store=str(tmp_path / out))
    assert {path.name for path in tmp_path.iterdir()} == {"file"}


def test_a_worker_with_other_code_is_refused(base, mlp, tmp_path):
    work = Work("token", str(tmp_path), "0.0.0+other")
    with pytest.raises(ConfigError, match=r"the sweep began with 0.0.0\+other"):
        evaluate_batch(Evaluator({"graph:mlp": mlp}.__getitem__), work, Batch(()))


def test_plans_of_a_program_that_reads_servers_are_made_for_servers_of_each_size():
    """Rows go once to each server: how many a group of 8 spans is the program's to find out, point by point."""
    graph = rostam.trace("mixtral_8x7b", num_layers=1)
    fabrics = [{"name": "electrical_cluster", "num_accelerators": 8, "server_size": size} for size in (2, 8)]
    software = {"name": "megatron_core", "moe_token_dispatcher_type": "flex"}
    strategy = {"ep": 8, "precision": "bf16_mixed", "check_memory": False}
    base = {"model": "graph:moe", "global_batch": 8, "strategy": strategy, "software": software}
    one = Evaluator({"graph:moe": graph}.__getitem__)
    times = []
    for point in Sweep(base, grid={"fabric": fabrics}, graphs={"moe": graph}).points:
        machine = rostam.Machine(fabric=rostam.fabric(**point.settings["fabric"]), accelerator="a100_80gb")
        plan = rostam.place(
            graph, machine, global_batch=8, strategy=rostam.Strategy.of(dp=8, **strategy), software=software
        )
        times.append(one.row(point.key, point.settings)["iteration_time_s"])
        assert times[-1] == rostam.simulate(plan).iteration_time_s
    assert times[0] != times[1]
