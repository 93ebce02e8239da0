"""A small perceptron traced once, sweeps over it, and drivers in processes of their own that tests may kill."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from rostam_py.tracing import trace

_DRIVER = """
import json, sys
from rostam_py.graph import OperatorGraph
from rostam_py.sweep import run_sweep
given = json.loads(sys.argv[1])
tallies, hold_at = [], given.pop("hold_at", None)

def note(tally):
    tallies.append(tally)
    if hold_at is not None and tally.done >= hold_at:
        print("held", flush=True)
        sys.stdin.read()  # until the test ends

result = run_sweep(graphs={"mlp": OperatorGraph.load(given.pop("graph"))}, progress=note, **given)
last = tallies[-1] if tallies else None
print(json.dumps({"points": result.num_points, "errors": result.num_errors,
                  "stored": last.stored if last else result.num_points, "done": last.done if last else 0,
                  "lost": last.lost if last else 0}))
"""


class Perceptron(nn.Module):
    """(B, 64) -> (B, 64) through four hidden layers."""

    def __init__(self):
        super().__init__()
        widths = [64, 256, 256, 256, 64]
        self.layers = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False)))

    def forward(self, x):
        """Apply all layers."""
        return self.layers(x)


@pytest.fixture(scope="session")
def mlp():
    """The perceptron's graph."""
    return trace(Perceptron(), torch.randn(8, 64), loss_fn=lambda out: out.square().mean(), name="mlp")


@pytest.fixture(scope="session")
def mlp_path(mlp, tmp_path_factory):
    """The same in a file, for other processes."""
    path = tmp_path_factory.mktemp("graphs") / "mlp.json"
    mlp.save(str(path))
    return str(path)


@pytest.fixture
def base():
    """Eight A100s on a torus; data parallel."""
    return {
        "model": "graph:mlp", "fabric": {"name": "torus", "dims": [2, 4]}, "global_batch": 64,
        "strategy": {"precision": "fp32"}, "software": {"name": "ideal"},
    }  # fmt: skip


class Driver:
    """A sweep in another process.

    Args: arguments: of ``run_sweep``; graph: the file of its graph; hold_at: so many points done, the sweep submits no
        more and never ends by itself: what a test does then finds it in the middle, however busy the machine is.
    """

    def __init__(self, **arguments):
        self.folder = Path(arguments["out"])
        command = [sys.executable, "-c", _DRIVER, json.dumps(arguments)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def stored(self):
        """Return {key: wall seconds} of the points' own files; none where the sweep has not made its store yet."""
        found = {}
        store = self.folder / "store"
        for path in store.glob("*.json") if store.exists() else ():
            if not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # the sweep has ended, and put them into one file
                    document = json.loads(path.read_text())
                    found[document["key"]] = document["wall_s"]
        return found

    def wait_until_held(self):
        """Wait until the sweep holds; fail if it ends before."""
        line = self.process.stdout.readline()
        assert line == "held\n", (line, self.process.communicate()[1])

    def wait_for(self, count, timeout_s=300):
        """Wait until so many points are stored; fail if the driver ends before."""
        end = time.monotonic() + timeout_s
        while len(self.stored()) < count:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < end, f"{len(self.stored())} points after {timeout_s} s"
            time.sleep(0.01)

    def kill(self):
        """SIGKILL the driver."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def finish(self, timeout_s=600):
        """Return what the driver printed at its end."""
        out, err = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0, err
        return json.loads(out.splitlines()[-1])  # Ray may say before that a node has died


@pytest.fixture(scope="session")
def start_driver():
    """Return what starts a sweep in another process."""
    return Driver
