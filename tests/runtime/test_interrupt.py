"""A signal ends a run that is under way: Ctrl-C works however long the core has been busy."""

import signal
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
