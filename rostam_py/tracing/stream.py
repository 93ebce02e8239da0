"""What a program asks of torch, call by call, above autograd: what repeats is found in it (tracing/repeats.py).

A ``Recorder`` runs a step once on fake tensors and writes down every call. A ``Player`` follows the same program
through the joint trace, checks each call against the record, and leaves out the iterations that a plan skips: their
results are those of the last iteration before the gap, so the trace sees a program of a few iterations.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.fx.traceback as fx_traceback
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch

from rostam_py.tracing.balance import BalancedMode
from rostam_py.tracing.checkpoints import Regions
from rostam_py.tracing.laws import Choice, Known, Mean, Shares
from rostam_py.tracing.quick import NeedsRunError, QuickResults, asks_for_history, steady_key
from rostam_py.tracing.repeats import Repeat

STAND_IN = "stand-in"  # where a result of a skipped iteration is read behind the repeat

# Calls that read a tensor's form: what they return follows from it, and kinds of tensors differ in which they make.
_READS = frozenset(
    {
        "__len__", "dim", "ndimension", "size", "stride", "numel", "nelement", "element_size", "storage_offset",
        "is_floating_point", "is_complex", "is_signed", "is_contiguous", "is_same_size", "get_device", "is_tensor",
        "__hash__",
    }
)  # fmt: skip
_VIEWS = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})  # attributes that are tensors
_HOOKED = frozenset({"grad", "grad_fn", "_backward_hooks", "_post_accumulate_grad_hooks"})
_SETTINGS = frozenset({"_set_grad_enabled"})  # without a result; run in skipped iterations too
_WRITES = frozenset({"__setitem__"})  # without a result; those of a skipped iteration do not run
_CASTS = frozenset(["to", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool"])
_LOOKS = frozenset(["item", "__bool__", "__int__", "__float__", "__index__"])
_OPAQUE = frozenset({"grad", "backward", "register_hook", "set_", "resize_", "detach_"})


class OtherProgramError(Exception):
    """The program that is traced does not do what it did when it was watched."""


@dataclass(slots=True)
class StreamCall:
    """One call: signature compares equal where repeated calls do the same on tensors of the same form.

    frame: func and arguments with neither tensors nor integers. reads, results: values; integers: arguments.
    """

    func: Any
    frame: Any
    signature: Any
    reads: tuple[int, ...]
    integers: tuple[int, ...]
    results: tuple[int, ...]
    path: str
    region: int | None
    may_repeat: bool


@dataclass
class Stream:
    """The calls of one run. names: of the weights among the values."""

    calls: list[StreamCall] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    num_values: int = 0


class _Taken:
    """Arguments taken apart: the frame, the tensors and the integers in the order they stand."""

    __slots__ = ("integers", "tensors")

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.integers: list[int] = []

    def frame(self, value: Any) -> Any:
        kind = type(value)
        if kind is int:
            self.integers.append(value)
            return int
        if value is None or kind in (bool, float, str, complex, torch.dtype, torch.device):
            return (kind, value)
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return torch.Tensor
        if isinstance(value, (tuple, list)):
            return (kind, *map(self.frame, value))
        if kind is slice:
            return (slice, self.frame(value.start), self.frame(value.stop), self.frame(value.step))
        if isinstance(value, dict):
            return (dict, *((key, self.frame(item)) for key, item in value.items()))
        return _Same(value)


class _Same:
    """An argument of another type: equal to itself only."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _take(func: Any, args: Any, kwargs: Any) -> tuple[Any, list[torch.Tensor], list[int]]:
    taken = _Taken()
    frame = (taken.frame(args), taken.frame(kwargs)) if kwargs else taken.frame(args)
    return frame, taken.tensors, taken.integers


def _name(func: Any) -> str:
    return getattr(func, "__name__", "") or str(func)


def _compared(func: Any, frame: Any) -> tuple[Any, Any]:
    """Return what of a call is the same for all kinds of tensors: some turn ``float()`` into ``to(...)``."""
    name = _name(func)
    return ("to", None) if name in _CASTS else ("item", None) if name in _LOOKS else (func, frame)


def _attribute(func: Any) -> str:
    """Return which attribute a call reads, "" if it does something else."""
    return getattr(getattr(func, "__self__", None), "__name__", "") if _name(func) == "__get__" else ""


def _is_read(func: Any) -> bool:
    """Say whether a call reads a tensor's form."""
    attribute = _attribute(func)
    return attribute not in _VIEWS | _HOOKED if attribute else _name(func) in _READS


def _is_plain(func: Any, has_results: bool) -> bool:
    """Say whether a call may stand in a repeat: it hides neither a backward of its own nor a look at values."""
    if isinstance(func, HigherOrderOperator) or _name(func) in _OPAQUE or _attribute(func) in _HOOKED:
        return False
    return has_results or _name(func) in _SETTINGS | _WRITES


