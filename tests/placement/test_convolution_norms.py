"""Norms inside convolutions: which of ResNet-50's, and what the kernels of two of its units move, by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import rostam_py as rostam
from rostam_py.costs import make_cost_model
from rostam_py.errors import ConfigError
from rostam_py.placement.convolution_norms import convolution_norms
from rostam_py.plan.strategy_names import key_of

BATCH, SIDE, WIDTH, OUT = 4, 28, 64, 256
NARROW, WIDE = (2.0 * BATCH * SIDE**2 * channels for channels in (WIDTH, OUT))  # bytes of activations in 16 bits
BITS = WIDE / 16  # a bit of each 16


class Unit(nn.Module):
    """A residual unit of ResNet-50; a shortcut with a norm where channels differ."""

    def __init__(self, channels):
        super().__init__()
        self.convs = nn.ModuleList((
            nn.Conv2d(channels, WIDTH, 1, bias=False), nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False),
            nn.Conv2d(WIDTH, OUT, 1, bias=False),
        ))  # fmt: skip
        self.norms = nn.ModuleList((nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(OUT)))
        self.shortcut = None
        if channels != OUT:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, OUT, 1, bias=False), nn.BatchNorm2d(OUT))

    def forward(self, x):
        y = x
        for conv, norm in zip(self.convs[:2], self.norms[:2], strict=True):
            y = functional.relu(norm(conv(y)))
        y = self.norms[2](self.convs[2](y))
        return functional.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Units(nn.Module):
    """A convolution, two units, and a pool in front of classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(32, WIDTH, 3, padding=1)
        self.first, self.second = Unit(WIDTH), Unit(OUT)
        self.classes = nn.Linear(OUT, 10)

    def forward(self, x):
        return self.classes(self.second(self.first(self.stem(x))).mean((2, 3)))


@pytest.fixture(scope="module")
def units():
    return rostam.trace(Units(), torch.zeros(BATCH, 32, SIDE, SIDE), name="units")


def plan_of(graph, way, **options):
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="100 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    strategy = rostam.Strategy.of(dp=1, precision="fp16_mixed", convolution_norms=way, **options)
    return rostam.place(graph, machine, global_batch=BATCH, strategy=strategy, cost="roofline", software="ideal")


def calls(graph, way, phase):
    """Return the calls of kernels of forward or backward, by op type."""
    tasks = plan_of(graph, way).stages[0].templates["forward" if phase == "forward" else "backward_last"]
    found = {}
    for kernel in (k for task in tasks for k in task.kernels if k.call is not None):
        found.setdefault(kernel.op_type.removesuffix(".default"), []).append(kernel.call)
    return found


def moved(found):
    return sorted(((round(one.bytes_read), round(one.bytes_written)) for one in found), reverse=True)


def test_norms_of_resnet50(cached_traces):
    found = convolution_norms(rostam.trace("resnet50"))
    # 53 norms: the first is behind 7 x 7 and in front of a pool, four are of shortcuts, 16 end units.
    assert sum(len(one.norms) for one in found) == 52
    assert [sum(one.addition is None for one in found), sum(len(one.norms) == 2 for one in found)] == [32, 4]
    assert [one.gradient is None for one in found] == 47 * [False] + [True]  # behind the last there is a pool
    assert all(len(one.sums) == (0 if one.addition is None else 1) for one in found[:-1])


@pytest.mark.parametrize("way", ["forward", "both"])
def test_forward_by_hand(units, way):
    found = calls(units, way, "forward")
    assert not [name for name in found if "batch_norm" in name or "relu" in name]
    # A scale and a bias for each channel of seven norms; what ends two units reads two tensors, writes one and signs.
    made = [(24 * channels, 20 * channels) for channels in (*3 * [OUT], *4 * [WIDTH])]
    assert moved(found["rostam.map"]) == [*2 * [(2 * WIDE, WIDE + BITS)], *made]
    assert all(one.beside == 0 for one in found["aten.convolution"])


