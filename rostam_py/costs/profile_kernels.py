"""A profile's ops as a kernel table: the format that ``make calibrate`` ships, measured on one's own device.

Example:
    table = profile(graph, batches=(1, 2, 8))
    kernel_table(table, graph).save("mine.kernels.json")      # cost=calibrated cost.table=mine.kernels.json
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rostam_py.costs.accelerators import get_accelerator
from rostam_py.costs.kernel_fit import fitted, judged
from rostam_py.costs.kernel_kinds import kernel_kind
from rostam_py.costs.kernel_shapes import KernelQuestion, question_of, stage_of
from rostam_py.costs.kernel_surface import Fit
from rostam_py.costs.kernel_table import KernelSeries, KernelTable, MeasuredDevice
from rostam_py.costs.model import KernelCall
from rostam_py.costs.precision import get_precision, op_precision, tensor_bytes_factor
from rostam_py.costs.table import CostTable, op_key
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph

_Rows = dict[tuple[float, ...], list[float]]


def kernel_table(table: CostTable, graph: OperatorGraph) -> KernelTable:
    """Return the kernels of measured kinds among a profile's ops, by shape, fitted and judged as shipped tables are.

    Model: an op that ran alone is a kernel; kinds that a profile has no op of fall back as an accelerator's without
        rows do. Ops that would only stand in for a kind (``KernelQuestion.is_substitute``) are left out, and so
        are both gradients of a convolution, which are one op.
    Args: table: measured from ``graph``.
    Raises: ConfigError if the device is no known accelerator, or nothing measured is of a known kind.
    """
    about = table.provenance
    if not about["accelerator"]:
        raise ConfigError(
            f"{about['device']} is not a known accelerator (rostam list accelerators), so its peaks are not known"
        )
    accelerator = get_accelerator(about["accelerator"])
    found: dict[tuple[str, str], _Rows] = {}
    for asked, seconds in _measured(table, graph):
        rows = found.setdefault((asked.kind, asked.precision), {})
        rows.setdefault(asked.sizes, []).append(seconds / asked.count)
    if not found:
        raise ConfigError(f"the profile of {graph.name} has no op of a kind that kernel tables know")
    source = f"rostam profile of {graph.name}, torch {about.get('torch')}"
    element_bytes = get_precision(about["precision"]).product_bytes
    series = []
    for (kind, precision), rows in sorted(found.items()):
        peak = accelerator.peak(precision) if precision else 0.0
        device = MeasuredDevice(
            about["device"], peak, accelerator.memory_bandwidth_bytes_per_s, accelerator.multiprocessors
        )
        series.append(judged(fitted(_bare(kind, precision, source, device, element_bytes, rows))))
    made = {"made_by": "rostam profile", "sources": [{"source": source, "rows": len(one.seconds)} for one in series]}
    return KernelTable(accelerator.name, made | {"profile": dict(about)}, tuple(series))


def _measured(table: CostTable, graph: OperatorGraph) -> Iterator[tuple[KernelQuestion, float]]:
    """Yield what each measured op would ask a kernel table, and its time [s]."""
    precision = table.provenance["precision"]
    seen = set()
    for op in graph.ops:
        key = "" if op.is_metadata else op_key(op, graph, precision)
        entry = table.entries.get(key)
        if entry is None or key in seen:
            continue
        seen.add(key)
        dtypes = [graph.tensors[t].dtype for t in op.inputs]
        factor = tensor_bytes_factor(precision, dtypes[0]) if dtypes else 1.0
        used = op_precision(precision, dtypes, op.role)
        for batch, seconds in entry.seconds.items():
            call = KernelCall(
                ops=(op,), flops=op.flops.at(batch), bytes_read=op.bytes_read.at(batch) * factor,
                bytes_written=op.bytes_written.at(batch) * factor, batch=batch, precision=used,
            )  # fmt: skip
            asked = question_of(call, op, graph)
            asked = None if asked is None else _alone(asked)
            if asked is not None and not asked.is_substitute and seconds > 0:
                yield asked, seconds


def _alone(asked: KernelQuestion) -> KernelQuestion:
    """Return what a profile's op measures: a stage of a convolution; activations are element-wise kernels there."""
    one = asked.convolution
    if one is not None and len(one.stages) == 1:
        return stage_of(asked, one, one.stages[0])
    return replace(asked, kind=kernel_kind(asked.kind).alike) if asked.kind == "activation" else asked


def _bare(
    kind: str, precision: str, source: str, device: MeasuredDevice, element_bytes: float, rows: _Rows
) -> KernelSeries:
    shapes = np.asarray(list(rows), dtype=float)
    columns = {name: shapes[:, at] for at, name in enumerate(kernel_kind(kind).fields)}
    # The four digits that tables hold, so that what is fitted is what is read again.
    seconds = np.asarray([float(f"{np.median(times):.4g}") for times in rows.values()])
    return KernelSeries(
        kind=kind,
        precision=precision,
        source=source,
        device=device,
        element_bytes=element_bytes,
        columns=columns,
        seconds=seconds,
        fit=Fit("", (), 0.0, 0.0),
    )
