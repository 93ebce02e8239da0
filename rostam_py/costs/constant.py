"""Constant: published times, spread over a model's ops; for reproducing papers.

Example: 31.8 ms forward and backward per micro-batch of one sample, of which a third is forward:
    make_cost_model("constant", "a100_80gb", graph=graph, forward_s=10.6e-3, backward_s=21.2e-3)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rostam_py.costs.accelerators import Accelerator
from rostam_py.costs.model import KernelCall
from rostam_py.costs.precision import get_precision
from rostam_py.costs.times import cost_time
from rostam_py.errors import ConfigError
from rostam_py.graph import Op, OperatorGraph
from rostam_py.units import format_count

_PHASES = {"forward": "forward pass", "backward": "backward pass", "optimizer": "optimizer step"}


class ConstantCost:
    """Spread published times over ops in proportion to their FLOPs.

    Model: an op's time is looked up by module prefix (longest wins), else by op type, else by phase.
        Module and phase times are spread over the ops they cover by FLOPs, so splits and other
        batches scale linearly; ops without FLOPs are part of the published time and take 0.
    Source: MODEL J27 for how the HammingMesh rows are read; the times are the user's.
    """

    @dataclass(kw_only=True, slots=True)
    class Config:
        """Published times of ``reference_batch`` samples on one device, unsplit: text with a unit, or seconds.

        reference_batch: number of samples that the times are for. forward_s, backward_s: time of the whole phase. At
            least one of them, modules or op_types must be given. Ops that none of them covers take no time, and a note
            says so.
        optimizer_s: time of one step over all parameters.
        modules: mapping of a module path prefix to [forward_s, backward_s]. op_types: mapping of an op type to seconds
            per call.
        """

        forward_s: Any = 0.0
        backward_s: Any = 0.0
        optimizer_s: Any = 0.0
        reference_batch: float = 1.0
        modules: Any = field(default_factory=dict)
        op_types: Any = field(default_factory=dict)

        def __post_init__(self) -> None:
            for key in ("forward_s", "backward_s", "optimizer_s"):
                setattr(self, key, cost_time(getattr(self, key), key))
            _check_mapping("modules", self.modules, "cost.modules.layer1=[1 ms,2 ms]")
            _check_mapping("op_types", self.op_types, "'cost.op_types={aten.mm.default: 1 ms}'")
            self.modules = {prefix: _pair(prefix, pair) for prefix, pair in self.modules.items()}
            self.op_types = {key: cost_time(value, f"op_types.{key}") for key, value in self.op_types.items()}
            if not self.reference_batch > 0:
                raise ConfigError(f"cost.reference_batch is {self.reference_batch}; it must be > 0")

        def build(self, *, accelerator: Accelerator, graph: OperatorGraph | None = None) -> "ConstantCost":
            """Return the cost model; ``graph`` is the model that the published times belong to."""
            return ConstantCost(self, accelerator, graph)

    def __init__(self, config: Config, accelerator: Accelerator, graph: OperatorGraph | None) -> None:
        if graph is None:
            raise ConfigError("cost model 'constant' needs the graph whose ops share the published times")
        pairs = [time for pair in config.modules.values() for time in pair]
        if not any((config.forward_s, config.backward_s, *pairs, *config.op_types.values())):
            raise ConfigError(
                "cost=constant has no times; give cost.forward_s and cost.backward_s, for example"
                " cost.forward_s='10 ms' cost.backward_s='20 ms', cost.modules or cost.op_types"
            )
        self.config = config
        self.accelerator = accelerator
        self._fastest: tuple[float, float, str] = (0.0, 0.0, "")  # share of peak, FLOPs per second, precision
        self._flops: dict[tuple[str, str], float] = {}
        for op in graph.ops:
            if op.op_type not in config.op_types or self._prefix(op.module):
                key = (self._prefix(op.module), op.phase)
                self._flops[key] = self._flops.get(key, 0.0) + op.flops.at(config.reference_batch)
        self._num_parameters = max(1, graph.num_parameters)
        self._free: set[str] = set()
        for prefix in config.modules:
            if not any(key[0] == prefix for key in self._flops):
                raise ConfigError(f"cost.modules.{prefix} covers no op of graph {graph.name!r}")

    def duration_s(self, call: KernelCall) -> float:
        """Return the kernel's share of the published times [s]; there is no minimum."""
        duration_s = self._share_s(call)
        if call.flops > 0 and duration_s > 0:
            rate = call.flops / duration_s
            peak = self.accelerator.peak(get_precision(call.precision).matrix_peak)
            self._fastest = max(self._fastest, (rate / peak, rate, call.precision))
        return duration_s

    def _share_s(self, call: KernelCall) -> float:
        op = call.ops[0]
        if op.phase == "optimizer":
            if not self.config.optimizer_s:
                self._free.add(op.phase)
            return self.config.optimizer_s * op.arguments["num_parameters"] / self._num_parameters
        prefix = self._prefix(op.module)
        if not prefix and op.op_type in self.config.op_types:
            share = call.batch / self.config.reference_batch / call.degree
            return self.config.op_types[op.op_type] * share
        return self._spread_s(op, prefix, call.flops)

    def notes(self) -> list[str]:
        """Return which phases had ops that no published time covers, and whether the times can be of this precision."""
        found = [
            f"constant costs: no published time for ops of the {_PHASES[phase]}, which take no time (cost.{phase}_s)"
            for phase in sorted(self._free)
        ]
        share, rate, precision = self._fastest
        if share > 1:
            found.append(
                f"constant costs: the published times mean {format_count(rate)}FLOP/s, {share:.0%} of the peak"
                f" of {self.accelerator.name} in {precision}: they were measured in another precision, so MFU"
                " and HFU are not utilisations"
            )
        return found

    def _spread_s(self, op: Op, prefix: str, flops: float) -> float:
        is_forward = op.phase == "forward"
        if prefix:
            total_s = self.config.modules[prefix][0 if is_forward else 1]
        else:
            total_s = self.config.forward_s if is_forward else self.config.backward_s
        if total_s == 0 and flops > 0:
            self._free.add(op.phase)
        covered = self._flops.get((prefix, op.phase), 0.0)
        return total_s * flops / covered if covered > 0 else 0.0

    def _prefix(self, module: str) -> str:
        """Return the longest configured prefix of a module path, or ""."""
        found = [p for p in self.config.modules if module == p or module.startswith(p + ".")]
        return max(found, key=len, default="")


def _check_mapping(key: str, given: Any, example: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"cost.{key} is {given!r}; it must be a mapping, for example {example}")


def _pair(prefix: str, pair: Any) -> tuple[float, float]:
    """Return (forward, backward) [s] of a module prefix."""
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ConfigError(f"cost.modules.{prefix} is {pair!r}; it must be [forward_s, backward_s]")
    return cost_time(pair[0], f"modules.{prefix}[0]"), cost_time(pair[1], f"modules.{prefix}[1]")