def test_forward_apart_by_hand(units):
    found = calls(units, "apart", "forward")
    names = [name for name in found if "batch_norm" in name]
    read, written = map(sum, zip(*(pair for name in names for pair in moved(found[name])), strict=True))
    # Kernels of norms: four of narrow tensors, two read and written wide ones (in the first unit two).
    assert read >= 4 * NARROW + 3 * WIDE
    assert written >= 4 * NARROW + 3 * WIDE


def test_backward_of_both_by_hand(units):
    found = calls(units, "both", "backward")
    # The first unit ends in two norms: the second's first convolution adds one summand of that gradient and reads what
    # both norms read. The second unit ends in front of a pool: its norm's backward is a kernel, with signs in bits.
    beside = sorted((round(one.beside) for one in found["aten.convolution_backward"] if one.beside), reverse=True)
    assert beside == [3 * WIDE, *4 * [NARROW]]
    assert moved(found["rostam.map"]) == [(3 * WIDE, 2 * WIDE), *4 * [(2 * NARROW, NARROW)]]
    assert moved(found["aten.native_batch_norm_backward"]) == [(2 * WIDE + BITS, 2 * WIDE)]
    assert "aten.threshold_backward" not in found


def test_backward_of_forward_by_hand(units):
    found = calls(units, "forward", "backward")
    beside = [round(one.beside) for one in found["aten.convolution_backward"] if one.beside]
    assert beside == [WIDE]  # the sum of two gradients, by the second unit's first convolution
    norms = moved(found["aten.native_batch_norm_backward"])
    ends, between = 2 * [(2 * WIDE + BITS, 2 * WIDE)], 4 * [(2 * NARROW, NARROW)]
    (shortcut,) = [one for one in norms if one not in (*ends, *between)]
    assert sum(shortcut) == pytest.approx(3 * WIDE, rel=0.01)  # of the second norm, as apart
    assert norms == sorted([*ends, *between, shortcut], reverse=True)
    assert "rostam.map" not in found
    assert "aten.threshold_backward" not in found


def test_what_is_kept(cached_traces):
    graph = rostam.trace("resnet50")
    memory = {way: plan_of(graph, way).stages[0].memory.activations for way in ("apart", "forward", "both")}
    # Not kept: what norms between convolutions make for the next one, elements of an image by sides of 56 to 7.
    elements = 6 * 64 * 56**2 + 128 * 56**2 + 7 * 128 * 28**2 + 256 * 28**2 + 11 * 256 * 14**2
    elements += 512 * 14**2 + 5 * 512 * 7**2
    assert memory["apart"] - memory["both"] == 2 * BATCH * elements == memory["apart"] - memory["forward"]


def test_what_convolutions_read_for_norms_takes_as_long_as_a_stream(units):
    plain, joined = (
        next(one for one in found["aten.convolution_backward"] if one.ops[0].module == "second.convs.0")
        for found in (calls(units, way, "backward") for way in ("apart", "both"))
    )
    assert joined.bytes_read - plain.bytes_read == joined.beside == 3 * WIDE
    cost = make_cost_model("calibrated", "h100_80gb", graph=units)
    least = 3 * WIDE / 3.352e12  # at the data sheet's bandwidth
    assert least <= cost.duration_s(joined) - cost.duration_s(plain) < 3 * least


def test_settings_that_do_not_fit():
    with pytest.raises(ConfigError, match=r"convolution_norms is 'inside'.*apart, forward, both"):
        rostam.Strategy.of(convolution_norms="inside")
    for key, value in (("tp", 2), ("pp", 2), ("fusion", "none"), ("recompute", "full")):
        with pytest.raises(ConfigError, match=rf"convolution_norms is 'both', which needs {key_of(key)} to be"):
            rostam.Strategy.of(convolution_norms="both", **{key: value})
    for precision in ("fp32", "tf32"):
        with pytest.raises(ConfigError, match=rf"whose kernels have 16-bit inputs; .*; it is '{precision}'"):
            rostam.Strategy.of(convolution_norms="both", precision=precision)
    with pytest.raises(ConfigError, match="has no norm of channels between convolutions"):
        plan_of(rostam.trace(nn.Linear(32, 32), torch.zeros(BATCH, 32), name="line"), "both")
