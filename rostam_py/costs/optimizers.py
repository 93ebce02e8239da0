"""Optimizer kernels: their bytes, FLOPs and state, all per parameter.

Model: one fused kernel that reads gradients, state and (in mixed precision) fp32 master parameters
once and writes state, master and 2-byte parameters once; or PyTorch's foreach kernels, one for each step of the update,
between which all of it passes through memory, taken as one. Both are bound by memory. Gradients pass through memory
before, where a loss in fp16 was scaled and where they are clipped. Fused kernels decay weights for nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rostam_py.costs.model import KernelCall
from rostam_py.costs.precision import AUTO, get_precision, gradient_bytes
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.field_words import value_in_brackets
from rostam_py.graph import Affine, Op


@dataclass(frozen=True, slots=True)
class Optimizer:
    """state_tensors: fp32 values kept per parameter. flops: operations per parameter and step.

    foreach: what foreach kernels move of a parameter: reads of its gradient, other reads and writes of fp32 values.
    steps: how many kernels they are.
    """

    name: str
    state_tensors: int
    flops: int
    foreach: tuple[int, int, int]
    steps: int


# FLOPs counted from the update rules: sgd p -= lr g; momentum m = mu m + g, p -= lr m; adam (Kingma
# and Ba 2015, Algorithm 1) two moving averages (3 + 4), bias corrections folded, sqrt, eps, divide, update; adagrad
# (Duchi et al. 2011, diagonal form) s += g^2, p -= lr g / (sqrt(s) + eps).
# Decay is not among them, but adam's (software.rules.weight_decay).
# Foreach kernels (torch/optim of pytorch/pytorch, _multi_tensor_sgd, _adagrad and _adamw): sgd add; momentum mul, add,
# add; adagrad addcmul, sqrt, add, mul, addcdiv; adam mul (weight decay), lerp, mul, addcmul, sqrt, div, add, addcdiv.
OPTIMIZERS = {
    "sgd": Optimizer("sgd", 0, 2, (1, 1, 1), 1),
    "momentum": Optimizer("momentum", 1, 4, (1, 4, 3), 3),
    "adagrad": Optimizer("adagrad", 1, 7, (2, 6, 5), 5),
    "adam": Optimizer("adam", 2, 12, (2, 10, 8), 8),
}
STATE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # of a value of state, by its precision
FUSED, FOREACH, SINGLE = "fused", "foreach", "single"
OPTIMIZER_KERNELS = {
    FUSED: "one kernel reads and writes all once (Apex, Transformer Engine, torch.optim's fused)",
    FOREACH: "a kernel for each step of the update, over all parameters (torch.optim's default)",
    SINGLE: "a kernel for each step of each parameter's update (torch.optim with foreach=False)",
}
NO_DECAY, DECAYED_PRODUCTS = "none", "products"
WEIGHT_DECAYS = {
    NO_DECAY: "no kernel decays weights: none does, or a fused step",
    DECAYED_PRODUCTS: "of weights of two dimensions that matrix products read, each by a kernel of its own",
    "all": "of all parameters, each by a kernel of its own",
}


def get_optimizer(name: str, key: str = "strategy.optimizer") -> Optimizer:
    """Return the optimizer called ``name``.

    Args: key: what an error names as the key that holds it.
    Raises: UnknownNameError, listing the known ones.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError(f"{key} is {name!r}{value_in_brackets(key, name)}; known: {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


@dataclass(frozen=True, slots=True)
class StateWidths:
    """Bytes of a value that the optimizer keeps, where not in fp32. master: of the copy of parameters that is updated
    where the precision has one. moments: of its states.
    """

    master: int = 4
    moments: int = 4


WHOLE_WIDTHS = StateWidths()


def optimizer_state_bytes(optimizer: str, precision: str, widths: StateWidths = WHOLE_WIDTHS) -> int:
    """Return bytes per parameter besides parameter and gradient: states and the master copy.

    Example: adam is 8 in fp32 and 12 in bf16_mixed (Rajbhandari et al. 2020, section 3.1: K = 12).
    """
    master = 1 if get_precision(precision).has_master_parameters else 0
    return widths.moments * get_optimizer(optimizer).state_tensors + widths.master * master


def optimizer_traffic_bytes(
    optimizer: str, precision: str, gradient_precision: str = AUTO, *, clips: bool = False, kernels: str = FUSED,
    holds_copy: bool = True, widths: StateWidths = WHOLE_WIDTHS,
) -> tuple[int, int]:  # fmt: skip
    """Return (bytes read, bytes written) per parameter by one step.

    Model: reads gradient, states and the parameter that is updated (the master copy if there is
        one); writes states, that parameter and, in mixed precision, its 2-byte copy. Where the loss is scaled (fp16)
        gradients are read and written before, in fp32, without the scale; where they are clipped they are read for
        their norm, and read and written again. Behind foreach kernels another one casts the copy.
    Args: kernels: of OPTIMIZER_KERNELS. holds_copy: a 2-byte copy of the parameters is held, where precision has one.
    Source: Megatron-LM's megatron/optimizer/optimizer.py (unscale_main_grads_and_check_for_nan) and clip_grads.py;
        torch.amp.GradScaler.unscale_, torch.nn.utils.clip_grad_norm_.
    """
    read, written = passes_bytes(precision, gradient_precision, clips=clips)
    updated = update_bytes(
        optimizer, precision, gradient_precision, kernels=kernels, holds_copy=holds_copy, widths=widths
    )
    return read + updated[0], written + updated[1]


def passes_bytes(precision: str, gradient_precision: str = AUTO, *, clips: bool = False) -> tuple[int, int]:
    """Return (bytes read, bytes written) per parameter of what is done to gradients in front of the update."""
    scales, gradient = get_precision(precision).scales_loss, gradient_bytes(precision, gradient_precision)
    read, written = (gradient, 4) if scales else (0, 0)
    width = 4 if scales else gradient
    return (read + 2 * width, written + width) if clips else (read, written)


def update_bytes(
    optimizer: str, precision: str, gradient_precision: str = AUTO, *, kernels: str = FUSED, holds_copy: bool = True,
    widths: StateWidths = WHOLE_WIDTHS,
) -> tuple[int, int]:  # fmt: skip
    """Return (bytes read, bytes written) per parameter of the update alone. Args: see optimizer_traffic_bytes."""
    chosen = get_precision(precision)
    states = widths.moments * get_optimizer(optimizer).state_tensors
    updated = widths.master if chosen.has_master_parameters else 4
    copy = chosen.parameter_bytes if chosen.has_master_parameters and holds_copy else 0
    gradient = 4 if chosen.scales_loss else gradient_bytes(precision, gradient_precision)
    if kernels == FUSED:
        return gradient + states + updated, states + updated + copy
    of_gradient, others, writes = get_optimizer(optimizer).foreach
    return of_gradient * gradient + 4 * (others + (copy > 0)), 4 * writes + copy


def optimizer_call(
    name: str, num_parameters_local: float, precision: str, gradient_precision: str = AUTO, *, clips: bool = False,
    kernels: str = FUSED, holds_copy: bool = True, widths: StateWidths = WHOLE_WIDTHS,
) -> KernelCall:  # fmt: skip
    """Return the optimizer step of one device as one kernel.

    Args:
        num_parameters_local: parameters this device updates (after tp, pp and ZeRO splits).
        gradient_precision: of the gradients that it reads.
        clips: it scales gradients to a norm before.
        kernels, holds_copy: see optimizer_traffic_bytes. widths: of state, fp32 but for fused kernels.
    Returns: a KernelCall whose op has type "optimizer.<name>" and ``arguments["num_parameters"]``.
    Raises: UnknownNameError for the name; ConfigError for a negative count, or gradients the precision cannot have.
    """
    if num_parameters_local < 0:
        raise ConfigError(f"num_parameters_local is {num_parameters_local}; it must be >= 0")
    traffic = optimizer_traffic_bytes(
        name, precision, gradient_precision, clips=clips, kernels=kernels, holds_copy=holds_copy, widths=widths
    )
    return _call(name, num_parameters_local, get_optimizer(name).flops, traffic, precision)


def single_calls(
    name: str, counts: Sequence[float], precision: str, gradient_precision: str = AUTO, *, clips: bool = False,
    holds_copy: bool = True, decayed: Collection[int] = (),
) -> list[KernelCall]:  # fmt: skip
    """Return the kernels of an optimizer step that updates parameters one by one (SINGLE), in order.

    Model: what is done to all gradients in front of it is one kernel; of each parameter the steps of the update move
        equal parts of what they move together. A decayed one is added to its gradient by a kernel in front of them.
    Args:
        counts: elements of each parameter that this device updates.
        decayed: places in ``counts`` of decayed parameters.
        Others: see optimizer_call.
    Source: torch.optim, _single_tensor_sgd: grad.add(param, alpha=weight_decay).
    """
    optimizer, total = get_optimizer(name), sum(counts)
    before = passes_bytes(precision, gradient_precision, clips=clips)
    calls = [_call(name, total, 0, before, precision)] if any(before) and total else []
    read, written = update_bytes(name, precision, gradient_precision, kernels=SINGLE, holds_copy=holds_copy)
    step = read / optimizer.steps, written / optimizer.steps
    width = 4 if get_precision(precision).scales_loss else gradient_bytes(precision, gradient_precision)
    for place, count in enumerate(counts):
        if place in decayed:
            calls.append(_call(name, count, 2, (width + 4, width), precision))
        calls += [_call(name, count, optimizer.flops / optimizer.steps, step, precision)] * optimizer.steps
    return calls


def _call(name: str, count: float, flops: float, traffic: tuple[float, float], precision: str) -> KernelCall:
    """Return a kernel of an optimizer's. Args: flops, traffic: of one of so many parameters, read and written bytes."""
    op = Op(
        id=0, name=f"optimizer.{name}", module="", phase="optimizer", op_type=f"optimizer.{name}",
        inputs=(), outputs=(), arguments={"num_parameters": count}, flops=Affine(flops * count),
        bytes_read=Affine(traffic[0] * count), bytes_written=Affine(traffic[1] * count),
    )  # fmt: skip
    return KernelCall(
        ops=(op,),
        flops=flops * count,
        bytes_read=op.bytes_read.constant,
        bytes_written=op.bytes_written.constant,
        batch=1,
        precision=precision,
    )
