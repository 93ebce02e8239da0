"""What each axis communicates: counts and bytes by hand, sums over all, hidden time of overlapped gradients."""

import functools
import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.report.page.page import render
from rostam_py.report.report import run_page
from rostam_py.simulation.detail import run_detail
from rostam_py.simulation.messages import message_rows
from rostam_py.units import format_size


class Block(nn.Module):
    """Two products with a residual."""

    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        """Add what the products make."""
        return x + self.down(torch.relu(self.up(x)))


class Blocks(nn.Module):
    """Equal blocks."""

    def __init__(self, count=4, width=256):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(count))

    def forward(self, x):
        """Chain them."""
        for block in self.blocks:
            x = block(x)
        return x


@functools.cache
def traced():
    """Return the graph of the blocks."""
    return rostam.trace(Blocks(), torch.empty(1, 64, 256), name="blocks")


def simulated(timeline=True, batch=16, **strategy):
    graph = traced()
    chosen = rostam.Strategy.of(**strategy)
    fabric = rostam.fabric("electrical_flat", num_accelerators=chosen.num_ranks)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=batch, strategy=chosen, software="ideal")
    return rostam.simulate(plan, timeline=timeline)


STRATEGIES = [
    {"dp": 2, "tp": 2, "pp": 2, "micro_batch": 1},
    {"dp": 2, "tp": 2, "pp": 1, "sequence_parallel": True},
    {"dp": 2, "pp": 2, "virtual_stages": 2, "micro_batch": 1},
    {"dp": 4, "pp": 2, "shard": 2, "micro_batch": 1},
    {"dp": 4, "shard": 3, "micro_batch": 1},
    {"dp": 2, "tp": 2, "shard": 1},
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_bytes_of_the_axes_are_all_that_the_run_sends_and_the_plan_adds_up(strategy):
    result = simulated(**strategy)
    axes = result.messages_by_axis
    assert sum(one.num_bytes for one in axes) == sum(result.bytes_sent.values()) > 0
    assert sum(one.num_bytes for one in axes) == sum(result.bytes_received.values())
    assert sum(one.num_bytes for one in axes) == pytest.approx(result.plan.traffic.num_bytes.sum(), rel=1e-9)
    assert sum(one.bytes_per_rank for one in axes) * result.plan.num_devices == pytest.approx(
        sum(one.num_bytes for one in axes)
    )
    for one in axes:  # ranks x collectives as the core counted them
        ranks = sum(count for name, count in one.operations.items() if name != "message") * one.group_sizes[-1]
        assert ranks == (result.collective_times[one.axis][-1].count if one.axis in result.collective_times else 0)
        assert one.exposed_s == result.breakdown[one.axis]
        assert 0 <= one.hidden_s < result.breakdown["compute"] * (1 + 1e-9)


def test_counts_and_bytes_by_hand():
    """Two replicas x 2 stages x 2 tp ranks, 8 micro-batches of one sample: 64 rows of 256 numbers of 4 bytes.

    tp: each of 4 blocks all-reduces once in forward and, but the first, whose input needs no gradient, once in
    backward; and the loss, 4 bytes: 8 x 8 micro-batches x 2 replicas. pp: 8 x 2 replicas x 2 tp ranks messages each
    way.
    """
    result = simulated(dp=2, tp=2, pp=2, micro_batch=1, precision="fp32")
    axes = {one.axis: one for one in result.messages_by_axis}
    assert set(axes) == {"tp", "pp", "dp"}
    size = 64 * 256 * 4
    assert axes["tp"].operations == {"all_reduce": 8 * 8 * 2}
    assert axes["tp"].num_bytes == 8 * 2 * 2 * (7 * size + 4)  # of a ring of two each rank sends 2 (2 - 1) / 2 S
    assert axes["pp"].operations == {"message": 2 * 8 * 2 * 2}
    assert axes["pp"].num_bytes == 2 * 8 * 2 * 2 * size
    assert axes["pp"].bytes_per_rank == axes["pp"].num_bytes / 8
    assert axes["tp"].group_sizes == axes["pp"].group_sizes == axes["dp"].group_sizes == [2]


def test_hidden_is_the_overlap_with_compute_sampled_over_the_iteration():
    result = simulated(dp=4, batch=64, micro_batch=4, bucket_size="1 MB")
    (one,) = result.messages_by_axis
    begin, end = result._ends_ps[-2:]
    timeline, tasks = result._timeline, result._names.templates
    kinds = np.array([tasks[t].tasks[k].kind for t, k in zip(timeline["template"], timeline["task"], strict=True)])
    points = begin + (end - begin) * (np.arange(20_000) + 0.5) / 20_000

    def is_under_way(kind):
        starts, ends = timeline["start_ps"][kinds == kind], timeline["end_ps"][kinds == kind]
        return np.any((starts[:, None] <= points) & (points < ends[:, None]), axis=0)

    both = (is_under_way("compute") & is_under_way("collective")).mean() * result.iteration_time_s
    assert one.hidden_s > 0
    assert one.hidden_s == pytest.approx(both, abs=2e-3 * result.iteration_time_s)


def test_hidden_times_are_unknown_without_recorded_ones():
    result = simulated(timeline=False, dp=2, tp=2)
    assert [one.hidden_s for one in result.messages_by_axis] == [None, None]
    recorded = simulated(timeline=True, dp=2, tp=2)
    words = zip(result.messages_by_axis, recorded.messages_by_axis, strict=True)
    assert all((one.operations, one.num_bytes) == (other.operations, other.num_bytes) for one, other in words)


def test_rows_end_with_the_sum_and_notebooks_show_them():
    result = simulated(dp=2, tp=2, pp=2)
    rows = message_rows([asdict(one) for one in result.messages_by_axis])
    assert [row[0] for row in rows] == ["tensor-parallel", "data-parallel", "pipeline", "all axes"]
    assert "communication by axis" in result._repr_html_()
    assert "communication by axis" not in simulated(dp=2)._repr_html_()


def test_the_report_has_a_table_where_several_axes_communicate():
    result = simulated(dp=2, tp=2, pp=2)
    page = run_page(json.loads(json.dumps(run_detail(result))))
    (table,) = [t for t in page.tables if t.rows[-1][0] == "all axes"]
    assert [row[0] for row in table.rows] == ["tensor-parallel", "data-parallel", "pipeline", "all axes"]
    assert dict(zip(table.columns, table.rows[-1], strict=True))["sent"] == format_size(sum(result.bytes_sent.values()))
    text = render(page)
    assert '<section id="messages">' in text
    assert '<a href="#messages">' in text
    assert 'id="messages"' not in render(run_page(run_detail(simulated(dp=2))))
