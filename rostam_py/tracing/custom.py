"""What users tell the tracer: the cost of their own kernels, and stand-ins for modules it cannot run. Needs no torch.

Example:
    rostam.register_op(
        "mylib::swiglu",                                          # as in torch.library.custom_op("mylib::swiglu", ...)
        flops=lambda x, weight, out: 2 * x.numel() * weight.shape[1],
        splits=[("sample", (0, None), (0,)), ("column", (None, 1), (1,)), ("row", (1, 0), ("partial",))],
        role="product",
    )
    rostam.register_module(FlashMlp, lambda module: PlainMlp(module.up, module.down))
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.graph import PARTIAL, WHOLE
from rostam_py.graph.vocabulary import ROLES, SPLIT_KINDS
from rostam_py.tracing.splits.call import RawSplit, SplitCall

SplitSpec = tuple[str, Sequence[int | None], Sequence[int | str | None]]


@dataclass(frozen=True)
class CustomOp:
    """What ``register_op`` was told about one op."""

    flops: Callable[..., float] | float
    bytes: Callable[..., tuple[float, float]] | None
    splits: tuple[SplitSpec, ...]
    role: str

    def count_flops(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> float:
        """Return the FLOPs of one call."""
        return float(self.flops(*args, **kwargs, out=result) if callable(self.flops) else self.flops)

    def count_bytes(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> tuple[float, float] | None:
        """Return (bytes read, bytes written) of one call, None where inputs and outputs count once."""
        if self.bytes is None:
            return None
        read, written = self.bytes(*args, **kwargs, out=result)
        return read, written

    def find_splits(self, call: SplitCall) -> list[RawSplit]:
        """Return the splits whose axis is longer than one."""
        found = []
        for kind, inputs, outputs in self.splits:
            input_dims = tuple(inputs) + (WHOLE,) * (len(call.inputs) - len(inputs))
            output_dims = tuple(PARTIAL if d == "partial" else d for d in outputs)
            output_dims += (WHOLE,) * (len(call.outputs) - len(outputs))
            pairs = (*zip(call.inputs, input_dims, strict=False), *zip(call.outputs, output_dims, strict=False))
            sizes = [shape[dim] for shape, dim in pairs if isinstance(dim, int) and dim != PARTIAL]
            if sizes and min(sizes) > 1:
                found.append(RawSplit(kind, input_dims, output_dims, min(sizes)))  # type: ignore[arg-type]
        return found


_OPS: dict[str, CustomOp] = {}
_STAND_INS: dict[str, Callable[[Any], Any]] = {}


def register_op(
    name: str,
    flops: Callable[..., float] | float,
    bytes: Callable[..., tuple[float, float]] | None = None,  # noqa: A002 (the word users look for)
    splits: Iterable[SplitSpec] = (),
    role: str = "",
) -> None:
    """Tell the tracer what an op costs: a custom kernel, or one of torch's that has no formula.

    Model: an op that reads a parameter matrix and has no FLOP formula is an error of ``trace`` (MODEL 30). A custom
        op needs a fake implementation (``torch.library.register_fake``) to be traced; the backward of a custom op or
        of an autograd Function is traced as the ops it calls, each of which may be registered.
    Args:
        name: "library::op", for all its overloads; registering a name again replaces the earlier entry.
        flops: FLOPs of one call, a multiply-add counts as two: a number, or a function called as the op is, with
            tensors that have shapes and no data, and the result as ``out``.
        bytes: (bytes read, bytes written), a function called likewise; by default each input and output once.
        splits: legal ways to split the op over a group, each (kind, dims of the tensor inputs, dims of the outputs)
            with None for a tensor that every member holds whole and "partial" for an output that is a sum over
            members. kind: sample, column, row, spatial, head, expert, embedding_row or feature. Without any the op is
            replicated in tensor-parallel groups.
        role: what it does, for its efficiency: product, batched_product, convolution, attention, softmax, embedding,
            gather; "" counts as element-wise.
    Raises: ConfigError for a name that is none, an unknown kind of split or role, or FLOPs that are no number.
    """
    library, _, op = name.replace("::", ".").partition(".")
    if not library or not op:
        raise ConfigError(f"register_op: name is {name!r}; it must be 'library::op', for example 'mylib::swiglu'")
    splits = tuple((kind, tuple(inputs), tuple(outputs)) for kind, inputs, outputs in splits)
    for kind, _, outputs in splits:
        if kind not in SPLIT_KINDS:
            raise ConfigError(f"register_op({name!r}): split kind is {kind!r}; allowed: {', '.join(SPLIT_KINDS)}")
        if wrong := [d for d in outputs if isinstance(d, str) and d != "partial"]:
            raise ConfigError(f"register_op({name!r}): an output dim is {wrong[0]!r}; allowed: a dim, None, 'partial'")
    if role not in ROLES:
        raise ConfigError(f"register_op({name!r}): role is {role!r}; allowed: {', '.join(map(repr, ROLES))}")
    if not callable(flops) and (isinstance(flops, bool) or not isinstance(flops, int | float) or flops < 0):
        raise ConfigError(f"register_op({name!r}): flops is {flops!r}; it must be a number >= 0 or a function")
    _OPS[f"{library}.{op.partition('.')[0]}"] = CustomOp(flops, bytes, splits, role)


def find_op(op_type: str) -> CustomOp | None:
    """Return what was registered for an op type such as "mylib.swiglu.default", None if nothing was."""
    return _OPS.get(".".join(op_type.split(".")[:2])) if _OPS else None


def is_customized() -> bool:
    """Say whether anything was registered: a trace then depends on functions that cannot be compared."""
    return bool(_OPS or _STAND_INS)


def register_module(module: type | str, stand_in: Callable[[Any], Any]) -> None:
    """Trace a plain module in place of one that the tracer cannot run, such as a wrapper of a compiled kernel.

    Args:
        module: the class, or its name as "package.file.Class"; subclasses have to be registered themselves.
        stand_in: called with the instance, it returns the module that is traced in its place: it takes the same
            inputs. What it is to train are the instance's own parameters, used in it under any name.
    Raises: ConfigError if ``module`` is neither a class nor a dotted name, or ``stand_in`` cannot be called.
    """
    if not isinstance(module, type) and not (isinstance(module, str) and "." in module):
        raise ConfigError(
            f"register_module: module is {module!r}; it must be a class or its name, 'package.file.Class'"
        )
    if not callable(stand_in):
        raise ConfigError(f"register_module: stand_in is {stand_in!r}; it must be a function of the module")
    _STAND_INS[module if isinstance(module, str) else _class_name(module)] = stand_in


def find_stand_in(kind: type) -> Callable[[Any], Any] | None:
    """Return the stand-in registered for a class, None if there is none."""
    return _STAND_INS.get(_class_name(kind)) if _STAND_INS else None


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
