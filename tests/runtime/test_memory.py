"""Memory is looked at before it is taken: what is too much is a ConfigError that says how much, and what to do."""

import os
import re
import subprocess
import sys

import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError, HostMemoryError, RostamError

is_sanitized = os.environ.get("ROSTAM_EXPECT_CORE") == "asan"  # sanitizers reserve terabytes of address space
limited = pytest.mark.skipif(
    not sys.platform.startswith("linux") or is_sanitized, reason="limits are read from /proc, and hold no sanitizer"
)

LIMIT_BYTES = 4 * 2**30  # of the address space: most of it is left

HEAD = f"""
import resource, sys
import numpy as np
import rostam_py as rostam
from rostam_py.errors import ConfigError, HostMemoryError
def limit(size):
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
def mapped():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit({LIMIT_BYTES})
"""
TAIL = """
except HostMemoryError as error:
    print("ran out:", error)
except ConfigError as error:
    print("refused:", error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
CASES = {
    # 20,000 x 19,999 links of 64 bytes: 26 GB.
    "links": ('rostam.fabric("hyperx", dims=[20000])', r"fabric hyperx has \d+ links or more, which need about"),
    # 4,096 x 4,095 messages of 600 bytes and more.
    "messages": (
        """rostam.run_collective(rostam.fabric("fat_tree", num_accelerators=4096), "all_to_all", num_bytes="1 MiB",
        algorithm="direct", routing="hash")""",
        r"4096 ranks .*algorithm=balanced_shift",
    ),
    # 16,384 routes over a quarter of the torus each, 64 x 64 places and as many links in two dimensions.
    "flows": (
        """rostam.run_flows(rostam.fabric("torus", dims=(128, 128)), src=range(16384),
        dst=(np.arange(16384) + 128 * 64 + 63) % 16384, num_bytes=[1] * 16384, routing="spray")""",
        r"16384 flows that start together \(\d+\.\d links a route\) need about",
    ),
    # 16,384 x 16,384 / 2 pairs of 72 bytes: 9.7 GB.
    "pairs": (
        'rostam.saturation_throughput(rostam.fabric("fat_tree", num_accelerators=16384), "bisection")',
        r"134,217,728 pairs of pattern bisection between 16,384 accelerators need about 9\.7 GB",
    ),
    # 512 leaf switches x 40,960 links: by its own limit, before any pair is listed.
    "program": (
        'rostam.saturation_throughput(rostam.fabric("fat_tree", num_accelerators=16384), "all_to_all", "optimal")',
        "512 destinations x 40,960 links",
    ),
}
SLOW = ("links",)  # its coordinates are counted before its links, for 20 s


def run(call):
    body = "try:\n    " + call
    done = subprocess.run(
        [sys.executable, "-c", HEAD + body + TAIL], capture_output=True, text=True, timeout=120, check=True
    )
    said, peak = done.stdout.strip().rsplit("\n", 1)
    return said, int(peak)


@limited
@pytest.mark.parametrize("case", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in CASES])
def test_what_would_not_fit_is_refused_before_it_is_taken(case):
    call, expected = CASES[case]
    said, peak = run(call)
    assert said.startswith("refused: ")
    assert re.search(expected, said)
    if case != "program":
        assert re.search(r"need about \d+\.\d GB, but [0-4]\.\d GB are available; take ", said)
    assert peak < LIMIT_BYTES


@limited
def test_memory_that_runs_out_unforeseen_is_an_error_of_its_own():
    said, _ = run('limit(mapped() + 2**25); rostam.fabric("hyperx", dims=[1500])')
    assert said.startswith("ran out: the memory of this computer")
    assert issubclass(HostMemoryError, MemoryError)
    assert issubclass(HostMemoryError, RostamError)


@limited
def test_the_advice_is_not_what_was_asked_for():
    said, _ = (
        run("""rostam.run_collective(rostam.fabric("fat_tree", num_accelerators=4096), "all_to_all", num_bytes="1 MiB",
        algorithm="balanced_shift")""")
    )
    assert re.search(r"\(0 at once.* need about .* GB are available", said)
    assert "balanced_shift" not in said
    assert "hammingmesh" in said


def test_little_is_taken_unseen():
    _core.require_memory(2.5e8, "few", "take fewer")
    with pytest.raises(
        ConfigError, match=r"^many need about 1000000000\.0 GB, but \d+\.\d GB are available; take fewer$"
    ):
        _core.require_memory(1e18, "many", "take fewer")
