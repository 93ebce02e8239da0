"""torch.cuda and torch.accelerator as programs ask them: a device of a given name and memory, streams, statistics."""

import collections
import types
from typing import Any

import torch
import torch.cuda.nvtx

from rostam_py.capturing.memory import Memory
from rostam_py.capturing.recorder import Recorder
from rostam_py.capturing.replacing import put
from rostam_py.capturing.request import Gpu
from rostam_py.capturing.streams import ALL_STREAMS, Event, FakeDevice, Stream, StreamContext
from rostam_py.errors import ConfigError

_CUDA_VERSION = "12.8"  # programs compare it with what they need
_NOTHING = (
    "_lazy_init", "init", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "set_per_process_memory_fraction", "manual_seed", "manual_seed_all", "seed",
    "seed_all", "_record_memory_history",
)  # fmt: skip
# Of torch.accelerator, where it has them: those of torch.cuda.
_SHARED = (
    "empty_cache", "memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
    "reset_peak_memory_stats", "reset_accumulated_memory_stats", "get_memory_info",
)  # fmt: skip


class _Context:
    """torch.cuda.device(index): the device is the current one inside."""

    of_device: FakeDevice

    def __init__(self, device: Any = None) -> None:
        self.idx = device if isinstance(device, int) or device is None else torch.device(device).index

    def __enter__(self) -> "_Context":
        self.prev_idx = self.of_device.index
        if self.idx is not None:
            self.of_device.set_index(self.idx)
        return self

    def __exit__(self, *error: Any) -> None:
        self.of_device.set_index(self.prev_idx)


class _Generator(torch.Generator):
    """torch.Generator("cuda"): the host's, since numbers of the device are not drawn."""

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        return super().__new__(cls, device="cpu")  # type: ignore[call-arg]


def install_device(device: FakeDevice, recorder: Recorder, memory: Memory, gpu: Gpu) -> None:
    """Let torch.cuda answer for the fake device. Args: gpu: what it says it is."""
    cuda = torch.cuda
    _Context.of_device = device
    answers = _answers(device, gpu) | _memory_answers(memory, gpu) | _random_answers(device)
    put(cuda, **dict.fromkeys(_NOTHING, _nothing), **{name: _constant(value) for name, value in answers.items()})
    put(
        cuda, Stream=Stream, Event=Event, ExternalStream=Stream, StreamContext=StreamContext, stream=StreamContext,
        set_stream=device.set_stream, current_stream=lambda device_=None: device.stream,
        default_stream=lambda device_=None: device.default_stream, device=_Context, device_of=_Context,
        _DeviceGuard=_Context, current_device=lambda: device.index, set_device=device.set_index, _initialized=True,
        synchronize=lambda device_=None: device.told("host", -1, ALL_STREAMS), _lazy_call=_nothing,
    )  # fmt: skip
    put(cuda, CUDAGraph=_NoGraph, graph=_NoGraph, graph_pool_handle=_no_graphs, make_graphed_callables=_no_graphs)
    put(cuda.streams, Stream=Stream, Event=Event)
    put(cuda.memory, _record_memory_history=_nothing)
    put(cuda.random, get_rng_state=cuda.get_rng_state, set_rng_state=cuda.set_rng_state)
    put(cuda.nvtx, range_push=_zero, range_pop=_zero, mark=_nothing, range_start=_zero, range_end=_nothing)
    put(torch.backends.cuda, is_built=lambda: True)
    put(torch._utils, _get_available_device_type=lambda: "cuda")
    put(torch.version, cuda=_CUDA_VERSION)
    put(torch, Event=Event, Stream=Stream, Generator=_Generator)
    _install_accelerator(device)
    _install_tensor_methods(device)


def _install_accelerator(device: FakeDevice) -> None:
    one, cuda = torch.accelerator, torch.cuda
    put(
        one, is_available=lambda: True, current_accelerator=lambda check_available=False: torch.device("cuda"),
        device_count=lambda: device.num_devices, current_device_index=lambda: device.index,
        current_device_idx=lambda: device.index, set_device_index=device.set_index, set_device_idx=device.set_index,
        current_stream=cuda.current_stream, set_stream=device.set_stream, synchronize=cuda.synchronize,
    )  # fmt: skip
    put(one, **{name: getattr(cuda, name) for name in _SHARED if hasattr(one, name) and hasattr(cuda, name)})


