"""A signal ends what the core is at: Ctrl-C works however long it has been busy, in event loops and out of them."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import rostam_py as rostam


class _Stopped(Exception):
    pass


@contextmanager
def _alarm() -> Iterator[None]:
    """Raise _Stopped in 0.2 s, from a handler that Python runs as it runs Ctrl-C's."""

    def stop(number: int, frame: object) -> None:
        raise _Stopped

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _torus(side: int) -> Any:
    return rostam.fabric("torus", dims=[side, side], link_bandwidth="50 Gb/s")


def test_a_signal_ends_a_collective_and_the_next_run_is_whole() -> None:
    torus, order = _torus(16), np.random.default_rng(0).permutation(256).tolist()
    with _alarm(), pytest.raises(_Stopped):
        rostam.run_collective(torus, "all_reduce", num_bytes="64 MB", algorithm="ring", ranks=order)  # takes 15 s
    flat = rostam.fabric("electrical_flat", num_accelerators=4, link_bandwidth="8 Gb/s", latency="0 s")
    assert rostam.run_collective(flat, "all_reduce", num_bytes=4000, algorithm="ring").time_s == pytest.approx(6e-6)


def test_a_signal_ends_flows() -> None:
    torus = _torus(32)
    src, dst = np.random.default_rng(0).integers(0, 1024, (2, 40000))
    sizes = np.random.default_rng(1).integers(10**5, 10**7, 40000)
    keep = src != dst
    flows = {"src": src[keep].tolist(), "dst": dst[keep].tolist(), "num_bytes": sizes[keep].tolist()}
    with _alarm(), pytest.raises(_Stopped):
        rostam.run_flows(torus, **flows)


