"""Tensors that a program takes apart into samples and joins again: traced as they were before.

``torch.cat(list(features))`` is as many ops as there are samples, so that a trace at another batch is another program,
and it is no more than a view. Where all pieces of a tensor are joined, in order and unchanged, the tensor itself is
used.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

_MARK = "_rostam_piece"
_unbind = torch.Tensor.unbind


@dataclass(frozen=True)
class _Piece:
    """The ``place``-th of a tensor's ``count`` entries along dim 0; version: of the tensor when it was taken."""

    source: torch.Tensor
    place: int
    count: int
    version: int


@contextlib.contextmanager
def joined_again() -> Iterator[None]:
    """Let pieces of tensors be known, and be joined to what they were, while the context lasts."""
    with contextlib.ExitStack() as stack:
        for owner in (torch.Tensor, torch):
            stack.enter_context(mock.patch.object(owner, "unbind", _taken))
        for name, whole in (("cat", _flat), ("concat", _flat), ("stack", _itself)):
            stack.enter_context(mock.patch.object(torch, name, _joining(getattr(torch, name), whole)))
        yield


def _taken(tensor: torch.Tensor, dim: Any = 0) -> Any:
    pieces = _unbind(tensor, dim)
    if dim == 0:
        for place, piece in enumerate(pieces):
            setattr(piece, _MARK, _Piece(tensor, place, len(pieces), tensor._version))
    return pieces


def _flat(source: torch.Tensor) -> Any:
    return source.flatten(0, 1) if source.dim() > 1 else None


def _itself(source: torch.Tensor) -> Any:
    return source


@functools.cache  # calls of two traces are compared by their functions
def _joining(join: Callable[..., Any], whole: Callable[[torch.Tensor], Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = args[0] if args else kwargs.get("tensors")
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        is_plain = dim == 0 and len(args) < 3 and set(kwargs) <= {"tensors", "dim"}
        source = _source(tensors) if is_plain and isinstance(tensors, (list, tuple)) else None
        made = None if source is None else whole(source)
        return join(*args, **kwargs) if made is None else made

    return run


def _source(tensors: Sequence[Any]) -> torch.Tensor | None:
    """Return the tensor of which these are all pieces, None if they are not."""
    marks = [getattr(tensor, _MARK, None) for tensor in tensors]
    first = marks[0] if marks else None
    if first is None or len(marks) != first.count or first.source._version != first.version:
        return None
    for place, mark in enumerate(marks):
        if mark is None or mark.source is not first.source or mark.place != place or mark.version != first.version:
            return None
    return first.source
