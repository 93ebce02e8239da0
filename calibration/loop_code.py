"""Time what a PyTorch training loop takes of a host between the replays of a CUDA graph, on a CPU without a device.

    python -m calibration.loop_code [FOLDER] > rows.csv

The loop is that of NVIDIA's CosmoFlow (mlcommons/hpc_results_v3.0, its trainer.py, optimizer.py and dali_core.py),
written anew: a gradient scaler reads whether a gradient is infinite, a scripted step launches three kernels for each
parameter, the scaler is updated, the next sample is taken from an iterator of DALI's, its logarithm is copied into the
graph's own tensors, and the graph is replayed. Tensors are of one element and streams are stand-ins, so that
Python, the dispatcher and the allocator are timed; left out is what the driver takes (launches, events, replays). The
loop turns once in ``WAIT_S``, for which the host spins as it does on a device: code that runs once in milliseconds
takes longer than in a tight loop. FOLDER has the wheel of nvidia-dali-cuda120 1.29.0 unpacked; without it a batch is
always at hand.
"""

import argparse
import contextlib
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# Of five convolutions and three products with their biases: how many elements they have does not matter.
DIMS = (5, 1, 5, 1, 5, 1, 5, 1, 5, 1, 2, 1, 2, 1, 2, 1)
SAMPLES = 4  # of a batch of the iterator, which gives one to each step
WAIT_S = 2.5e-3  # about what a graph of such a step takes a device
HEADER = "run,part,us,launches"
_TURNS, _REPEATS, _RUNS = 40, 25, 2


@torch.jit.script
def _update(
    parameters: list[Tensor], gradients: list[Tensor], moments: list[Tensor], decay: float, momentum: float, rate: float
) -> list[tuple[Tensor, Tensor]]:
    made: list[tuple[Tensor, Tensor]] = []
    for i, parameter in enumerate(parameters):
        gradient = gradients[i]
        if decay != 0:
            gradient = gradient.add(parameter, alpha=decay)
        moment = moments[i].mul(momentum).add(gradient, alpha=rate)
        parameter.sub_(moment)
        made.append((parameter, moment))
    return made


class _Step(torch.optim.SGD):
    """A step whose update is one scripted function."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            states = [self.state[p] for p in parameters]
            moments = [
                s["momentum_buffer"] if "momentum_buffer" in s else torch.zeros_like(p.grad)
                for p, s in zip(parameters, states, strict=True)
            ]
            gradients = [p.grad for p in parameters]
            made = _update(parameters, gradients, moments, group["weight_decay"], group["momentum"], group["lr"])
            for parameter, moment in made:
                self.state[parameter]["momentum_buffer"] = moment


class _Stream:
    """What a stream, and a graph, look like to the loop."""

    def wait_stream(self, other: "_Stream") -> None: ...
    def replay(self) -> None: ...


class _Samples:
    """An iterator over samples that takes a batch of them at a time."""

    def __init__(self, batches: Any) -> None:
        self._batches, self._batch, self._count = batches, None, SAMPLES

    def __next__(self) -> tuple[Tensor, Tensor]:
        if self._count >= SAMPLES:
            self._count, self._batch = 0, next(self._batches)
        batch: Any = self._batch
        data, label = batch[0]["data"], batch[0]["label"]
        data, label = data[self._count : self._count + 1], label[self._count : self._count + 1]
        self._count += 1
        return data, label


class OneBatch:
    """An iterator that has its only batch at hand."""

    def __init__(self) -> None:
        self._batch = [{"data": torch.ones(SAMPLES, 1, 1, 1, 1, dtype=torch.int16), "label": torch.ones(SAMPLES, 4)}]

    def __next__(self) -> list[dict[str, Tensor]]:
        return self._batch


def dali_batches() -> Any:
    """Return DALI's iterator over a pipeline that makes a batch of tiny samples on a CPU."""
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    pipeline = Pipeline(batch_size=SAMPLES, num_threads=1, device_id=None, prefetch_queue_depth=4)
    with pipeline:
        data = fn.cast(fn.random.uniform(range=(0.0, 1.0), shape=[1, 1, 1, 1]), dtype=types.INT16)
        pipeline.set_outputs(data, fn.random.uniform(range=(0.0, 1.0), shape=[4]))
    return DALIGenericIterator(pipeline, ["data", "label"], size=1 << 30, auto_reset=True)


