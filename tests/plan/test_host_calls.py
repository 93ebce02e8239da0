"""What modules' code takes of a host: sums over a layer against what was measured of whole layers."""

import csv
import statistics

import pytest

from calibration.published import MEASURED
from rostam_py.plan.host import HOSTS
from rostam_py.plan.host_calls import GRAPHED, GRAPHED_LOOP, MEGATRON_CORE, MEGATRON_CORE_NODES, X86_OVER_MEASURED
from rostam_py.units import parse_time

EAGER_BACKWARD_US = 80  # of the activation function, which runs as one kernel where it counts


def rows():
    with (MEASURED / "host_megatron_core.csv").open() as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            yield row["run"], row["layer"], row["recipe"], int(row["experts"]), row


def layer_us(layer, is_narrow, experts, behind):
    """Return a layer's sum by hand: two products of attention, two more or a router's and two grouped ones."""
    narrow = "narrow_" if is_narrow else ""
    found = MEGATRON_CORE["attention" + behind].base_s * 1e6
    product, grouped = (MEGATRON_CORE[f"{narrow}{kind}{behind}"] for kind in ("product", "experts"))
    if layer == "dense":
        return found + 4 * product.base_s * 1e6
    found += 2 * product.base_s * 1e6 + MEGATRON_CORE["product" + behind].base_s * 1e6
    found += 3 * MEGATRON_CORE["norm" + behind].base_s * 1e6
    found += 2 * (grouped.base_s + experts * grouped.part_s) * 1e6
    return found + (0 if behind else MEGATRON_CORE["routing"].base_s * 1e6)


@pytest.mark.parametrize("key", ["forward_us", "backward_us"])
def test_sums_over_a_layer_are_what_whole_layers_took(key):
    behind = "" if key == "forward_us" else "_backward"
    found = {}
    for _, layer, recipe, experts, row in rows():
        own = layer_us(layer, recipe != "bf16", experts, behind) + (EAGER_BACKWARD_US if behind and experts else 0)
        found.setdefault((layer, recipe, experts), []).append(float(row[key]) / own)
    assert len(found) == 11
    means = [sum(ratios) / len(ratios) for ratios in found.values()]
    assert means == pytest.approx([1.0] * 11, abs=0.15)
    assert sum(means) / 11 == pytest.approx(1.0, abs=0.05)


def test_what_nodes_take_more_is_what_layers_took_more_in_the_same_runs():
    """Of a layer and both ways, as a share of the plain schedule of the same process, whose machine others used too."""
    with (MEASURED / "host_megatron_core_nodes.csv").open() as lines:
        found = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert len(found) == 24
    charged = {"forward": MEGATRON_CORE_NODES["routing"], "backward": MEGATRON_CORE_NODES["attention_backward"]}

    def more_us(row, ways):
        plain, nodes = (sum(float(row[f"{name}_{way}_us"]) for way in ways) for name in ("plain", "nodes"))
        whole = ("experts", row["recipe"] != "bf16", int(row["experts"]))
        return (nodes / plain - 1) * sum(layer_us(*whole, "" if way == "forward" else "_backward") for way in ways)

    median = statistics.median(more_us(row, charged) for row in found)
    assert sum(call.base_s for call in charged.values()) * 1e6 == pytest.approx(median, rel=0.15)
    for way, call in charged.items():
        assert call.base_s * 1e6 == pytest.approx(statistics.median(more_us(row, [way]) for row in found), rel=0.15)


def test_parts_that_may_be_graphs_replay_where_their_modules_are_called():
    assert all(one.replayed_at <= set(MEGATRON_CORE) for one in GRAPHED.values())


def test_a_loop_around_a_graph_takes_what_its_parts_were_measured_to():
    with (MEASURED / "host_loop.csv").open() as lines:
        found = [(row["part"], float(row["us"])) for row in csv.DictReader(x for x in lines if not x.startswith("#"))]
    us = {part: sum(one for name, one in found if name == part) / 2 for part, _ in found}
    step, alone, update, turn = us.values()
    assert GRAPHED_LOOP.step_s * 1e6 == pytest.approx(step - alone, abs=1)
    assert GRAPHED_LOOP.turn_s * 1e6 == pytest.approx(update + turn, abs=1)
    # A kernel of the step: its code, and cuLaunchKernel.
    launch_s = parse_time(HOSTS["graphed_model"].launch, "launch")
    assert launch_s * 1e6 == pytest.approx(X86_OVER_MEASURED * alone / 48 + 3.2, abs=0.1)


def test_the_measured_loop_runs():
    loop_code = pytest.importorskip("calibration.loop_code")
    loop = loop_code.Loop(loop_code.OneBatch())
    scale = loop.scaler.get_scale()
    before = [p.detach().clone() for p in loop.parameters]
    for parameter in loop.parameters:
        parameter.grad.fill_(scale)
    for _ in range(2):
        assert len(loop.run(0.0)) == 3
    # The scaler makes 1 of it, and 1 / scale the second time: momentum 0.9 at a rate of 0.01 moves 0.01 (1 + 0.9).
    moved = [float((b - p.detach()).sum()) for b, p in zip(before, loop.parameters, strict=True)]
    assert moved == pytest.approx([0.019] * len(before), rel=1e-3)
