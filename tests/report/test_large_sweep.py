"""A sweep of 100,000 points: loading and reporting stay within 2 GB, the page within 10 MB."""

import json
import subprocess
import sys

import pytest

_MEASURE = """
import json, sys
from rostam_py.report.report import write_report
path = write_report(sys.argv[1])
# Not ru_maxrss: it remembers the process that started this one.
used = 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
print(json.dumps([used, path.stat().st_size]))
"""


def _measured(folder):
    done = subprocess.run([sys.executable, "-c", _MEASURE, str(folder)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_hundred_thousand_points_are_reported_in_2_gb(run_sweep, mix_sweep, tmp_path):
    gigabits = (100, 200, 400, 800, 1200, 1600, 2400, 3200, 6400, 8000)
    runs = run_sweep(tmp_path / "run", seeds=250, tps=(1, 2, 4, 8), gigabits=gigabits, num_errors=500)
    for folder in (runs, mix_sweep(tmp_path / "mix", seeds=10_000)):
        num_bytes, page = _measured(folder)
        assert num_bytes < 2e9
        assert page < 10e6
