"""Quantities: what a published row says of a run, and the time or memory that it stands for.

Example:
    QUANTITIES["tokens_per_s_per_gpu"].of(outcome, 14_000.0)    # (measured seconds, predicted seconds)

Every figure of speed is turned into the time of an iteration, so that errors of all rows mean the same: +5% is an
iteration predicted 5% longer than it was measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.models import registered
from rostam_py.simulation import CollectiveResult, RunResult
from rostam_py.units import format_size, format_time
from rostam_py.validation.layers import LayersHeld

_GIB = 2**30
MEASURES = ("time", "memory", "state", "activations")  # what errors are of; all but the first in bytes
SPEEDUP = "speedup"  # over another run of the same row, whose predicted time the row's shape has as AGAINST_S
AGAINST_S = "against_s"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A published quantity.

    what: in words. measures: one of MEASURES. of: (result, published value, row's shape) -> the time [s], or the
    memory [bytes], that the value stands for. subject: what it is said of, and so what the result is: a "run", a
    "collective", or the "layers" of a run's first stage.
    """

    name: str
    what: str
    measures: str
    of: Callable[[Any, float, Mapping[str, Any]], float]
    subject: str = "run"

    def predicted(self, result: RunResult | CollectiveResult | LayersHeld) -> float:
        """Return what is predicted of the same."""
        if isinstance(result, CollectiveResult):
            return result.time_s
        if isinstance(result, LayersHeld):
            return result.state if self.measures == "state" else result.activations
        return float(result.plan.memory_bytes if self.measures == "memory" else result.iteration_time_s)


def _tokens_of(result: RunResult, key: str, shape: Mapping[str, Any]) -> float:
    """Return the tokens of a sample. Raises: ConfigError, naming the measurement that needs them, if none are known."""
    model = registered(result.plan.graph_name)
    tokens = shape.get("sequence") or (model.tokens if model is not None else 0)
    if not tokens:
        raise ConfigError(
            f"{key} is given for {result.plan.graph_name}, whose samples have no known tokens; give"
            " samples_per_s or time_s"
        )
    return float(tokens)


def _tokens(result: RunResult, value: float, shape: Mapping[str, Any]) -> float:
    tokens = _tokens_of(result, "tokens_per_s_per_gpu", shape)
    return result.plan.global_batch * tokens / (value * result.plan.num_devices)


def _hours(result: RunResult, value: float, shape: Mapping[str, Any]) -> float:
    tokens = _tokens_of(result, "gpu_hours_per_trillion_tokens", shape)
    return value * 3600 / result.plan.num_devices / 1e12 * result.plan.global_batch * tokens


def _own_flops(field: str) -> Callable[[RunResult, float, Mapping[str, Any]], float]:
    def seconds(result: RunResult, value: float, shape: Mapping[str, Any]) -> float:
        plan = result.plan
        flops = sum(getattr(stage, field) * len(plan.devices_of(stage.index)) for stage in plan.stages)
        return float(flops) / (value * 1e12 * plan.num_devices)

    return seconds


def gpt_flops(shape: Mapping[str, Any], batch: int, *, is_recomputed: bool) -> float:
    """Return the FLOPs of a GPT's iteration as Megatron's authors count them, the whole score matrix included.

    Args: shape: layers, width, sequence and vocabulary.
    Source: Narayanan et al. 2021 (arXiv 2104.04473), equation 3; without recomputation three quarters of the layers'.
    """
    layers, width, sequence, vocabulary = (shape[key] for key in ("layers", "width", "sequence", "vocabulary"))
    blocks = (96 if is_recomputed else 72) * layers * width**2 * (1 + sequence / (6 * width))
    return float(batch * sequence * (blocks + 6 * width * vocabulary))


def _gpt(is_recomputed: bool) -> Callable[[RunResult, float, Mapping[str, Any]], float]:
    def seconds(result: RunResult, value: float, shape: Mapping[str, Any]) -> float:
        flops = gpt_flops(shape, result.plan.global_batch, is_recomputed=is_recomputed)
        return flops / (value * 1e12 * result.plan.num_devices)

    return seconds


QUANTITIES = {
    one.name: one
    for one in (
        Quantity("time_s", "seconds of an iteration", "time", lambda result, value, shape: value),
        Quantity("samples_per_s", "samples trained each second by all accelerators", "time",
                 lambda result, value, shape: result.plan.global_batch / value),
        Quantity("tokens_per_s_per_gpu", "tokens trained each second by one accelerator", "time", _tokens),
        Quantity("model_tflops_per_gpu", "TFLOP/s of one accelerator by the model's own work", "time",
                 _own_flops("flops")),
        Quantity("gpt_hardware_tflops_per_gpu", "TFLOP/s of one accelerator by Megatron's formula, full recomputation"
                 " counted", "time", _gpt(True)),
        Quantity("gpt_model_tflops_per_gpu", "TFLOP/s of one accelerator by Megatron's formula, without recomputation",
                 "time", _gpt(False)),
        Quantity("gpu_hours_per_trillion_tokens", "accelerator hours for 10^12 tokens", "time", _hours),
        Quantity(SPEEDUP, "times as fast as the same run with other settings, which is predicted, too", "time",
                 lambda result, value, shape: shape[AGAINST_S] / value),
        Quantity("memory_gib", "GiB of the fullest accelerator", "memory", lambda result, value, shape: value * _GIB),
        Quantity("bus_bandwidth_gb_per_s", "GB/s of bus bandwidth, as nccl-tests define it", "time",
                 lambda result, value, shape: result.time_s * result.bus_bandwidth_bytes_per_s / (value * 1e9),
                 "collective"),
        Quantity("collective_time_s", "seconds of a collective", "time", lambda result, value, shape: value,
                 "collective"),
        Quantity("layers_state_gib", "GiB of parameters, gradients and optimizer state of the first stage's layers on"
                 " one accelerator", "state", lambda result, value, shape: value * _GIB, "layers"),
        Quantity("layers_activations_gib", "GiB that the first stage's layers keep for backward on one accelerator",
                 "activations", lambda result, value, shape: value * _GIB, "layers"),
    )
}  # fmt: skip
OF_RUNS = [name for name, one in QUANTITIES.items() if one.subject == "run"]


def said(measures: str, value: float) -> str:
    """Return a time, or a number of bytes, in words."""
    return format_time(value) if measures == "time" else format_size(int(value))
