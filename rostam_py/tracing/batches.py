"""Which dim of which input is the batch: what the user says, else dim 0, else what the modules inside expect.

torch's recurrent and attention layers take (sequence, batch, features) unless they are built with ``batch_first``. A
trace watches what reaches them at two batches: where their first dim is the one that grows, the batch was taken for
the sequence; dim 1 is tried then, and kept if all of them agree with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from rostam_py.errors import TracingError
from rostam_py.tracing.subject import InputSlot, Subject

_SEQUENCE_FIRST = (
    nn.RNNBase, nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer,
)  # fmt: skip
BatchDims = int | Sequence[int | None] | Mapping[str | int, int | None] | None


class BatchDependentError(TracingError):
    """A trace that works at one batch and at another does not, or is another program."""


class SequenceFirstError(TracingError):
    """The dim that was taken for the batch is the sequence of a layer."""


def make_slots(
    name: str, batch_dims: BatchDims, call: tuple[Sequence[Any], Mapping[str, Any], Sequence[Any]]
) -> tuple[tuple[InputSlot, ...], int]:
    """Return the slots of a call's tensors, and the batch they stand for.

    Model: a tensor without a dim of its own is batched where its size is the batch: along the dim that is given for
        all, else dim 0.
    Raises: TracingError for a name or dim that there is not, if no tensor has a batch, or two have different ones.
    """
    first_seen: dict[int, tuple[torch.Tensor, Any]] = {}  # a tensor in several places is one input
    for tensor, dim in _told(name, batch_dims, *call):
        first_seen.setdefault(id(tensor), (tensor, dim))
    told = list(first_seen.values())
    usual = (batch_dims, 0) if isinstance(batch_dims, int) else (0,)
    places = [
        (tensor, usual[0] if dim is _OPEN else dim)
        for tensor, dim in told
        if dim is not None and (dim is not _OPEN or -tensor.dim() <= usual[0] < tensor.dim())
    ]
    own = [(tensor, dim) for (tensor, dim) in told if isinstance(dim, int)]
    if not places:
        raise TracingError(f"{name}: no example input has a batch dimension (dim 0 of the first one, or batch_dims=)")
    first, along = own[0] if own else places[0]
    batch = first.shape[along]
    slots = []
    for tensor, dim in told:
        found = dim
        if dim is _OPEN:
            found = next((d for d in usual if -tensor.dim() <= d < tensor.dim() and tensor.shape[d] == batch), None)
        elif dim is not None and tensor.shape[dim] != batch:
            raise TracingError(f"{name}: batch_dims give batches of {batch} and of {tensor.shape[dim]}")
        slots.append(InputSlot(tuple(tensor.shape), tensor.dtype, None if found is None else found % tensor.dim()))
    return tuple(slots), batch


_OPEN = "open"  # nothing is said about this tensor


def _told(
    name: str, batch_dims: BatchDims, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Sequence[Any]
) -> list[tuple[torch.Tensor, Any]]:
    """Return each tensor of a call with the dim that the user gives for it, None for no batch, or _OPEN."""
    values: dict[str | int, Any] = dict(enumerate(args))
    values.update(kwargs)
    dims: dict[str | int, Any] = dict.fromkeys(values, _OPEN)
    if isinstance(batch_dims, Mapping):
        if unknown := [key for key in batch_dims if key not in dims]:
            raise TracingError(f"{name}: batch_dims names {unknown[0]!r}; inputs are {', '.join(map(repr, dims))}")
        dims.update(batch_dims)
    elif isinstance(batch_dims, (list, tuple)):
        if len(batch_dims) > len(dims):
            raise TracingError(f"{name}: batch_dims has {len(batch_dims)} entries for {len(dims)} inputs")
        dims.update(zip(dims, batch_dims, strict=False))
    elif batch_dims is not None and (not isinstance(batch_dims, int) or isinstance(batch_dims, bool)):
        raise TracingError(f"{name}: batch_dims is {batch_dims!r}; it must be a dim, or one for each input")
    told = []
    for key, value in values.items():
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                told.append((leaf, _checked(name, key, dims[key], leaf)))
    return [*told, *((leaf, _OPEN) for leaf in pytree.tree_leaves(targets) if isinstance(leaf, torch.Tensor))]


def _checked(name: str, key: str | int, dim: Any, tensor: torch.Tensor) -> Any:
    if dim is None or dim is _OPEN:
        return dim
    if not isinstance(dim, int) or isinstance(dim, bool) or not -tensor.dim() <= dim < tensor.dim():
        raise TracingError(
            f"{name}: batch_dims of input {key!r} is {dim!r}; it has {tensor.dim()} dims, None is for no batch"
        )
    return dim


@dataclass
class LayerWatch:
    """What reaches sequence-first layers: their paths and the shapes of their first inputs, in the order they ran."""

    seen: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)

    def attach(self, module: nn.Module) -> list[Any]:
        """Watch the layers of a module; return the handles that end it."""
        handles = []
        for path, layer in module.named_modules():
            if isinstance(layer, _SEQUENCE_FIRST) and not _is_batch_first(layer):
                handles.append(layer.register_forward_pre_hook(self._hook(path), with_kwargs=True))
        return handles

    def _hook(self, path: str) -> Any:
        def hook(layer: nn.Module, args: Any, kwargs: Any) -> None:
            first = next((t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)), None)
            if first is not None and first.dim() == 3:
                self.seen.append((path, type(layer).__name__, tuple(first.shape)))

        return hook


def check_sequences(name: str, first: LayerWatch, second: LayerWatch) -> None:
    """Raise SequenceFirstError if a layer's sequence is what grows from one batch to the other."""
    for (path, kind, a), (_, _, b) in zip(first.seen, second.seen, strict=False):
        if a[0] != b[0] and a[1] == b[1]:
            raise SequenceFirstError(
                f"{name}: the {kind} at {path or '(root)'!r} takes (sequence, batch, features), and its sequence grows "
                "with the batch: pass batch_dims=1 (or one dim for each input), or build it with batch_first=True"
            )


def _is_batch_first(layer: nn.Module) -> bool:
    inner = getattr(layer, "self_attn", layer)
    return bool(getattr(inner, "batch_first", getattr(layer, "batch_first", False)))


def other_guesses(subject: Subject) -> Iterator[Subject]:
    """Yield the subject with inputs taken out of the batch whose first dim may equal it by chance: small ones first."""
    if not subject.is_guessed:
        return
    scaled = [place for place, slot in enumerate(subject.slots) if slot.batch_dim is not None][1:]
    scaled.sort(key=lambda place: (len(subject.slots[place].shape), torch.Size(subject.slots[place].shape).numel()))
    choices = [{place} for place in scaled] + ([set(scaled)] if len(scaled) > 1 else [])
    for dropped in choices:
        slots = tuple(
            replace(slot, batch_dim=None) if place in dropped else slot for place, slot in enumerate(subject.slots)
        )
        shapes = ", ".join(str(subject.slots[place].shape) for place in sorted(dropped))
        note = f"inputs of shape {shapes} were taken to have no batch: the module runs at other batches only so"
        yield replace(subject, slots=slots, notes=(*subject.notes, note))
