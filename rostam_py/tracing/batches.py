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

from rostam_py.errors import ConfigError, TracingError
from rostam_py.tracing.subject import InputSlot, Subject

_SEQUENCE_FIRST = (
    nn.RNNBase, nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer,
)  # fmt: skip
BatchDims = int | Sequence[int | None] | Mapping[str | int, int | None] | None


class BatchDependentError(TracingError):
    """A trace that works at one batch and at another does not, or is another program."""


class SequenceFirstError(TracingError):
    """The dim that was taken for the batch is the sequence of a layer."""


@dataclass(frozen=True)
class LeafDims:
    """The batch dim of each tensor of a call, in order, None for none; and the batch that the tensors stand for."""

    dims: tuple[int | None, ...]
    batch: int


def make_slots(
    name: str, batch_dims: BatchDims | LeafDims, call: tuple[Sequence[Any], Mapping[str, Any], Sequence[Any]]
) -> tuple[tuple[InputSlot, ...], int]:
    """Return the slots of a call's tensors, and the batch they stand for.

    Model: a tensor without a dim of its own is batched where its size is the batch: along the dim that is given for
        all, else dim 0. One with a dim of its own may have several rows for each sample.
    Raises: TracingError for a name or dim that there is not, if no tensor has a batch, or two have ones that do not
        divide.
    """
    first_seen: dict[int, _Told] = {}  # a tensor in several places is one input
    for one in _told(name, batch_dims, *call):
        first_seen.setdefault(id(one.tensor), one)
    told = list(first_seen.values())
    usual = (batch_dims, 0) if isinstance(batch_dims, int) else (0,)
    places = [
        (tensor, usual[0] if dim is _OPEN else dim)
        for tensor, dim in ((one.tensor, one.dim) for one in told)
        if dim is not None and (dim is not _OPEN or -tensor.dim() <= usual[0] < tensor.dim())
    ]
    own = [(one.tensor, one.dim) for one in told if isinstance(one.dim, int)]
    if not places:
        raise TracingError(f"{name}: no example input has a batch dimension (dim 0 of the first one, or batch_dims=)")
    first, along = own[0] if own else places[0]
    batch = batch_dims.batch if isinstance(batch_dims, LeafDims) else first.shape[along]
    return tuple(_slot(name, one, usual, batch) for one in told), batch


_OPEN = "open"  # nothing is said about this tensor


@dataclass(frozen=True)
class _Told:
    """A tensor of a call, what to call it, and the dim that the user gives for it, None for no batch, or _OPEN."""

    tensor: torch.Tensor
    label: str
    dim: Any


def _slot(name: str, one: _Told, usual: Sequence[int], batch: int) -> InputSlot:
    """Return the slot of a tensor. Args: usual: dims that are the batch where a tensor has as many there."""
    tensor, found, rows = one.tensor, one.dim, 1
    if found is _OPEN:
        found = next((d for d in usual if -tensor.dim() <= d < tensor.dim() and tensor.shape[d] == batch), None)
    elif found is not None:
        rows, rest = divmod(tensor.shape[found], max(batch, 1))
        if rest or not rows:
            raise TracingError(
                f"{name}: batch_dims give batches of {batch} and of {tensor.shape[found]}: {one.label} must have a"
                f" multiple of {batch} along dim {found}, as many rows for each sample"
            )
    dim = None if found is None else found % tensor.dim()
    is_open = one.dim is _OPEN and dim is None and tensor.dim() > 0
    return InputSlot(tuple(tensor.shape), tensor.dtype, dim, rows, one.label, is_open)


def _told(
    name: str, batch_dims: BatchDims | LeafDims, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Sequence[Any]
) -> list[_Told]:
    """Return each tensor of a call with what is told of it."""
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
    elif batch_dims is not None and (not isinstance(batch_dims, int | LeafDims) or isinstance(batch_dims, bool)):
        raise TracingError(f"{name}: batch_dims is {batch_dims!r}; it must be a dim, or one for each input")
    told = [
        _Told(leaf, f"input {key!r}", _checked(name, key, dims[key], leaf))
        for key, value in values.items()
        for leaf in pytree.tree_leaves(value)
        if isinstance(leaf, torch.Tensor)
    ]
    told += [_Told(leaf, "a target", _OPEN) for leaf in pytree.tree_leaves(targets) if isinstance(leaf, torch.Tensor)]
    if isinstance(batch_dims, LeafDims):
        return [replace(one, dim=dim) for one, dim in zip(told, batch_dims.dims, strict=True)]
    return told


