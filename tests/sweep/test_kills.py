"""Kills in mid-sweep: nothing finished is repeated or lost, and the table ends the same to the byte.

A point's wall time is as good as random: if what the store says at the end equals what a worker wrote before the kill,
the point was not evaluated again.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

import polars as pl
import pytest

NUM_POINTS = 30


def slow_points(mlp_path, out, **options):
    """Return a sweep of 30 points of about 40 ms: 64 accelerators, each simulated, messages on hashed paths."""
    base = {
        "model": "graph:mlp", "fabric": {"name": "fat_tree", "num_accelerators": 64, "radix": 16}, "fold": False,
        "global_batch": 512, "strategy": {"precision": "fp32"},
        "software": {"name": "ideal", "rules": {"bucket_size": "40 kB"}}, "routing": "hash",
    }  # fmt: skip
    return {"base": base, "grid": {"seed": list(range(NUM_POINTS))}, "graph": mlp_path, "out": str(out), **options}


def wall_times(folder):
    """Return {key: wall seconds} of a finished sweep."""
    return dict(pl.read_parquet(Path(folder) / "timings.parquet").iter_rows())


def table_bytes(folder):
    """Return the bytes of both tables."""
    return [(Path(folder) / name).read_bytes() for name in ("points.parquet", "points.csv")]


def check_nothing_was_repeated(folder, before, uninterrupted):
    """Check that points stored before a kill kept their own times, and that the table is that of a calm sweep."""
    after = wall_times(folder)
    assert {key: after[key] for key in before} == before
    assert table_bytes(folder) == uninterrupted


@pytest.fixture(scope="module")
def uninterrupted(start_driver, mlp_path, tmp_path_factory):
    """The table's bytes without kills, on one worker in the driver's own process."""
    folder = tmp_path_factory.mktemp("calm")
    told = start_driver(**slow_points(mlp_path, folder, backend="inline", details=0)).finish()
    assert told == {"points": NUM_POINTS, "errors": 0, "stored": 0, "done": NUM_POINTS, "lost": 0}
    return table_bytes(folder)


def workers_of(pid):
    """Return the processes below a process, by reading /proc."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        found += new
    return found


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_driver_goes_on_where_it_was(start_driver, workers, mlp_path, tmp_path, uninterrupted):
    arguments = slow_points(mlp_path, tmp_path, backend="process", workers=workers, details=0)
    driver = start_driver(**arguments, hold_at=NUM_POINTS // 3)
    driver.wait_until_held()
    workers_left = workers_of(driver.process.pid)
    driver.kill()
    for pid in workers_left:
        with contextlib.suppress(ProcessLookupError):  # it may have noticed already
            os.kill(pid, signal.SIGKILL)
    before = driver.stored()
    told = start_driver(**arguments).finish()
    assert NUM_POINTS // 3 <= len(before) < NUM_POINTS
    assert told["stored"] == len(before)
    assert told["done"] == NUM_POINTS - len(before)
    check_nothing_was_repeated(tmp_path, before, uninterrupted)
    after = wall_times(tmp_path)
    again = start_driver(**arguments).finish()
    assert (again["stored"], again["done"]) == (NUM_POINTS, 0)
    assert wall_times(tmp_path) == after
    assert table_bytes(tmp_path) == uninterrupted


def is_running(pid):
    """Say whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_end_soon_after_their_driver_is_killed(start_driver, mlp_path, tmp_path):
    arguments = slow_points(mlp_path, tmp_path, backend="process", workers=2, details=0)
    driver = start_driver(**arguments, hold_at=NUM_POINTS // 4)
    driver.wait_until_held()
    workers = workers_of(driver.process.pid)
    assert len(workers) >= 2
    driver.kill()
    end = time.monotonic() + 120
    while any(map(is_running, workers)):
        assert time.monotonic() < end, "workers outlive their driver"
        time.sleep(0.1)


def test_killed_worker_costs_only_the_point_it_computed(start_driver, mlp_path, tmp_path, uninterrupted):
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        driver = start_driver(**slow_points(mlp_path, folder, backend="process", workers=2, details=0))
        driver.wait_for(NUM_POINTS // 4)
        before = driver.stored()
        busy = sorted(workers_of(driver.process.pid), key=cpu_ticks)[-1:]
        for pid in busy:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        told = driver.finish()
        assert (told["done"], told["errors"]) == (NUM_POINTS, 0)
        check_nothing_was_repeated(folder, before, uninterrupted)
        if told["lost"]:
            return
    pytest.fail("no kill in five sweeps came while a worker computed")  # on a busy machine one or two come too late


def cpu_ticks(pid):
    """Return the CPU time that a process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[11]) + int(fields[12])


