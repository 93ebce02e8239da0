"""Ray that a sweep starts: on loopback alone, for nobody without its token, and gone with its driver."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rostam_py.errors import ConfigError
from rostam_py.sweep import local_ray, run_sweep
from rostam_py.sweep.processes import end_processes, listening_beyond_loopback, processes_using

GRID = {"fabric.link_bandwidth": ["100 Gb/s", "400 Gb/s"], "strategy.tp": [1, 2]}
# Nobody told it a token; loopback, as Ray's own macOS mode, or it would look for the cluster at the outside address.
STRANGER = """
import os, sys
os.environ |= {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_USAGE_STATS_ENABLED": "0"}
import ray
from ray._private import ray_constants
ray_constants.ENABLE_RAY_CLUSTER = False
try:
    ray.init(address=sys.argv[1], log_to_driver=False)
except ConnectionError:
    sys.exit(7)
sys.exit(0)
"""
HOLDER = """
import sys, time
from rostam_py.sweep.local_ray import _locked_folder
import subprocess
with _locked_folder() as folder:
    code = "import sys, time; f = open(sys.argv[1], 'w'); print('open', flush=True); time.sleep(600)"
    left = subprocess.Popen([sys.executable, "-c", code, str(folder / "log")], stdout=subprocess.PIPE)
    left.stdout.readline()
    print(folder, left.pid, flush=True)
    time.sleep(600)
"""
# A cluster with a token, as a user's own, and a driver that joins one at an address.
CLUSTER = """
import os, sys, time
import ray
from rostam_py.sweep.local_ray import loopback_only
with loopback_only() as folder:
    made = ray.init(
        address="local", num_cpus=1, include_dashboard=False, object_store_memory=2**27, _temp_dir=str(folder)
    )
    print(made.address_info["address"], os.environ["RAY_AUTH_TOKEN"], flush=True)
    sys.stdin.read()
    ray.shutdown()
"""
JOIN = """
import os, sys
os.environ["RAY_NUM_REDIS_GET_RETRIES"] = "2"
from ray._private import ray_constants
ray_constants.ENABLE_RAY_CLUSTER = False
from rostam_py.errors import ConfigError
from rostam_py.sweep.ray_backend import start_ray
import ray
try:
    leave = start_ray(0, sys.argv[1])
except ConfigError as error:
    sys.exit(str(error))
print(ray.get(ray.remote(lambda: "computed").remote()))
leave()
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Folders of Ray below one of the test's own."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


def is_running(pid):
    """Say whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def tree(pid):
    """Return a process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found = [pid]
    for one in found:  # grows as it goes
        found += [child for child, parent in parents.items() if parent == one]
    return found


def listening_inodes():
    """Return the inode of each listening TCP socket: is it on loopback? Loopback is 127.*, ::1, ::ffff:127.*."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                address = fields[1].partition(":")[0]
                is_mapped = address.startswith("0000000000000000FFFF0000")
                is_four = len(address) == 8 or is_mapped
                loopback = address.endswith("7F") if is_four else address == "00000000000000000000000001000000"
                found[f"socket:[{fields[9]}]"] = loopback
    return found


def sockets_of(pids):
    """Return {pid: [is each of its listening sockets on loopback]}."""
    inodes, found = listening_inodes(), {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(entry)
                    if target in inodes:
                        found.setdefault(pid, []).append(inodes[target])
    return found


def test_sockets_beyond_loopback_are_found():
    with contextlib.ExitStack() as stack:
        for address in ("127.0.0.1", "127.8.9.1"):
            stack.enter_context(socket.create_server((address, 0)))
        with contextlib.suppress(OSError):  # a machine without IPv6
            stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        assert listening_beyond_loopback([os.getpid()]) == []
        everywhere = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        port = everywhere.getsockname()[1]
        (found,) = listening_beyond_loopback([os.getpid(), 2**22 + 1])  # the second is no process
        assert found.startswith(f"0.0.0.0:{port} (")
        assert listening_beyond_loopback([os.getppid()]) == []


def test_only_processes_with_files_of_the_folder_are_ended(tmp_path):
    code = "import sys, time; f = open(sys.argv[1], 'w'); print('open', flush=True); time.sleep(600)"
    for name in ("one", "one-more"):
        (tmp_path / name).mkdir()
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / name / "f")], stdout=subprocess.PIPE)
        for name in ("one", "one-more")
    ]
    with contextlib.ExitStack() as stack, open(tmp_path / "one" / "own", "w", encoding="utf-8"):
        for process in started:
            stack.callback(process.wait)
            stack.callback(process.kill)
            process.stdout.readline()
        assert processes_using(tmp_path / "one") == [started[0].pid]  # not this process
        end_processes(tmp_path / "one")
        assert started[0].wait(10) == -signal.SIGKILL
        assert is_running(started[1].pid)


def test_what_a_killed_driver_left_is_ended_at_the_next_start_and_what_a_living_one_has_is_not(root):
    drivers = [subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        (dead, dead_pid), (alive, alive_pid) = (driver.stdout.readline().split() for driver in drivers)
        assert oct(Path(alive).stat().st_mode)[-3:] == "700"
        drivers[0].kill()
        drivers[0].wait()
        assert is_running(int(dead_pid))
        local_ray.end_abandoned()
        end = time.monotonic() + 60
        while is_running(int(dead_pid)):  # the kernel is at it
            assert time.monotonic() < end
            time.sleep(0.01)
        assert is_running(int(alive_pid))
        assert (Path(dead).exists(), Path(alive).exists()) == (False, True)
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
        local_ray.end_abandoned()
    assert list(root.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", "/proc")
    with pytest.raises(ConfigError, match="Ray's files cannot be written to /proc"), local_ray._locked_folder():
        pass


def test_a_sweep_on_ray_gives_equal_bytes_listens_on_loopback_alone_and_refuses_a_stranger(
    base, mlp, tmp_path, monkeypatch
):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # what the user set for clusters of his own
    seen, refused = [], []

    def look(tally):
        if tally.done and not seen:
            seen.append(sockets_of(tree(os.getpid())))
            address = ray.get_runtime_context().gcs_address
            without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
            asked = subprocess.run(
                [sys.executable, "-c", STRANGER, address], env=without | {"HOME": str(tmp_path)},
                capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            refused.append((asked.returncode, "InvalidAuthToken" in asked.stdout + asked.stderr))

    arguments = {"grid": GRID, "graphs": {"mlp": mlp}, "details": 0}
    run_sweep(base, **arguments, out=tmp_path / "ray", backend="ray", workers=2, progress=look)
    run_sweep(base, **arguments, out=tmp_path / "inline", backend="inline")
    for name in ("points.parquet", "points.csv"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "inline" / name).read_bytes()
    (sockets,) = seen
    assert len(sockets) >= 4  # this process, gcs_server, raylet, a worker
    assert all(loopback for found in sockets.values() for loopback in found)
    assert refused == [(7, True)]
    assert {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH")} == {
        "RAY_AUTH_MODE": "disabled"
    }
    assert list(Path("/tmp").glob(f"{local_ray._PREFIX}*/session_*_{os.getpid()}")) == []


def test_a_ray_that_listens_for_others_is_not_used(base, mlp, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    with socket.create_server(("0.0.0.0", 0)):
        monkeypatch.setattr(ray, "init", lambda **settings: None)
        monkeypatch.setattr(ray, "shutdown", lambda: None)
        with pytest.raises(ConfigError, match=r"listens on 0\.0\.0\.0:\d+ .*take sweep.backend=process"):
            run_sweep(base, grid=GRID, graphs={"mlp": mlp}, out=tmp_path, backend="ray", workers=1, details=0)


@pytest.mark.slow
def test_a_users_cluster_is_joined_with_the_users_token(tmp_path):
    pytest.importorskip("ray")
    without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    cluster = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], env=without, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        address, token = cluster.stdout.readline().split()
        (tmp_path / "token").write_text(token)
        (tmp_path / ".ray").mkdir()
        cases = [
            ({"RAY_AUTH_TOKEN": token}, ""), ({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}, ""),
            ({}, "no Ray cluster that lets you in"), ({"RAY_AUTH_TOKEN": "ab" * 32}, "no Ray cluster that lets you in"),
            ({"RAY_AUTH_MODE": "token"}, "~/.ray/auth_token, RAY_AUTH_TOKEN or the file that RAY_AUTH_TOKEN_PATH"),
        ]  # fmt: skip
        for variables, words in cases:
            ran = subprocess.run(
                [sys.executable, "-c", JOIN, address], env=without | {"HOME": str(tmp_path)} | variables,
                capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            assert (ran.returncode, "computed" in ran.stdout) == ((1, False) if words else (0, True)), ran.stderr
            assert words in ran.stderr
    finally:
        cluster.communicate("")


@pytest.mark.slow
def test_processes_of_ray_end_with_a_killed_driver(start_driver, mlp_path, tmp_path):
    pytest.importorskip("ray")
    base = {"model": "graph:mlp", "fabric": {"name": "torus", "dims": [2, 4]}, "global_batch": 64}
    arguments = {"base": base, "grid": GRID, "graph": mlp_path, "out": str(tmp_path), "backend": "ray", "details": 0}
    driver = start_driver(**arguments, workers=1, hold_at=1)
    driver.wait_until_held()
    started = tree(driver.process.pid)[1:]
    assert len(started) >= 5
    driver.kill()
    time.sleep(2)
    local_ray.end_abandoned()  # what the next start does first
    end = time.monotonic() + 10
    while left := [pid for pid in started if is_running(pid)]:
        assert time.monotonic() < end, left
        time.sleep(0.1)
