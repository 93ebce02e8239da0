"""CaptureMode: every op of a program below autograd; those on "cuda" are shapes alone, and are recorded.

Model: tensors on "cuda" are fake, those of the host real. An op that only mutates its arguments returns them at once;
the shape of any other result is FakeTensorMode's.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from rostam_py.capturing.communication import NAMESPACES, Wires
from rostam_py.capturing.memory import Memory
from rostam_py.capturing.recorder import KernelKey, Recorder
from rostam_py.capturing.replacing import put
from rostam_py.capturing.shadows import MOST_ENTRIES, is_counted
from rostam_py.errors import ConfigError

aten, prim = torch.ops.aten, torch.ops.prim
_FAKE_KEY = torch._C._TorchDispatchModeKey.FAKE
# They hand out or name memory, and launch no kernel.
_NO_KERNELS = {
    aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.new_empty.default,
    aten.new_empty_strided.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.lift_fresh.default,
    aten.lift.default, aten.set_.source_Tensor, aten.set_.source_Storage, aten.resize_.default, aten.detach_.default,
    aten.set_.source_Storage_storage_offset, aten.record_stream.default, aten.requires_grad_.default,
}  # fmt: skip
_CAUSAL, _OUT = "is_causal", "out"  # arguments' names
_CHOOSING = (aten.topk.default, aten.argmax.default, aten.multinomial.default)


class CaptureMode(TorchDispatchMode):
    """Runs the ops of a rank. fake: of the tensors on the device."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder, memory: Memory, wires: Wires) -> None:
        super().__init__()
        put(FakeTensorMode, avoid_device_init=True)  # cuda.is_available() says yes, but constants cannot be made there
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.shadows = wires.shadows
        self._recorder, self._memory, self._wires = recorder, memory, wires
        self._mutated: dict[Any, tuple[int, ...] | None] = {}
        self._silent: dict[Any, bool] = {}
        self._masks: dict[Any, int] = {}  # op -> place of the argument that says whether its mask is causal, or -1
        self._buckets: dict[int, Any] = {}  # storage of one of DDP's buckets -> its work

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is prim.device.default and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        kwargs = kwargs or {}
        if torch._C._get_dispatch_mode(_FAKE_KEY) is not None:  # DTensor works out a layout
            return func(*args, **kwargs)
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        if any(_is_wrapper(one) for one in types):
            return NotImplemented
        tensors = list(_tensors((args, kwargs.values())))
        fakes = [one for one in tensors if isinstance(one, FakeTensor)]
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if fakes and fakes[0].fake_mode is not self.fake:
            return func(*args, **kwargs)
        if func.namespace in NAMESPACES:
            return self._wires.run(func, args, kwargs, fakes, self.fake)
        if self._buckets:
            self._join_buckets(func, fakes)
        if not fakes:
            return self._from_host(func, args, kwargs, tensors)
        return self._on_device(func, args, kwargs, tensors, fakes)

    def bucket_reduced(self, bucket: torch.Tensor, work: Any) -> None:
        """Let the first kernel that touches a bucket wait for the work that reduces it."""
        self._buckets[bucket.untyped_storage()._cdata] = work

    def _join_buckets(self, func: Any, fakes: list[FakeTensor]) -> None:
        if func.is_view or func.namespace == "prim":
            return
        for one in fakes:
            work = self._buckets.pop(one.untyped_storage()._cdata, None)
            if work is not None:
                self._wires.joined(work)

    def _from_host(self, func: Any, args: Any, kwargs: Any, reals: list[torch.Tensor]) -> Any:
        """Run an op without fake inputs: on the host, unless its result is to be on the device."""
        if func is aten.is_pinned.default:  # DDP asserts that what it asks for is
            return True
        if not _is_cuda(kwargs.get("device")):
            return func(*args, **kwargs)
        if func._schema.name == "aten::to":  # FakeTensorMode would run it on a device that there is not
            with self:
                return func.decompose(*args, **kwargs)
        if func is aten._to_copy.default:
            out = self._copied(reals[0], kwargs)
        else:
            with self.fake:
                out = func(*args, **kwargs)
        value = self.shadows.made(func, args, kwargs, reals)
        if value is not None:
            self.shadows.set(out, value)
        self._note(func, args, kwargs, out)
        return out

    def _copied(self, real: torch.Tensor, kwargs: Any) -> Any:
        """Return the fake copy of a host's tensor; converting it would leave weak references on what it replaces."""
        dtype = kwargs.get("dtype") or real.dtype
        with self.fake:
            return torch.empty_strided(real.shape, real.stride(), dtype=dtype, device=kwargs["device"])

    def _on_device(self, func: Any, args: Any, kwargs: Any, tensors: list[Any], fakes: list[FakeTensor]) -> Any:
        if func is aten._local_scalar_dense.default:
            return self._read(fakes[0])
        if func is aten.is_nonzero.default:
            return bool(self._read(fakes[0]))
        if func is aten.equal.default:
            self._recorder.host_waits()
            return True
        known = len(tensors) == len(fakes)
        value = self.shadows.compute(func, args, kwargs, fakes) if known and is_counted(fakes[0]) else None
        if func is aten._to_copy.default and _is_host(kwargs.get("device")):
            return self._to_host(args[0], kwargs, value)
        mutated = self._mutated_by(func)
        if mutated is not None:
            return self._mutate(func, args, kwargs, mutated, value)
        out = self._result(func, args, kwargs, fakes, value)
        if value is None and isinstance(out, torch.Tensor):
            value = self.shadows.filled(func, args, out)
        if value is not None:
            for fake, real in zip(pytree.tree_leaves(out), pytree.tree_leaves(value), strict=True):
                if isinstance(fake, FakeTensor):
                    self.shadows.set(fake, real)
        elif func in _CHOOSING:
            self.shadows.chosen(func, args, out)
        self._note(func, args, kwargs, out)
        return out

    def _result(self, func: Any, args: Any, kwargs: Any, fakes: list[FakeTensor], value: Any) -> Any:
        """Return an op's fake result. Args: value: the real one, where it is known: its shape may depend on data."""
        if value is not None and torch.Tag.dynamic_output_shape in func.tags:
            with self.fake:
                return pytree.tree_map_only(
                    torch.Tensor, lambda real: torch.empty(real.shape, dtype=real.dtype, device=fakes[0].device), value
                )
        if func is aten.index.Tensor:
            args = (args[0], self._counted_masks(args[1]))
        try:
            with self.fake:
                return func(*args, **kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            shapes = ", ".join(str(list(one.shape)) for one in fakes)
            raise ConfigError(
                f"{func} of {shapes} makes a tensor whose shape depends on data; capture knows values of integers that"
                " do not depend on data, and of routed experts"
            ) from error

    def _counted_masks(self, indices: Any) -> list[Any]:
        """Return indices in which masks that are known stand as the places that they choose."""
        found: list[Any] = []
        for one in indices:
            mask = self.shadows.get(one) if isinstance(one, FakeTensor) and one.dtype == torch.bool else None
            if mask is None:
                found.append(one)
                continue
            with self.fake:
                chosen = int(mask.sum())
                found += [torch.empty(chosen, dtype=torch.int64, device=one.device) for _ in range(mask.dim())]
        return found

    def _mutate(self, func: Any, args: Any, kwargs: Any, mutated: tuple[int, ...], value: Any) -> Any:
        """Run an op that returns what it mutates: nothing is to be worked out."""
        names = func._schema.arguments
        found = [args[k] if k < len(args) else kwargs[names[k].name] for k in mutated]
        if func is aten.copy_.default:
            value = self._source_value(args[0], args[1])
        for one in _tensors(found):
            if isinstance(one, FakeTensor) and is_counted(one):
                if value is None:
                    self.shadows.drop(one)
                elif func is aten.copy_.default:
                    self.shadows.set(one, value)
        if func is aten._amp_foreach_non_finite_check_and_unscale_.default:
            self.shadows.set(args[1], torch.zeros(args[1].shape))  # gradients are finite, so that steps are not skipped
        if func is aten.copy_.default and not isinstance(args[0], FakeTensor):
            self._recorder.host_waits()
        self._note(func, args, kwargs, found)
        if not func._schema.returns:
            return None
        return found[0] if len(found) == 1 else tuple(found)

    def _source_value(self, into: Any, source: Any) -> torch.Tensor | None:
        real = self.shadows.get(source) if isinstance(source, FakeTensor) else source
        if not isinstance(into, FakeTensor) or real is None or not is_counted(into):
            return None
        return real.to(into.dtype).expand(into.shape).clone()

    def _read(self, fake: FakeTensor) -> Any:
        """Return a number that the host reads off the device; 1 where it is not known."""
        self._recorder.host_waits()
        value = self.shadows.get(fake)
        if value is not None:
            return value.item()
        self._recorder.read_unknown()
        return 1.0 if fake.dtype.is_floating_point else (False if fake.dtype == torch.bool else 1)

    def _to_host(self, fake: FakeTensor, kwargs: Any, value: Any) -> torch.Tensor:
        """Return a tensor of the host that is copied from the device; ones where its values are not known."""
        dtype = kwargs.get("dtype") or fake.dtype
        self._note(aten._to_copy.default, (fake,), kwargs, ())
        if not kwargs.get("non_blocking"):
            self._recorder.host_waits()
        if value is not None:
            return value.to(dtype)
        self._recorder.read_unknown()
        made = torch.ones if fake.numel() <= MOST_ENTRIES else torch.empty  # memory that is not touched costs nothing
        return made(fake.shape, dtype=dtype)

    def _mutated_by(self, func: Any) -> tuple[int, ...] | None:
        """Return the places of the arguments that an op mutates and returns, None if it returns anything else."""
        if func not in self._mutated:
            self._mutated[func] = _returned(func)
        return self._mutated[func]

    def _higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self.fake:
            out = func(*args, **kwargs)
        if any(isinstance(one, FakeTensor) for one in _tensors((args, kwargs.values()))):
            self._track(out)
            if self._recorder.is_on:
                self._recorder.kernel(_key(func.name(), args, kwargs, out))
        return out

    def _note(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Count an op's memory, and record its kernel."""
        silent = self._silent.get(func)
        if silent is None:
            silent = self._silent[func] = func in _NO_KERNELS or func.is_view or func.namespace == "prim"
        if not (silent and func.is_view) and self._mutated_by(func) is None:
            self._track(out)
        if self._recorder.is_on and not silent:
            self._recorder.kernel(_key(str(func), args, kwargs, out, is_causal=self._is_causal(func, args)))

    def _is_causal(self, func: Any, args: Any) -> bool:
        """Return whether an op of attention is given a causal mask."""
        if func not in self._masks:
            names = [one.name for one in func._schema.arguments]
            self._masks[func] = names.index(_CAUSAL) if _CAUSAL in names else -1
        place = self._masks[func]
        return 0 <= place < len(args) and args[place] is True

    def _track(self, out: Any) -> None:
        for one in _tensors(out):
            if isinstance(one, FakeTensor):
                self._memory.track(one)


def _returned(func: Any) -> tuple[int, ...] | None:
    schema = func._schema
    if not schema.is_mutable or torch.Tag.inplace_view in func.tags:
        return None
    written = [k for k, one in enumerate(schema.arguments) if one.alias_info is not None and one.alias_info.is_write]
    if not schema.returns:
        return tuple(written)
    if len(schema.returns) != len(written):
        return None
    is_theirs = all(one.alias_info is not None and one.alias_info.is_write for one in schema.returns)
    return tuple(written) if is_theirs else None


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested lists; mappings have none in schemas of ops."""
    if isinstance(values, torch.Tensor):
        yield values
        return
    for one in values if isinstance(values, list | tuple | type({}.values())) else ():
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list | tuple | type({}.values())):
            yield from _tensors(one)


def _key(name: str, args: Any, kwargs: Any, out: Any, *, is_causal: bool = False) -> KernelKey:
    reads: list[torch.Tensor] = []
    numbers: list[Any] = []
    for one in (*args, *(value for key, value in kwargs.items() if key != _OUT)):
        if isinstance(one, torch.Tensor):
            reads.append(one)
        elif isinstance(one, list | tuple):
            inside = list(_tensors(one))
            reads += inside
            if not inside and all(type(entry) in (int, bool) for entry in one):
                numbers.append(tuple(one))
        elif type(one) is bool:  # numbers may be the rank's own
            numbers.append(one)
    made = list(_tensors(out))
    return KernelKey(
        name, tuple([tuple(one.shape) for one in reads]), tuple([str(one.dtype)[6:] for one in (*reads, *made)]),
        tuple([tuple(one.shape) for one in made]), tuple(numbers), is_causal,
    )  # fmt: skip


@functools.cache
def _is_wrapper(kind: Any) -> bool:
    """Return whether tensors of a class hold others, on which its ops are run and recorded: DTensor, float8 tensors."""
    return not issubclass(kind, FakeTensor) and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _is_host(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"
