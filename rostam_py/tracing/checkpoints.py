"""``torch.utils.checkpoint``: regions whose activations are dropped and whose forward runs again in backward.

While tracing, a region's forward runs as any other and its ops are marked; ``recompute`` then makes the trace that of
the checkpointed program: the region's ops stand once more in front of its backward, which reads what they make, and
forward keeps the region's inputs only. Non-reentrant regions stop once the last tensor that backward needs is there
(torch's early stop), reentrant ones run to their end. A region inside a region belongs to the outer one.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree
from torch.utils import checkpoint as torch_checkpoint

from rostam_py.errors import TracingError
from rostam_py.tracing.raw import RawOp, RawTrace, Ref

_SAVED = (torch_checkpoint.CheckpointPolicy.MUST_SAVE, torch_checkpoint.CheckpointPolicy.PREFER_SAVE)


@dataclass(frozen=True)
class Region:
    """One checkpointed call. policy: which ops' results selective checkpointing keeps, None for none."""

    stops_early: bool
    policy: Callable[..., Any] | None = None


class Regions:
    """The regions of one trace, and the one that runs.

    enter: called with a region's number, returns a context that lasts while the region's forward runs.
    """

    def __init__(self, enter: Callable[[int], contextlib.AbstractContextManager[Any]]) -> None:
        self.all: list[Region] = []
        self.current: int | None = None
        self._enter = enter

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Mark regions in place of checkpointing them, while the context lasts."""
        patch = mock.patch.object
        with (
            patch(torch_checkpoint, "_checkpoint_without_reentrant_generator", self._generate),
            patch(torch_checkpoint, "CheckpointFunction", _Reentrant(self)),
        ):
            yield

    @contextlib.contextmanager
    def region(self, region: Region) -> Iterator[None]:
        """Mark what runs in the context as one region."""
        if self.current is not None or not torch.is_grad_enabled():
            yield
            return
        self.current = len(self.all)
        self.all.append(region)
        try:
            with self._enter(self.current):
                yield
        finally:
            self.current = None

    def _generate(
        self,
        function: Any,
        preserve_rng_state: bool = True,
        context_fn: Any = torch_checkpoint.noop_context_fn,
        determinism_check: str = "",
        debug: bool = False,
        early_stop: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> Iterator[None]:
        """Stand in for torch's generator, which checkpoint advances before and after the forward."""
        policy = None
        if context_fn is not torch_checkpoint.noop_context_fn:
            policy = getattr(context_fn()[0], "policy_fn", None)
            if policy is None:
                raise TracingError("checkpoint(context_fn=...): only create_selective_checkpoint_contexts is supported")
        forced = torch_checkpoint._enable_checkpoint_early_stop
        with self.region(Region(early_stop if forced is None else forced, policy)):
            yield


class _Reentrant:
    """Stands in for torch's CheckpointFunction."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def apply(self, function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        """Run a reentrant region: without an input that takes a gradient nothing in it does."""
        is_trained = any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        with self._regions.region(Region(stops_early=False)), torch.set_grad_enabled(is_trained):
            return function(*args)


def recompute(raw: RawTrace, regions: list[Region]) -> RawTrace:
    """Return the trace of the checkpointed program. Cost: linear in ops, for each region that has a backward."""
    before: dict[int, list[RawOp]] = {}  # place of a backward op -> ops that run again in front of it
    places: dict[int, list[int]] = {}
    for place, op in enumerate(raw.ops):
        if op.region is not None:
            places.setdefault(op.region, []).append(place)
    for number, members in places.items():
        _replay(raw, regions[number], members, before)
    if before:
        raw.num_checkpoints = len(before)
        raw.ops = [item for place, op in enumerate(raw.ops) for item in (*before.get(place, ()), op)]
        for place, op in enumerate(raw.ops):
            for _, value in op.outputs:
                raw.values[value].producer = place
    return raw


def _replay(raw: RawTrace, region: Region, members: list[int], before: dict[int, list[RawOp]]) -> None:
    """Let the backward of one region read what its forward makes when it runs again."""
    forward = [raw.ops[place] for place in members if raw.ops[place].phase == "forward"]
    made = {value: order for order, op in enumerate(forward) for _, value in op.outputs}
    kept = {value for op in forward if _is_kept(region, op) for _, value in op.outputs}
    readers = [
        place
        for place in members
        if raw.ops[place].phase == "backward" and any(v in made and v not in kept for v in raw.ops[place].inputs)
    ]
    if not readers:
        return
    needed = [made[v] for place in readers for v in raw.ops[place].inputs if v in made and v not in kept]
    again = forward[: max(needed) + 1] if region.stops_early else forward
    again = [op for op in again if not _is_kept(region, op)]
    copies = _Copies(raw, {value for op in again for _, value in op.outputs})
    before[readers[0]] = [copies.op(op) for op in again]
    for place in readers:
        raw.ops[place] = copies.reading(raw.ops[place])


def _is_kept(region: Region, op: RawOp) -> bool:
    if region.policy is None:
        return False
    context = torch_checkpoint.SelectiveCheckpointContext(is_recompute=False)
    return region.policy(context, op.target, *op.args, **op.kwargs) in _SAVED


class _Copies:
    """Second instances of values of a trace."""

    def __init__(self, raw: RawTrace, copied: set[int]) -> None:
        self._raw = raw
        outside = {value.storage for index, value in enumerate(raw.values) if index not in copied}
        self._storages: dict[int, int] = {storage: storage for storage in outside}
        self._new: dict[int, int] = {}

    def op(self, op: RawOp) -> RawOp:
        """Return a forward op as it runs again in backward."""
        op = self.reading(op)
        outputs = tuple((position, self._value(value)) for position, value in op.outputs)
        return replace(op, outputs=outputs, phase="backward", is_recomputed=True)

    def reading(self, op: RawOp) -> RawOp:
        """Return an op that reads the copies of what it read."""

        def renamed(ref: Ref) -> Ref:
            return Ref(self._new.get(ref.value, ref.value))

        args, kwargs = pytree.tree_map_only(Ref, renamed, (op.args, op.kwargs))
        return replace(op, args=args, kwargs=kwargs, inputs=tuple(self._new.get(v, v) for v in op.inputs))

    def _value(self, value: int) -> int:
        original = self._raw.values[value]
        new = len(self._raw.values)
        storage = self._storages.setdefault(original.storage, -2 - new)
        self._raw.values.append(replace(original, storage=storage))
        self._new[value] = new
        return new