def busy_ray_workers(raylet):
    """Return the workers of a raylet that run a task now; Ray writes into their titles what they do."""
    found = []
    for pid in workers_of(raylet):
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::_run_task"):
            found.append(pid)
    return found


def wait_for(answer, timeout_s=60):
    """Return the first true answer."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if found := answer():
            return found
        time.sleep(0.005)
    raise TimeoutError("no Ray worker ran a task")


@pytest.fixture
def ray_cluster():
    """A head without CPUs, for the driver, and two nodes of one CPU each; real raylets, on this machine."""
    ray_cluster = pytest.importorskip("ray.cluster_utils")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    cluster = ray_cluster.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 2**27})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=2**27) for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster, nodes
    cluster.shutdown()


@pytest.mark.slow
def test_a_node_that_joins_is_counted(ray_cluster, tmp_path):
    from rostam_py.sweep import ray_backend as module
    from rostam_py.sweep.backend import Work
    from rostam_py.sweep.identity import code_version

    cluster, _ = ray_cluster
    work = Work("t", str(tmp_path), code_version())
    backend = module.RayBackend(work, {}, 0, module.start_ray(0, cluster.address))
    try:
        assert backend.num_workers == 2
        cluster.add_node(num_cpus=3, object_store_memory=2**27)
        cluster.wait_for_nodes()
        backend._count_workers()
        assert backend.num_workers == 5
    finally:
        backend.close()


@pytest.mark.slow
def test_killed_node_of_a_ray_cluster_costs_only_the_point_it_computed(
    start_driver, ray_cluster, mlp_path, tmp_path, uninterrupted
):
    cluster, nodes = ray_cluster
    arguments = slow_points(mlp_path, tmp_path, backend="ray", address=cluster.address, details=0)
    driver = start_driver(**arguments)
    driver.wait_for(NUM_POINTS // 4)
    before = driver.stored()
    raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
    working = wait_for(lambda: next((pid for pid in raylets if busy_ray_workers(pid)), None))
    for pid in [working, *workers_of(working)]:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    told = driver.finish()
    assert told["lost"] >= 1
    assert (told["done"], told["errors"]) == (NUM_POINTS, 0)
    check_nothing_was_repeated(tmp_path, before, uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_driver_of_a_ray_cluster_goes_on_where_it_was(
    start_driver, workers, ray_cluster, mlp_path, tmp_path, uninterrupted
):
    cluster, _ = ray_cluster
    arguments = slow_points(mlp_path, tmp_path, backend="ray", address=cluster.address, workers=workers, details=0)
    driver = start_driver(**arguments)
    driver.wait_for(NUM_POINTS // 3)
    driver.kill()
    time.sleep(2.0)  # workers that lost their driver may still finish the point at hand
    before = driver.stored()
    told = start_driver(**arguments).finish()
    assert told["done"] == NUM_POINTS - told["stored"] < NUM_POINTS
    check_nothing_was_repeated(tmp_path, before, uninterrupted)


@pytest.mark.slow
def test_killed_worker_of_a_ray_cluster_costs_only_the_point_it_computed(
    start_driver, ray_cluster, mlp_path, tmp_path, uninterrupted
):
    cluster, nodes = ray_cluster
    arguments = slow_points(mlp_path, tmp_path, backend="ray", address=cluster.address, details=0)
    driver = start_driver(**arguments)
    driver.wait_for(NUM_POINTS // 4)
    before = driver.stored()
    raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
    busy = wait_for(lambda: [worker for pid in raylets for worker in busy_ray_workers(pid)])
    os.kill(busy[0], signal.SIGKILL)
    told = driver.finish()
    assert told["lost"] >= 1
    assert (told["done"], told["errors"]) == (NUM_POINTS, 0)
    check_nothing_was_repeated(tmp_path, before, uninterrupted)
