"""Kernel rules: one file and one line each, asked by name; a new one changes nothing else."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.costs import make_cost_model
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.costs.families import MAP
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.sharding import propagate
from rostam_py.software.kernel_rule import KERNEL_RULES, KernelRule
from rostam_py.software.rules import Rules, rules_of

ROOT = Path(__file__).resolve().parents[2]
BATCH = 8


class CheckedProducts(KernelRule):
    """A program that reads what every product makes once more, to look for what is not a number."""

    def kernels(self, ops, traffic):
        """Return the kernel that looks."""
        products = [op for op in ops if op.role == "product"]
        return [self.local.apart(op, "checked", MAP, self.local.tensor_bytes(op.outputs[0]), 0.0) for op in products]


class HalvedTime(KernelRule):
    """A program whose products take half as long."""

    def time(self, ops, time, written):
        """Return half of it."""
        return time.stretched(0.5) if ops[0].role == "product" else time


class NothingMoved(KernelRule):
    """A program whose kernels move nothing."""

    def moved(self, ops, read, written):
        """Return nothing."""
        return 0.0, 0.0


@pytest.fixture(scope="module")
def graph():
    layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
    return rostam.trace(layers, (torch.zeros(BATCH, 64),), name="perceptron")


@pytest.fixture
def added(monkeypatch):
    """Return a function that registers a rule of this file for one test, and returns its name."""
    monkeypatch.setattr(KERNEL_RULES, "_targets", dict(KERNEL_RULES._targets))

    def add(rule):
        name = f"test_{rule.__name__}"
        KERNEL_RULES.add(name, f"{__name__}:{rule.__name__}")
        return name

    return add


def kernels(graph, *names):
    cost = make_cost_model("roofline", get_accelerator("v100_32gb"), graph=graph, min_kernel_time=0.0)
    rules = Rules(precision="fp32", gradient_bytes=4, kernels=names)
    return KernelBuilder(graph, propagate(graph, 1, BATCH), cost, rules, BATCH).fused((), {})


def products(graph, found):
    return [one for one in found if graph.ops[one.ops[0]].role == "product"]


def test_a_new_rule_is_a_class_and_a_registered_name(graph, added):
    plain = kernels(graph)
    checked = kernels(graph, added(CheckedProducts))
    assert [one.time for one in checked] == [one.time for one in plain]
    assert not any(one.casts for one in plain)
    found = products(graph, checked)
    assert len(found) == 5  # two forward; two of weights and one of an input's gradient backward
    assert [len(one.casts) for one in found] == [1] * 5
    read = sorted(one.casts[0].call.bytes_read for one in found)
    assert read == [4 * n for n in (BATCH * 32, BATCH * 256, BATCH * 256, 256 * 32, 64 * 256)]
    assert {graph.ops[one.ops[0]].name for one in checked if one.casts} == {
        one.casts[0].name.removesuffix(" (checked)") for one in found
    }


def test_rules_change_what_kernels_move_before_they_change_their_times(graph, added):
    names = added(NothingMoved), added(HalvedTime)
    plain, changed = (products(graph, kernels(graph, *chosen)) for chosen in ((), names))
    assert all(one.time.call.bytes_read > 0 for one in plain)
    for one in changed:
        assert one.time.call.bytes_read == one.time.call.bytes_written == 0
        assert one.time.stretch == 0.5


def test_rules_act_in_the_order_of_their_names(graph, added):
    halved = added(HalvedTime)
    once, twice = (products(graph, kernels(graph, *names)) for names in ((halved,), (halved, halved)))
    assert [one.time.duration_s for one in twice] == pytest.approx([one.time.duration_s / 2 for one in once])


def test_an_unknown_rule_is_refused_by_name(graph):
    with pytest.raises(rostam.errors.ConfigError, match=r"unknown kernel rule 'clamp'.*did you mean 'clamps'"):
        kernels(graph, "clamp")


def test_every_rule_lies_in_the_file_of_its_name_and_does_something():
    for name in KERNEL_RULES:
        rule = KERNEL_RULES.get(name)
        assert rule.__module__ == f"rostam_py.software.kernel_rules.{name}"
        assert {"kernels", "moved", "time"} & set(vars(rule)), name
    files = {path.stem for path in (ROOT / "rostam_py/software/kernel_rules").glob("*.py")} - {"__init__"}
    assert files == set(KERNEL_RULES)


def test_placement_names_no_rule():
    for path in (ROOT / "rostam_py/placement").rglob("*.py"):
        said = {one.value for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Constant)}
        assert said.isdisjoint(KERNEL_RULES), path


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"fusion": "producer"}, ("sorted_ids",)),
        ({"fusion": "pointwise"}, ("wide_conversions", "sorted_ids")),
        (
            {"fusion": "none"},
            ("loss_conversions", "loss_passes", "wide_conversions", "sorted_ids", "convolution_biases"),
        ),
        (
            {"fusion": "none", "autocast": True, "eager_norm": "fused"},
            (
                "loss_conversions", "loss_passes", "wide_conversions", "norm_sums", "sorted_ids", "convolution_biases",
                "autocast",
            ),
        ),
        (
            {"fusion": "modules"},
            (
                "wide_conversions", "sorted_ids", "gradient_sums", "permuted_rows", "clamps", "row_copies",
                "attention_copies", "arranged_scales", "expert_biases",
            ),
        ),
        (
            {"fusion": "pointwise", "fused_part": "blocks_and_loss", "tp": 2, "tp_style": "dtensor"},
            ("split_loss", "wide_conversions", "sorted_ids"),
        ),
    ],
)  # fmt: skip
def test_keys_of_a_strategy_choose_rules(keys, names):
    assert rules_of(rostam.Strategy.of(**keys), "bf16_mixed", 4).kernels == names