def _channels_first(sample: Tensor) -> Tensor:
    strides, shape = sample.stride(), sample.shape
    return torch.as_strided(sample, (shape[0], shape[-1], *shape[1:-1]), (strides[0], strides[-1], *strides[1:-1]))


class Loop:
    """The loop on a CPU. Args: batches: the iterator over batches."""

    def __init__(self, batches: Any) -> None:
        self.parameters = [nn.Parameter(torch.ones((1,) * dims)) for dims in DIMS]
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.step = _Step(self.parameters, lr=0.01, momentum=0.9)
        torch.optim.lr_scheduler.LambdaLR(self.step, lambda epoch: 1.0)  # which puts a counter around the step
        self.scaler = torch.amp.GradScaler("cpu")
        self.scaler.scale(torch.ones(()))
        self.moments = [torch.zeros_like(p) for p in self.parameters]
        self.samples, self.held = _Samples(batches), [torch.ones(1, 1, 1, 1, 1), torch.ones(1, 4)]
        self.current, self.prefetch, self.graph = _Stream(), _Stream(), _Stream()
        self.sample = next(self.samples)

    def run(self, wait_s: float) -> tuple[float, float, float]:
        """Return what the step, the scaler's update and the turn to the next replay take, behind a wait [s of CPU]."""
        self.scaler.unscale_(self.step)
        _spin(wait_s)
        begin = time.thread_time()
        self.scaler.step(self.step)
        stepped = time.thread_time()
        self.scaler.update()
        updated = time.thread_time()
        self._turn()
        return stepped - begin, updated - stepped, time.thread_time() - updated

    def update_alone(self, wait_s: float) -> tuple[float]:
        """Return what the scripted update of the step takes, behind a wait [s of CPU]."""
        gradients: Any = [p.grad for p in self.parameters]
        parameters: Any = self.parameters
        _spin(wait_s)
        begin = time.thread_time()
        with torch.no_grad():
            _update(parameters, gradients, self.moments, 0.0, 0.9, 0.01)
        return (time.thread_time() - begin,)

    def _turn(self) -> None:
        self.current.wait_stream(self.prefetch)
        data, label = _channels_first(self.sample[0]).log1p(), self.sample[1]
        with contextlib.nullcontext(self.prefetch):
            self.sample = next(self.samples)
        with contextlib.nullcontext(self.prefetch):
            self.graph.replay()
        self.held[0].copy_(data)
        self.held[1].copy_(label)
        self.current.wait_stream(self.prefetch)
        self.graph.replay()


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def measure(run: Callable[[float], tuple[float, ...]], wait_s: float = WAIT_S, turns: int = _TURNS) -> list[float]:
    """Return the parts of a call [us of CPU], behind a warm-up.

    Each is the median over groups of as many turns as a batch has samples, and of ``_REPEATS`` such medians the least:
    what else runs on the machine can only add.
    """
    found = []
    for _ in range(_REPEATS + 1):
        parts = [run(wait_s) for _ in range(turns)]
        groups = [parts[k : k + SAMPLES] for k in range(0, turns, SAMPLES)]
        sums = ([math.fsum(column) for column in zip(*group, strict=True)] for group in groups)
        found.append([statistics.median(column) / SAMPLES * 1e6 for column in zip(*sums, strict=True)])
    return [min(column) for column in zip(*found[1:], strict=True)]


def main() -> None:
    """Print the rows: of each part, twice, microseconds of CPU time and the kernels that it launches."""
    parser = argparse.ArgumentParser(prog="python -m calibration.loop_code", description=__doc__)
    parser.add_argument("folder", nargs="?", help="with the package nvidia of nvidia-dali-cuda120")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sys.stdout.write(HEADER + "\n")
    batches: Any = OneBatch()
    if given.folder:
        sys.path.insert(0, given.folder)
        batches = dali_batches()
    launches = 3 * len(DIMS)
    for number in range(1, _RUNS + 1):
        loop = Loop(batches)
        step, update, turn = measure(loop.run)
        (alone,) = measure(loop.update_alone)
        for name, us, kernels in (
            ("step", step, launches), ("scripted update of the step alone", alone, launches),
            ("update of the scaler", update, 1), ("turn of the loop", turn, 3),
        ):  # fmt: skip
            sys.stdout.write(f"{number},{name},{us:.1f},{kernels}\n")


if __name__ == "__main__":
    main()