_HEAD = "import sys, time, numpy as np, rostam_py as rostam\nfrom rostam_py import _core\n"
_PAIRS = "pairs = [(a, b) for a in range(n) for b in range(n) if a != b]\nsrc, dst = np.array(pairs).T\n"
_SIZES = "sizes = np.random.default_rng(0).uniform(1, 9, len(src))\n"
# Work that would go on for many seconds, most of it outside event loops: what is prepared, and the work.
_LONG = {
    "check": (
        "router = rostam.fabric('torus', dims=[20, 20, 8]).router('spray', enable_bundling=False)",
        "_core.channel_dependencies(router, list(range(3200)), 'routing')",
    ),
    "dfsssp": (
        "fabric = rostam.fabric('torus', dims=[16, 16, 16])",
        "rostam.run_collective(fabric, 'all_reduce', num_bytes=10**6, routing='dfsssp', fidelity='packet')",
    ),
    "adaptive": (
        "src, dst = np.random.default_rng(0).permuted([list(range(64))] * 40, axis=1).reshape(2, -1)\nk = src != dst\n"
        "fabric = rostam.fabric('torus', dims=[4, 4, 4])",
        "rostam.run_flows(fabric, src=src[k].tolist(), dst=dst[k].tolist(),"
        " num_bytes=np.random.default_rng(1).integers(10**5, 10**7, k.sum()).tolist(), routing='adaptive')",
    ),
}
_LONGER = {
    "links": ("", "rostam.fabric('torus', dims=[200, 200, 100])"),
    "diameter": (
        "fabric = rostam.fabric('torus', dims=[64, 64, 8]).with_failures(links=[0])",
        "fabric.diameter()",
    ),
    "loads": (
        "fabric = rostam.fabric('torus', dims=[64, 64, 4]).with_failures(links=[0])",
        "rostam.run_collective(fabric, 'all_to_all', num_bytes='1 GB', fidelity='analytic')",
    ),
    "valiant": (
        "fabric = rostam.fabric('hyperx', dims=[24, 24, 24]).with_failures(links=[0])",
        "rostam.run_collective(fabric, 'all_to_all', num_bytes='1 GB', fidelity='analytic', routing='valiant')",
    ),
    "ugal": (
        "fabric = rostam.fabric('dragonfly', routers_per_group=16, terminals_per_router=8, global_links_per_router=8,"
        " num_groups=65)\nrouter = fabric.router('ugal', enable_bundling=False)",
        "_core.all_to_all_loads(router, list(range(fabric.num_accelerators)), 1.0)",
    ),
    "layers": ("fabric = rostam.fabric('torus', dims=[40, 40])", "fabric.router('layers:8')"),
    "folding": (
        "fabric = rostam.fabric('torus', dims=[32, 32]).with_failures(links=[0])",
        "rostam.run_collective(fabric, 'all_to_all', num_bytes='1 GB', algorithm='balanced_shift')",
    ),
    "channels": (
        "fabric = rostam.fabric('fat_tree', num_accelerators=4096, radix=64)",
        "rostam.run_collective(fabric, 'all_to_all', num_bytes='1 GB', algorithm='direct', routing='hash')",
    ),
    "rates": (
        "src, dst = np.random.default_rng(0).integers(0, 1024, (2, 400000))\nk = src != dst\n"
        "fabric = rostam.fabric('torus', dims=[32, 32])",
        "rostam.run_flows(fabric, src=src[k].tolist(), dst=dst[k].tolist(),"
        " num_bytes=np.random.default_rng(1).integers(10**5, 10**7, k.sum()).tolist())",
    ),
    "trees": (
        "n = 48\nrng = np.random.default_rng(0)\nways = [(a, b, [a * n + b], [1.0]) for a in range(n) for b in range(n)"
        " if a != b and (rng.random() < 0.3 or (b - a) % n == 1)]",
        "_core.pack_trees(n, ways, rng.uniform(1, 9, n * n).tolist(), 4096)",
    ),
    "relays": (
        f"n = 256\n{_PAIRS}{_SIZES}",
        "_core.set_ocs_circuits(n, src, dst, sizes, 64, False, False, True, False)",
    ),
    "colours": (
        f"n = 2048\n{_PAIRS}{_SIZES}",
        "_core.set_ocs_circuits(n, src, dst, sizes, 2200, False, False, False, False)",
    ),
    "wavelengths": (
        f"n = 128\n{_PAIRS}{_SIZES}",
        "_core.set_ring_wavelengths(n, src, dst, sizes, 4096, n, [], 0, False, [])",
    ),
    "steps": ("schedule = _core.Schedule('all_to_all', 'direct', 16384)", "schedule.distinct_steps()"),
}


def _interrupted(prepare: str, work: str, after_s: float) -> tuple[float, str]:
    """Return the CPU seconds that work goes on for after Ctrl-C, and what it raised."""
    body = "\n".join(f"    {line}" for line in work.splitlines())
    said = "print(time.process_time() - begun, type(error).__name__, flush=True)"
    program = (
        f"{_HEAD}{prepare}\nbegun = time.process_time()\nprint(flush=True)\ntry:\n{body}\n"
        f"except BaseException as error:\n    {said}\nelse:\n    print(0, 'nothing', flush=True)\n"
        "import os\nos._exit(0)\n"
    )
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    try:
        seconds, raised = process.communicate(timeout=60)[0].split()
    finally:
        process.kill()
    return float(seconds) - after_s, raised


@pytest.mark.parametrize("name", _LONG)
def test_ctrl_c_ends_long_work_that_is_no_event_loop(name: str) -> None:
    seconds, raised = _interrupted(*_LONG[name], after_s=0.6)
    assert raised == "KeyboardInterrupt"
    assert seconds < 3


@pytest.mark.slow
@pytest.mark.parametrize("name", _LONGER)
def test_ctrl_c_ends_each_other_kind_of_long_work(name: str) -> None:
    seconds, raised = _interrupted(*_LONGER[name], after_s=1)
    assert raised == "KeyboardInterrupt"
    assert seconds < 3
