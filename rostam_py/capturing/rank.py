"""One rank: a program runs in this process, forked for it, and its record is written."""

import importlib.util
import json
import os
import runpy
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from rostam_py.capturing.boundaries import Boundaries, StepRecorded
from rostam_py.capturing.communication import Wires
from rostam_py.capturing.cuda_names import install_device
from rostam_py.capturing.dispatch import CaptureMode
from rostam_py.capturing.gpu_kernels import install_kernels
from rostam_py.capturing.likeness import first_difference
from rostam_py.capturing.memory import Memory
from rostam_py.capturing.recorder import KernelKey, Recorder, Row, is_program
from rostam_py.capturing.records import Record
from rostam_py.capturing.request import FUNCTION, MODULE, Request
from rostam_py.capturing.shadows import Shadows
from rostam_py.capturing.sharding import install_sharding
from rostam_py.capturing.side_channel import SideChannel
from rostam_py.capturing.streams import FakeDevice
from rostam_py.capturing.stubs import install_stubs
from rostam_py.capturing.world import World
from rostam_py.capturing.wrappers import install_wrappers
from rostam_py.errors import RostamError

_DEEPEST = 3  # innermost frames of an error that are shown besides those of the program


def run_rank(request: Request, rank: int, library: Any, requests: Any) -> None:
    """Run the program as a rank, and write its record. Args: requests: the pipe to the process that forks."""
    words = os.open(request.words_path(rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(words, 1)
    os.dup2(words, 2)
    captured = _Rank(request, rank, library, requests)
    record = captured.run()
    sys.stdout.flush()
    request.record_path(rank).write_text(json.dumps(record))


class _Rank:
    """What a rank's process holds."""

    def __init__(self, request: Request, rank: int, library: Any, requests: Any) -> None:
        self._request, self._rank = request, rank
        device = FakeDevice(library, request.local_world, rank % request.local_world)
        self._recorder, self._memory = Recorder(device), Memory(lambda: device.stream_id)
        self._wires = Wires(self._recorder, self._memory, Shadows(request.loads))
        self._boundaries = Boundaries(self._recorder, self._memory, (request.step, request.last_step), self._repeats)
        self._mode = CaptureMode(self._recorder, self._memory, self._wires)
        self._world = World(
            request, rank, self._wires, SideChannel(Path(request.folder), rank, requests),
        )  # fmt: skip
        device.told = self._recorder.told
        install_device(device, self._recorder, self._memory, request.gpu)
        self._world.install()
        self._memory.watch_resizing()
        self._boundaries.install()
        install_kernels()
        install_sharding()
        install_wrappers(self._recorder, self._mode.bucket_reduced)
        install_stubs(request.stubs, self._launched)

    def run(self) -> dict[str, Any]:
        """Return the record: what ran, or what went wrong."""
        torch.autograd.set_multithreading_enabled(False)  # the stream of a backward pass is this thread's
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(x, device="cuda")
        started = time.process_time()
        error = ""
        try:
            with self._mode:
                _run_program(self._request)
            error = self._ended_early()
        except StepRecorded:
            pass
        except SystemExit as found:
            error = self._ended_early(f", with status {found.code}" if found.code else "")
        except RostamError as found:
            error = f"{found} (at {_line_of(found)})"
        except BaseException as found:
            sys.stderr.write(_trace_of(found))
            error = f"the program fails: {type(found).__name__}: {found} (at {_line_of(found)})"
        return self._record(error, *self._boundaries.recorded) | {"cpu_s": time.process_time() - started}

    def _ended_early(self, how: str = "") -> str:
        boundaries = self._boundaries
        if boundaries.recorded[0]:
            return ""  # a step that was not the one before once more: who reads the record says so
        said = f"the program ended after {boundaries.done} steps{how}, but step is {self._request.step}"
        if boundaries.in_backward and not boundaries.done:
            return f"{said}: its optimizers step inside the backward pass, which capture does not tell apart"
        lower = "" if self._request.step == 3 else ", or lower --step (the least is 3)"
        return f"{said}: let it train longer{lower}; --step is compared with the step before it"

    def _repeats(self, before: list[Row], rows: list[Row]) -> bool:
        found = Record.of(self._record("", 0, before, rows))
        return first_difference(found, found.before, found, found.rows) is None

    def _record(self, error: str, step: int, before: list[Row], rows: list[Row]) -> dict[str, Any]:
        recorder = self._recorder
        return {
            "rank": self._rank, "error": error, "step": step, "steps": self._boundaries.done,
            "kernels": [
                asdict(one) | {"source": line} for one, line in zip(recorder.kernels, recorder.sources, strict=True)
            ],
            "communications": [asdict(one) for one in recorder.communications],
            "groups": self._wires.groups, "created": self._world.created,
            "before": before, "rows": rows,
            "event_streams": self._earlier_events([*before, *rows]),
            "peak_bytes": self._boundaries.peak_bytes, "held_bytes": self._boundaries.held_bytes,
            "unknown": dict(recorder.unknown),
        }  # fmt: skip

    def _earlier_events(self, rows: list[Row]) -> dict[int, int]:
        """Return the streams of events that were recorded before the rows, and are waited for in them."""
        recorded = {event for kind, _, event in rows if kind == "record"}
        awaited = {event for kind, _, event in rows if kind in ("wait", "host")} - recorded
        streams = self._recorder.event_streams
        return {event: streams[event] for event in awaited if event in streams}

    def _launched(self, name: str, arguments: tuple[Any, ...]) -> None:
        if self._recorder.is_on:
            tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
            shapes = tuple(tuple(one.shape) for one in tensors)
            self._recorder.kernel(KernelKey(f"triton:{name}", shapes, tuple(str(one.dtype)[6:] for one in tensors), ()))


def _run_program(request: Request) -> None:
    sys.argv = [request.target, *request.arguments]
    if request.kind == MODULE:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(request.target, run_name="__main__", alter_sys=True)
    elif request.kind == FUNCTION:
        _function(request.target)()
    else:
        sys.path.insert(0, str(Path(request.target).resolve().parent))
        runpy.run_path(request.target, run_name="__main__")


def _function(target: str) -> Any:
    """Return a function of "file or module:name", imported as multiprocessing does: not as the main program."""
    where, _, name = target.rpartition(":")
    if where.endswith(".py"):
        sys.path.insert(0, str(Path(where).resolve().parent))
        spec = importlib.util.spec_from_file_location("__mp_main__", where)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        sys.modules["__mp_main__"] = module
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    else:
        module = importlib.import_module(where)
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _trace_of(error: BaseException) -> str:
    """Return the frames of the program, and the last of others, in which an error began."""
    frames = traceback.extract_tb(error.__traceback__)
    kept = [one for k, one in enumerate(frames) if is_program(one.filename) or k >= len(frames) - _DEEPEST]
    shown = [*traceback.format_list(kept), *traceback.format_exception_only(error)]
    causes = f"because of:\n{_trace_of(error.__cause__)}" if error.__cause__ is not None else ""
    return "".join(shown) + causes


def _line_of(error: BaseException) -> str:
    """Return "file:line" of the program, at which an error began."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_program(frame.f_code.co_filename):
            found = f"{frame.f_code.co_filename}:{line}"
    return found
