"""Parts of torch that look at values or at hardware: DistributedDataParallel's reducer, torch.compile, foreach."""

import functools
import importlib
import types
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parallel import DistributedDataParallel

from rostam_py.capturing.recorder import Recorder
from rostam_py.capturing.replacing import put, replace


def install_wrappers(recorder: Recorder, bucket_reduced: Any) -> None:
    """Replace them. Args: bucket_reduced: is told of DDP's buckets (tensor, work)."""
    _install_ddp(recorder, bucket_reduced)
    _install_foreach()
    _install_swaps()
    _install_compile(recorder)


class _NoTimer:
    """DDP's logger, whose timer is CUDA's: it takes any call."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **others: None


def _install_ddp(recorder: Recorder, bucket_reduced: Any) -> None:
    """Let DDP reduce its buckets through a hook of Python: its own reads the future of the process group's work.

    The hook's all-reduce is asynchronous as its own is; that the current stream waits for it shows where a kernel first
    touches the bucket, for the reducer waits for the future below Python.
    """
    start = DistributedDataParallel.__init__
    verify = dist._verify_params_across_processes

    def reduce_bucket(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        tensor = bucket.buffer()
        bucket_reduced(tensor, dist.all_reduce(tensor, group=state, async_op=True))
        future: Any = torch.futures.Future()
        future.set_result(tensor)
        return future

    @functools.wraps(start)
    def init(self: Any, *arguments: Any, **others: Any) -> None:
        start(self, *arguments, **others)
        self.register_comm_hook(self.process_group, reduce_bucket)
        self.logger = _NoTimer()

    replace(verify, "_verify_params_across_processes", lambda *arguments, **others: None)
    put(DistributedDataParallel, __init__=init)
    put(dist.Reducer, _rebuild_buckets=_apart(dist.Reducer._rebuild_buckets, recorder))


def _apart(once: Any, recorder: Recorder) -> Any:
    """Return a method without rows: what a program does once in its life is none of a step that repeats."""

    @functools.wraps(once)
    def apart(*arguments: Any, **others: Any) -> Any:
        is_on, recorder.is_on = recorder.is_on, False
        try:
            return once(*arguments, **others)
        finally:
            recorder.is_on = is_on

    return apart


def _install_foreach() -> None:
    """Let optimizers and clipping group fake tensors as they group a device's."""
    for module in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
        importlib.import_module(module)._foreach_supported_types.append(FakeTensor)


def _install_swaps() -> None:
    """Let Module.to keep its parameters, as on a GPU: optimizers hold them, and modules share them.

    Real parameters are then swapped with fake ones, which torch refuses where one has a weak reference: the fake mode
    has them of all tensors that it makes. ``parameter.data = ...`` swaps likewise.
    """
    torch.__future__.set_swap_module_params_on_conversion(True)
    put(torch.utils, weakref=types.SimpleNamespace(getweakrefs=lambda tensor: []))
    plain: Any = torch._C.TensorBase.data

    def assign(self: torch.Tensor, value: torch.Tensor) -> None:
        if isinstance(self, FakeTensor) == isinstance(value, FakeTensor):
            plain.__set__(self, value)
            return
        made = value.detach()
        is_parameter = isinstance(self, torch.nn.Parameter)
        torch.utils.swap_tensors(self, torch.nn.Parameter(made, self.requires_grad) if is_parameter else made)

    put(torch.Tensor, data=property(plain.__get__, assign))


def _install_compile(recorder: Recorder) -> None:
    """Let torch.compile return what it is given, with marks where the region begins and ends."""

    def compile_(model: Any = None, **others: Any) -> Any:
        if model is None:
            return lambda found: compile_(found, **others)
        if isinstance(model, torch.nn.Module):
            _mark_module(model, recorder)
            return model

        @functools.wraps(model)
        def region(*arguments: Any, **more: Any) -> Any:
            recorder.mark("region", getattr(model, "__name__", "compiled"))
            try:
                return model(*arguments, **more)
            finally:
                recorder.mark("region_end", "")

        return region

    replace(torch.compile, "compile", compile_)
    put(torch.nn.Module, compile=lambda self, *arguments, **others: _mark_module(self, recorder))


def _mark_module(module: torch.nn.Module, recorder: Recorder) -> None:
    name = type(module).__name__
    module.register_forward_pre_hook(lambda *given: recorder.mark("region", name), prepend=False)
    module.register_forward_hook(lambda *given: recorder.mark("region_end", ""), always_call=True)
