"""Profiled: durations measured op by op (``profile``), interpolated over the batch.

Model: a kernel's time is the sum over its ops, unfused, as eager execution runs them. Fallbacks, all
listed in ``notes``: a sample split uses the smaller batch's time; any other split divides the unsplit
time by the degree; an op that the table lacks takes its roofline time times the table's median
ratio of measured to roofline time for its family.
"""

import statistics
from collections import Counter
from dataclasses import dataclass

from rostam_py.costs.accelerators import Accelerator
from rostam_py.costs.families import op_family
from rostam_py.costs.limits import KernelLimits
from rostam_py.costs.model import KernelCall
from rostam_py.costs.roofline import RooflineCost
from rostam_py.costs.table import CostTable, Entry, op_key
from rostam_py.errors import ConfigError
from rostam_py.graph import Affine, Op, OperatorGraph

_MEASURED = "by the profiled table"


class ProfiledCost:
    """Look kernels up in a table of measured ops.

    Source: own measurements, provenance in the table; tests/costs/test_held_out_step.py.
    """

    @dataclass(kw_only=True, slots=True)
    class Config:
        """Settings of profiled costs.

        table: path of a table that ``rostam profile`` wrote.
        allow_other_accelerator: allow a table that was measured on an accelerator other than the machine's.
        """

        table: str = ""
        allow_other_accelerator: bool = False

        def build(self, *, accelerator: Accelerator, graph: OperatorGraph | None = None) -> "ProfiledCost":
            """Return the cost model for ``graph``, which must be the traced graph, views included."""
            if not self.table:
                raise ConfigError("cost=profiled needs cost.table=PATH; make a table with: rostam profile MODEL")
            return ProfiledCost(CostTable.load(self.table), accelerator, graph, self)

    def __init__(
        self, table: CostTable, accelerator: Accelerator, graph: OperatorGraph | None, config: Config | None = None
    ) -> None:
        if graph is None:
            raise ConfigError("cost model 'profiled' needs the traced graph, whose tensors tell the ops' shapes")
        measured_on = table.provenance.get("accelerator", "")
        allows_other = config is not None and config.allow_other_accelerator
        if measured_on != accelerator.name and not allows_other:
            raise ConfigError(
                f"the cost table was measured on {measured_on or 'an unnamed device'}, the machine has "
                f"{accelerator.name}; profile there, or set cost.allow_other_accelerator=true"
            )
        self.table = table
        self._precision = table.provenance.get("precision", "fp32")
        self._num_parameters = graph.num_parameters
        self._roofline = RooflineCost(RooflineCost.Config(min_kernel_time="0 s", ramp_time="0 s"), accelerator)
        # Ops keep their names through clean-up while ids and input tensors change.
        self._ops = {op.name: op for op in graph.ops}
        self._keys = {op.name: op_key(op, graph, self._precision) for op in graph.ops if not op.is_metadata}
        self._ratios: dict[str, float] = {}
        self._fallbacks: Counter[str] = Counter()

    def duration_s(self, call: KernelCall) -> float:
        """Return the kernel's duration [s]; metadata-only ops take none."""
        if call.precision != self._precision:
            self._fallbacks[f"precision {call.precision} timed as the table's {self._precision}"] += 1
        if call.ops[0].phase == "optimizer":
            return self._optimizer_s(call)
        return sum(self._op_s(op, call) for op in call.ops if not op.is_metadata)

    def limits(self, call: KernelCall) -> KernelLimits:
        """Return what bounds the kernel: a measured time is taken to follow its longer time by the data sheet."""
        ideal, seconds = self._roofline.limits(call), self.duration_s(call)
        longest_s = max(ideal.arithmetic_s, ideal.memory_s)
        if longest_s == 0:
            return KernelLimits(ideal.family, 0.0, 0.0, floor_s=seconds, basis=_MEASURED, is_verified=True)
        scale = seconds / longest_s
        return KernelLimits(
            ideal.family, ideal.arithmetic_s * scale, ideal.memory_s * scale, basis=_MEASURED, is_verified=True
        )

    def notes(self) -> list[str]:
        """Return the table's provenance and every kind of fallback used so far, with its count."""
        source = self.table.provenance
        head = f"profiled on {source.get('device')}, torch {source.get('torch')}, batches {source.get('batches')}"
        notes = [head] + [f"profiled: {text} ({count} times)" for text, count in sorted(self._fallbacks.items())]
        return notes + [f"profiled: not measured: {text}" for text in source.get("skipped", ())]

    def _op_s(self, op: Op, call: KernelCall) -> float:
        batch, divisor = call.batch, 1
        if call.degree > 1 and call.split_kind == "sample":
            batch = call.batch / call.degree
        elif call.degree > 1:
            divisor = call.degree
            self._fallbacks[f"{op.op_type} split by {call.split_kind}: unsplit time over the degree"] += 1
        entry = self._entry(op)
        if entry is None:
            return self._unmeasured_s(op, batch) / divisor
        seconds, is_outside = entry.at(batch)
        if is_outside:
            self._fallbacks[f"batch {batch:g} extrapolated from batches {sorted(entry.seconds)}"] += 1
        return seconds / divisor

    def _entry(self, op: Op) -> Entry | None:
        known = self._ops.get(op.name)
        if known is None or known.op_type != op.op_type:
            return None
        return self.table.entries.get(self._keys.get(op.name, ""))

    def _unmeasured_s(self, op: Op, batch: float) -> float:
        family = op_family(op.op_type, op.role)
        ratio = self._ratio(family)
        self._fallbacks[f"{op.op_type} is not in the table: {ratio:.3g} x its roofline time"] += 1
        num_bytes = op.bytes_read.at(batch) + op.bytes_written.at(batch)
        return ratio * self._roofline_s(family, op.flops.at(batch), num_bytes)

    def _roofline_s(self, family: str, flops: float, num_bytes: float) -> float:
        memory_s = num_bytes / self._roofline.memory_rate(family)
        return max(memory_s, flops / self._roofline.compute_rate(family, self._precision, flops)) if flops else memory_s

    def _ratio(self, family: str) -> float:
        """Return the median of measured over roofline time for a family, of all ops if it has none."""
        if family not in self._ratios:
            same = [e for e in self.table.entries.values() if op_family(e.op_type) == family and e.num_parameters == 0]
            entries = same or [e for e in self.table.entries.values() if e.num_parameters == 0]
            ratios = []
            for entry in entries:
                kind = op_family(entry.op_type)
                for batch, seconds in entry.seconds.items():
                    flops, num_bytes = (Affine(*parts).at(batch) for parts in (entry.flops, entry.bytes))
                    expected = self._roofline_s(kind, flops, num_bytes)
                    if expected > 0:
                        ratios.append(seconds / expected)
            self._ratios[family] = statistics.median(ratios) if ratios else 1.0
        return self._ratios[family]

    def _optimizer_s(self, call: KernelCall) -> float:
        op = call.ops[0]
        count = op.arguments["num_parameters"]
        measured = [e for e in self.table.entries.values() if e.op_type == op.op_type]
        if not measured:
            return self._unmeasured_s(op, call.batch)
        entry = min(measured, key=lambda e: abs(e.num_parameters - self._num_parameters))
        if count != entry.num_parameters:
            self._fallbacks[f"{op.op_type} over part of the parameters: scaled from {entry.num_parameters}"] += 1
        return entry.at(1)[0] * count / entry.num_parameters