def _install_tensor_methods(device: FakeDevice) -> None:
    def moved(self: torch.Tensor, place: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        if place is None or isinstance(place, int):
            place = torch.device("cuda", device.index if place is None else place)
        if memory_format is None:
            return self.to(place, non_blocking=non_blocking)
        return self.to(place, non_blocking=non_blocking, memory_format=memory_format)

    put(
        torch.Tensor, cuda=moved, record_stream=_nothing, pin_memory=lambda self, device=None: self,
        is_pinned=lambda self, device=None: False,
    )  # fmt: skip
    from torch.utils.data._utils import pin_memory

    put(pin_memory, pin_memory=lambda data, device=None: data)


def _answers(device: FakeDevice, gpu: Gpu) -> dict[str, Any]:
    major, minor = gpu.capability
    properties = types.SimpleNamespace(
        name=gpu.name, total_memory=gpu.memory_bytes, major=major, minor=minor, multi_processor_count=gpu.num_sms,
        warp_size=32, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
        shared_memory_per_block=49152, shared_memory_per_block_optin=232448, max_threads_per_block=1024,
        L2_cache_size=52428800, gcnArchName="", is_integrated=0, uuid="0",
    )  # fmt: skip
    return {
        "is_available": True, "_is_compiled": True, "is_initialized": True, "device_count": device.num_devices,
        "_device_count_nvml": device.num_devices, "get_device_name": gpu.name, "get_device_capability": (major, minor),
        "get_device_properties": properties, "is_bf16_supported": True, "get_arch_list": [f"sm_{major}{minor}"],
        "can_device_access_peer": True, "is_current_stream_capturing": False, "utilization": 0,
    }  # fmt: skip


def _memory_answers(memory: Memory, gpu: Gpu) -> dict[str, Any]:
    def statistics() -> dict[str, int]:
        found: dict[str, int] = collections.defaultdict(int)
        for pool in ("allocated_bytes", "active_bytes", "requested_bytes"):
            found |= {f"{pool}.all.current": memory.live_bytes, f"{pool}.all.peak": memory.peak_bytes}
        found |= dict.fromkeys(("reserved_bytes.all.current", "reserved_bytes.all.peak"), memory.allocator.held_bytes)
        return found

    return {
        "memory_allocated": lambda: memory.live_bytes, "max_memory_allocated": lambda: memory.peak_bytes,
        "memory_reserved": lambda: memory.allocator.held_bytes,
        "max_memory_reserved": lambda: memory.allocator.held_bytes,
        "mem_get_info": lambda: (gpu.memory_bytes - memory.live_bytes, gpu.memory_bytes), "memory_stats": statistics,
        "memory_stats_as_nested_dict": dict, "memory_snapshot": list, "memory_summary": "",
    }  # fmt: skip


def _random_answers(device: FakeDevice) -> dict[str, Any]:
    state = torch.zeros(16, dtype=torch.uint8)
    return {
        "initial_seed": 0, "get_rng_state": state.clone, "set_rng_state": None, "set_rng_state_all": None,
        "get_rng_state_all": lambda: [state.clone() for _ in range(device.num_devices)],
    }  # fmt: skip


def _constant(value: Any) -> Any:
    """Return a function of anything that returns a value, or what a function of nothing returns."""
    if callable(value):
        return lambda *arguments, **others: value()
    return lambda *arguments, **others: value


def _nothing(*arguments: Any, **others: Any) -> None:
    """Take anything and do nothing."""


class _NoGraph:
    """torch.cuda.CUDAGraph and torch.cuda.graph: classes, as programs annotate with them."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        _no_graphs()


def _no_graphs(*arguments: Any, **others: Any) -> None:
    raise ConfigError("the program makes CUDA graphs, which are not captured: switch them off, kernels are the same")


def _zero(*arguments: Any, **others: Any) -> int:
    return 0
