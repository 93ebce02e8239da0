"""Modules that stand for a part of a distributed or compiled program: what replaces each in a strategy.

A trace is of the model on one device; how it is spread is the strategy's. A module that is already spread, sharded,
cut into stages or compiled by TorchScript is refused before any work.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from rostam_py.errors import TracingError


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A class of modules or parameters that is refused.

    module, name: where it is defined (the beginning suffices), and its name. calls: what makes one. instead: what
    replaces it.
    """

    module: str
    name: str
    calls: str
    instead: str


_SHARDED = "strategy.dp and strategy.shard=3 (2: without the parameters)"
_SPREAD = "strategy.dp"
_STAGES = "strategy.pp (and strategy.schedule, strategy.virtual_stages)"
_SCRIPTED = "the module that was compiled; nothing in a strategy stands for it"

# The first that fits counts: classes come before the ones they derive from.
WRAPPERS = (
    Wrapper("torch.distributed._composable", "ReplicateModule", "replicate", _SPREAD),
    Wrapper("torch.nn.parallel", "DistributedDataParallel", "DistributedDataParallel", _SPREAD),
    Wrapper("torch.nn.parallel", "DataParallel", "torch.nn.DataParallel", _SPREAD),
    Wrapper("megatron.core.distributed", "DistributedDataParallel", "Megatron's DistributedDataParallel", _SPREAD),
    Wrapper("torch.distributed.fsdp", "FullyShardedDataParallel", "FSDP", _SHARDED),
    Wrapper("torch.distributed.fsdp", "FSDPModule", "fully_shard (FSDP2)", _SHARDED),
    Wrapper("fairscale.nn", "FullyShardedDataParallel", "fairscale's FSDP", _SHARDED),
    Wrapper("deepspeed", "DeepSpeedEngine", "deepspeed.initialize", "strategy.dp and strategy.shard=1, 2 or 3"),
    Wrapper("deepspeed", "PipelineModule", "deepspeed's PipelineModule", _STAGES),
    Wrapper("torch.distributed.pipelining", "Pipe", "torch.distributed.pipelining.pipeline", _STAGES),
    Wrapper("torch.distributed.pipelining", "_PipelineStageBase", "PipelineStage", _STAGES),
    Wrapper("torch.distributed.pipelining", "_PipelineSchedule", "a schedule of torch's pipelining", _STAGES),
    Wrapper("torch.jit", "RecursiveScriptModule", "torch.jit.script", _SCRIPTED),
    Wrapper(
        "torch.distributed", "DTensor", "parallelize_module, distribute_module or distribute_tensor",
        "strategy.tp (and strategy.sequence_parallel), or strategy.shard=3 where parameters are sharded over dp",
    ),
)  # fmt: skip
_TRACED = "TracedModule"  # of torch.jit.trace: it runs as the ops that were seen


def check_unwrapped(model: Any, name: str = "") -> None:
    """Raise TracingError for a model that is, or has in it, one of the wrappers.

    Args:
        model: a module, or what the caller gave in place of one.
        name: what to call it; its class by default.
    """
    for where, one in _parts(model):
        found = _wrapper_of(type(one))
        if found is not None:
            place = f"{where!r} of {name or type(model).__name__}" if where else name or type(model).__name__
            raise TracingError(f"{place} is {_described(found)}")


def _described(found: Wrapper) -> str:
    if found.instead is _SCRIPTED:
        return f"made by {found.calls}, and no hook sees into it. Pass {found.instead}"
    what = f"a DTensor, made by {found.calls}" if found.name == "DTensor" else f"wrapped by {found.calls}"
    return (
        f"{what}: a trace is of the plain module on one device, and a strategy spreads it. Pass the module as it was"
        f" before, and in place of the wrapper set {found.instead}"
    )


def _parts(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the modules and parameters of a model by path, modules first."""
    if not isinstance(model, nn.Module):
        yield "", model
        return
    yield from model.named_modules()
    yield from model.named_parameters()


def _wrapper_of(kind: type) -> Wrapper | None:
    names = [(base.__module__, base.__qualname__) for base in kind.__mro__]
    if any(name.endswith(_TRACED) for _, name in names):
        return None
    for wrapper in WRAPPERS:
        if any(name == wrapper.name and module.startswith(wrapper.module) for module, name in names):
            return wrapper
    return None
