"""Products of 8 and 4 bits move what their measured rows do: a plan's product takes its row's time."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.costs.accelerators import ACCELERATORS
from rostam_py.costs.kernel_kinds import KERNEL_KINDS
from rostam_py.costs.kernel_sources import shipped
from rostam_py.costs.kernel_surface import Fit
from rostam_py.costs.kernel_table import KernelSeries, KernelTable, MeasuredDevice
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

FIELDS = KERNEL_KINDS["product"].fields


class OneBlock(nn.Module):
    """A block of one product, features -> outputs."""

    class Block(nn.Module):
        """x W."""

        def __init__(self, features, outputs):
            super().__init__()
            self.linear = nn.Linear(features, outputs, bias=False)

        def forward(self, x):
            """Multiply."""
            return self.linear(x)

    def __init__(self, features, outputs):
        super().__init__()
        self.blocks = nn.ModuleList([self.Block(features, outputs)])

    def forward(self, x):
        """Apply the block."""
        return self.blocks[0](x)


@functools.cache
def graph_of(features, outputs):
    with torch.device("meta"):
        model, x = OneBlock(features, outputs), torch.empty(2, features)
    return trace(model, x, loss_fn=lambda y: (y * y).mean(), name="one")


def forward_product(rows, outputs, features, precision, accelerator, table):
    """The product of a plan on one device that the table given times."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, accelerator_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator=accelerator, min_kernel_time=0.0)
    strategy = Strategy(precision=precision, micro_batch=rows, check_memory=False)
    plan = rostam.place(
        graph_of(features, outputs), machine, global_batch=rows, strategy=strategy, cost="calibrated",
        cost_config={"table": str(table), "min_kernel_time": "0 s"}, software="ideal",
    )  # fmt: skip
    kernels = [k for task in plan.stages[0].templates["forward"] for k in task.kernels]
    return next(k for k in kernels if "mm" in k.op_type)


def measured(accelerator, peak):
    """Series of products on an accelerator that are not of SimuMax, whose rows scatter."""
    found = [one for one in shipped(accelerator).series if (one.kind, one.precision) == ("product", peak)]
    return [one for one in found if "SimuMax" not in one.source]


CASES = [("h100_80gb", "bf16"), ("h100_80gb", "fp8"), ("b200_180gb", "bf16"), ("b200_180gb", "fp8"),
         ("b200_180gb", "nvfp4")]  # fmt: skip


@pytest.mark.parametrize(("accelerator", "peak"), CASES)
def test_a_plans_product_takes_its_measured_rows_time(accelerator, peak, tmp_path):
    errors = []
    for number, series in enumerate(measured(accelerator, peak)):
        path = tmp_path / f"{number}.json"
        KernelTable(accelerator, {}, (series,)).save(path)
        for rows in (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768):
            places = np.flatnonzero((series.columns["m"] == rows) & (series.columns["batch"] == 1))
            for at in places[:: max(len(places) // 2, 1)]:
                outputs, features = (int(series.columns[name][at]) for name in ("n", "k"))
                kernel = forward_product(rows, outputs, features, f"{peak}_mixed", accelerator, path)
                errors.append(kernel.duration_s / series.seconds[at] - 1)
    assert len(errors) >= 12
    # What the surface smooths away: 0.7 to 3% of a row, and 15% of the odd one.
    assert np.mean(np.abs(errors)) < 0.04
    assert np.max(np.abs(errors)) < 0.2


# mxfp8 takes the rows of fp8, which have no scales of blocks: 1/32 more to read.
@pytest.mark.parametrize(
    ("precision", "peak", "element", "more"),
    [("bf16_mixed", "bf16", 2, 1.0), ("fp8_mixed", "fp8", 1, 1.0), ("mxfp8_mixed", "fp8", 1, 33 / 32),
     ("nvfp4_mixed", "nvfp4", 9 / 16, 1.0)],
)  # fmt: skip
@pytest.mark.parametrize("rows", [1, 16, 128])
def test_products_of_few_rows_are_bound_by_what_their_weights_take(precision, peak, element, more, rows, tmp_path):
    # At 0.8 of the bandwidth, that of a weight of 8,192 x 4,096 elements almost alone.
    outputs, features, bandwidth = 8192, 4096, 8e12
    shapes = [(1, m, outputs, features, 0, 2) for m in (1, 16, 128)]
    columns = {name: np.array([shape[at] for shape in shapes], float) for at, name in enumerate(FIELDS)}
    traffic = KERNEL_KINDS["product"].traffic(columns, element)
    fit = Fit("shape", (8.0,) * 8, 1e-9, 0.0)
    device = MeasuredDevice("b200", 1e18, bandwidth, 148)
    series = KernelSeries(
        kind="product",
        precision=peak,
        source="own",
        device=device,
        element_bytes=element,
        columns=columns,
        seconds=traffic / (0.8 * bandwidth),
        fit=fit,
    )
    path = tmp_path / "own.json"
    KernelTable("b200_180gb", {}, (series,)).save(path)
    kernel = forward_product(rows, outputs, features, precision, "b200_180gb", path)
    inputs = (rows + outputs) * features * element * more
    assert kernel.call.bytes_read == inputs
    assert kernel.call.bytes_written == 2 * rows * outputs
    own = ACCELERATORS["b200_180gb"].memory_bandwidth_bytes_per_s
    assert kernel.duration_s == pytest.approx((inputs + 2 * rows * outputs) / (0.8 * own), rel=1e-3)