def _checked(name: str, key: str | int, dim: Any, tensor: torch.Tensor) -> Any:
    if dim is None or dim is _OPEN:
        return dim
    if not isinstance(dim, int) or isinstance(dim, bool) or not -tensor.dim() <= dim < tensor.dim():
        raise TracingError(
            f"{name}: batch_dims of input {key!r} is {dim!r}; it has {tensor.dim()} dims, None is for no batch"
        )
    return dim


@dataclass(frozen=True)
class Examples:
    """Example inputs that a function made for a batch, and for twice as many samples."""

    inputs: Any
    twice: Any
    batch: int

    def dims(self, where: str) -> LeafDims | None:
        """Return which dim of each tensor grows with the batch, None if none of any does.

        Raises: ConfigError for a tensor that does not grow in proportion, along one dim.
        """
        pairs = [
            [leaf for leaf in pytree.tree_leaves(one) if isinstance(leaf, torch.Tensor)]
            for one in (self.inputs, self.twice)
        ]
        if len(pairs[0]) != len(pairs[1]):
            raise ConfigError(
                f"example_inputs of {where} makes {len(pairs[0])} tensors for {self.batch} samples and"
                f" {len(pairs[1])} for {2 * self.batch}"
            )
        dims: list[int | None] = []
        for a, b in zip(*pairs, strict=True):
            grown = [dim for dim in range(a.dim()) if a.dim() == b.dim() and a.shape[dim] != b.shape[dim]]
            if a.dim() != b.dim() or len(grown) > 1 or any(b.shape[d] != 2 * a.shape[d] for d in grown):
                raise ConfigError(
                    f"example_inputs of {where} makes a tensor of shape {tuple(a.shape)} for {self.batch} samples and"
                    f" {tuple(b.shape)} for {2 * self.batch}; one dim may grow, in proportion"
                )
            dims.append(grown[0] if grown else None)
        return LeafDims(tuple(dims), self.batch) if any(dim is not None for dim in dims) else None


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
    """Yield the subject with other batch dims, where these are guesses.

    Model: first inputs that have no batch by the guess get one: along a dim of as many, or of a multiple along dim 0,
        as of several images for each text; then inputs whose first dim may equal the batch by chance are taken out of
        it, small ones first.
    """
    if not subject.is_guessed:
        return
    slots = subject.slots
    batch = next(slot.shape[slot.batch_dim] for slot in slots if slot.batch_dim is not None)
    more = [(place, other) for place, slot in enumerate(slots) for other in _with_batch(slot, batch)]
    firsts = dict(reversed(more))
    for changed in [*([firsts] if len(firsts) > 1 else []), *({place: other} for place, other in more)]:
        words = ", ".join(f"dim {one.batch_dim} of {one.label}" for _, one in sorted(changed.items()))
        yield _changed(subject, changed, f"{words} was taken for the batch as well: the module runs at others only so")
    scaled = [place for place, slot in enumerate(slots) if slot.batch_dim is not None][1:]
    scaled.sort(key=lambda place: (len(slots[place].shape), torch.Size(slots[place].shape).numel()))
    for dropped in [*({place} for place in scaled), *([set(scaled)] if len(scaled) > 1 else [])]:
        without = {place: replace(slots[place], batch_dim=None, is_open=True) for place in dropped}
        shapes = ", ".join(str(slots[place].shape) for place in sorted(dropped))
        note = f"inputs of shape {shapes} were taken to have no batch: the module runs at other batches only so"
        yield _changed(subject, without, note)


def _with_batch(slot: InputSlot, batch: int) -> list[InputSlot]:
    """Return an input that has no batch with dims of its own that may be it."""
    if not slot.is_open:
        return []
    found = [replace(slot, batch_dim=dim, is_open=False) for dim, size in enumerate(slot.shape) if size == batch]
    rows, rest = divmod(slot.shape[0], batch)
    if rows > 1 and not rest:
        found.append(replace(slot, batch_dim=0, rows=rows, is_open=False))
    return found


def _changed(subject: Subject, changed: Mapping[int, InputSlot], note: str) -> Subject:
    slots = tuple(changed.get(place, slot) for place, slot in enumerate(subject.slots))
    return replace(subject, slots=slots, notes=(*subject.notes, note))