class Recorder(TorchFunctionMode):
    """Writes down the calls of a run.

    mode: the fake tensors' mode. path: returns the path of the module that runs. regions: checkpointed ones.
    is_quick: calls equal to one that ran do not run; raises NeedsRunError where the program must tell.
    """

    def __init__(
        self,
        mode: BalancedMode,
        names: dict[int, str],
        path: Callable[[], str],
        regions: Regions,
        is_quick: bool = True,
    ) -> None:
        super().__init__()
        self.stream = Stream()
        self._quick = QuickResults(mode) if is_quick else None
        self._mode, self._names, self._path, self._regions = mode, names, path, regions
        self._alive: list[torch.Tensor] = []  # no object may be freed and its id taken while values refer to it
        self._values: dict[int, int] = {}
        self._digests: dict[int, tuple[torch.Tensor, bytes]] = {}  # of known entries, with the tensor that lives on
        self._is_next_plain = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._quick is not None and asks_for_history(_attribute(func) or _name(func)):
            raise NeedsRunError
        if _is_read(func):
            return func(*args, **kwargs)
        frame, tensors, integers = _take(func, args, kwargs)
        reads = tuple(map(self._value, tensors))
        forms = tuple(map(self._form, tensors))
        number = self._regions.current
        region = None if number is None else self._regions.all[number]
        kept = None if region is None else (region.stops_early, _Same(region.policy))
        autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        state = (kept, torch.is_grad_enabled(), *autocast, torch.get_default_dtype())
        result, shape, made, results = self._run(func, args, kwargs, (frame, forms, state, integers, tensors))
        signature = (func, frame, forms, shape, results, state)
        compared, bare = _compared(func, frame)
        self.stream.calls.append(
            StreamCall(
                func=compared,
                frame=bare,
                signature=signature,
                reads=reads,
                integers=tuple(integers),
                results=tuple(map(self._value, made)),
                path=self._path(),
                region=number,
                may_repeat=self._is_next_plain and _is_plain(func, bool(made)),
            )
        )
        self._is_next_plain = True
        return result

    def _run(self, func: Any, args: Any, kwargs: Any, call: Any) -> tuple[Any, Any, list[torch.Tensor], Any]:
        """Return a call's result, its frame, the tensors in it and their forms."""
        frame, forms, state, integers, tensors = call
        quick, key, is_known = self._quick, None, False
        if quick is not None and all(form[-1] is None for form in forms) and quick.takes(tensors):
            key = (func, frame, forms, state, steady_key(_name(func), args, integers))
            is_known, result = quick.find(key, tensors)
        if not is_known:
            result = func(*args, **kwargs)
        shape, made, _ = _take(func, result, None)
        results = tuple(map(self._form, made))
        if quick is not None and key is not None and not is_known:
            says_all = all(form[-1] is None for form in results) and tuple(map(self._form, tensors)) == forms
            if says_all and _is_plain(func, bool(made)) and _name(func) not in _SETTINGS:
                quick.keep(key, tensors, result, made)
        return result, shape, made, results

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Record what runs in the context, whatever calls autograd Functions of its own as nothing that repeats."""
        apply = torch.autograd.Function.__dict__["apply"].__func__

        def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
            self._is_next_plain &= cls.__module__ == torch._library.autograd.__name__  # registered with an operator
            return apply(cls, *args, **kwargs)

        with mock.patch.object(torch.autograd.Function, "apply", classmethod(applied)), self:
            yield

    def _value(self, tensor: torch.Tensor) -> int:
        value = self._values.get(id(tensor))
        if value is None:
            value = self._values[id(tensor)] = self.stream.num_values
            self.stream.num_values += 1
            self._alive.append(tensor)
            if id(tensor) in self._names:
                self.stream.names[value] = self._names[id(tensor)]
        return value

    def _form(self, tensor: torch.Tensor) -> Any:
        return (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad, self._law(tensor))

    def _law(self, tensor: torch.Tensor) -> Any:
        law = self._mode.law(tensor)
        if isinstance(law, (Choice, Mean)):
            return law
        if isinstance(law, Shares):
            return law.denominator, self._entries(law.numerators)
        return self._entries(law.value) if isinstance(law, Known) else None

    def _entries(self, value: torch.Tensor) -> Any:
        """Return what equals that of a tensor with the same entries."""
        found = self._digests.get(id(value))
        if found is None:
            with no_dispatch():
                digest = hashlib.sha256(value.contiguous().numpy().tobytes()).digest()
            found = self._digests[id(value)] = (value, digest)
        return found[1]


class Player(TorchFunctionMode):
    """Follows a recorded program while it is traced, and leaves out what the repeats skip.

    integers: of each call, as they are in this trace.
    """

    def __init__(self, stream: Stream, repeats: list[Repeat]) -> None:
        super().__init__()
        self.integers: list[tuple[int, ...]] = []
        self._stream, self._repeats = stream, repeats
        self._place = 0
        self._names: dict[int, str] = {}
        self._known: dict[int, torch.Tensor] = {}  # value -> what stands for it
        self._kept: dict[tuple[int, int], Any] = {}  # (repeat, call of the iteration) -> result before the gap
        self._stand_ins: dict[int, torch.Tensor] = {}
        self._repeat_of = {
            place: number
            for number, repeat in enumerate(repeats)
            for place in range(repeat.start, repeat.start + repeat.period * repeat.count)
        }
        self._outer: dict[int, dict[int, int]] = {}  # call -> its arguments that stand-ins replace
        for repeat in repeats:
            for place, skipped in repeat.outer.items():
                self._outer.setdefault(place, {}).update(skipped)

    @contextlib.contextmanager
    def follow(self, names: Callable[[], dict[int, str]]) -> Iterator[None]:
        """Follow one run of the program from its beginning to its end. names: of the weights, by id of the tensor."""
        self._place = 0
        self._names = names()
        self.integers = []
        self._known, self._kept, self._stand_ins = {}, {}, {}
        with self:
            yield
        if self._place != len(self._stream.calls):
            raise OtherProgramError(f"{self._place} of {len(self._stream.calls)} calls came")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_read(func):
            return func(*args, **kwargs)
        place = self._place
        self._place += 1
        if place >= len(self._stream.calls):
            raise OtherProgramError(f"call {place} of {func} is one more")
        call = self._stream.calls[place]
        frame, tensors, integers = _take(func, args, kwargs)
        if _compared(func, frame) != (call.func, call.frame) or len(tensors) != len(call.reads):
            raise OtherProgramError(f"call {place} is {func}, not {call.func}")
        self.integers.append(tuple(integers))
        for value, tensor in zip(call.reads, tensors, strict=True):
            if self._known.setdefault(value, tensor) is not tensor and not self._is_weight(value, tensor):
                raise OtherProgramError(f"call {place} of {func} reads another tensor")
        number = self._repeat_of.get(place)
        if number is None:
            if place in self._outer:
                args, kwargs = self._with_stand_ins(self._outer[place], call, args, kwargs)
            return self._bound(call, func(*args, **kwargs))
        return self._run_repeated(number, place, call, func, args, kwargs)

    def _is_weight(self, value: int, tensor: torch.Tensor) -> bool:
        """Say whether a tensor is the weight that a value is: a route may give each name of tied ones its own."""
        name = self._stream.names.get(value)
        return name is not None and self._names.get(id(tensor)) == name

    def _run_repeated(self, number: int, place: int, call: StreamCall, func: Any, args: Any, kwargs: Any) -> Any:
        repeat = self._repeats[number]
        iteration, step = divmod(place - repeat.start, repeat.period)
        if repeat.first_skipped <= iteration < repeat.end_skipped:
            if call.results:
                return self._bound(call, self._skipped_result(call, self._kept[number, step]))
            return None if _name(func) in _WRITES else func(*args, **kwargs)
        with fx_traceback.annotate({"repeat": (number, iteration)}):
            result = self._bound(call, func(*args, **kwargs))
        if iteration == repeat.first_skipped - 1:
            self._kept[number, step] = result
        return result

    def _skipped_result(self, call: StreamCall, kept: Any) -> Any:
        """Return what a skipped call returns: what was kept, but what it was given where it returns that."""
        if not any(value in self._known for value in call.results):
            return kept
        if not isinstance(kept, torch.Tensor):
            raise OtherProgramError(f"{call.func} returns several tensors and changes one")
        return self._known[call.results[0]]

    def _bound(self, call: StreamCall, result: Any) -> Any:
        """Note what stands for the values that a call makes."""
        _, made, _ = _take(call.func, result, None)
        if len(made) != len(call.results):
            raise OtherProgramError(f"{call.func} makes {len(made)} tensors, not {len(call.results)}")
        for value, tensor in zip(call.results, made, strict=True):
            if self._known.setdefault(value, tensor) is not tensor:
                raise OtherProgramError(f"{call.func} makes another tensor")
        return list(result) if type(result) is list else result

    def _with_stand_ins(self, skipped: dict[int, int], call: StreamCall, args: Any, kwargs: Any) -> Any:
        """Return arguments with stand-ins for results of skipped iterations; skipped: argument -> what it is there."""
        places = iter(range(len(call.reads)))

        def put(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                place = next(places)
                return self._stand_in(skipped[place], value) if place in skipped else value
            if isinstance(value, (tuple, list)):
                items = [put(item) for item in value]
                return items if isinstance(value, list) else tuple(items)
            if isinstance(value, dict):
                return {key: put(item) for key, item in value.items()}
            return value

        return put(args), put(kwargs)

    def _stand_in(self, kind: int, like: torch.Tensor) -> torch.Tensor:
        if kind not in self._stand_ins:
            with fx_traceback.annotate({"repeat": STAND_IN}):
                self._stand_ins[kind] = like.detach()
        return self._stand_ins[kind]
