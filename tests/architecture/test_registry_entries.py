"""Every registered component builds, gives the same twice, conserves bytes, and says where it comes from.

A new entry is tested from the moment it is registered, a fabric by its Config's example.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.collectives.transport import refusal
from rostam_py.costs import ACCELERATORS, COST_MODELS, make_cost_model
from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS, example_fabric
from rostam_py.fleet import ALLOCATORS
from rostam_py.fleet.islands import ISLANDS
from rostam_py.fleet.queueing.names import ORDERS, PLACES, SOURCES
from rostam_py.models import MODELS, get_spec
from rostam_py.plan import PLACERS
from rostam_py.registry import Registry

CSRC = Path(__file__).resolve().parents[2] / "csrc"
SOURCE = re.compile(r"Source:|MODEL [A-J]\d")


def documents(component):
    """Return what a registered class and its module say."""
    own = component.__doc__ or ""
    assert own.strip(), f"{component.__qualname__} has no docstring"
    assert not own.startswith(f"{component.__name__}("), f"{component.__qualname__} has the generated docstring only"
    return own + (sys.modules[component.__module__].__doc__ or "")


@pytest.mark.parametrize(
    "registry",
    [FABRICS, COST_MODELS, PLACERS, ALLOCATORS, ORDERS, PLACES, SOURCES, ISLANDS],
    ids=lambda registry: registry.kind,
)
def test_every_entry_has_a_docstring_with_a_source(registry):
    assert registry.names()
    unsourced = [name for name in registry if not SOURCE.search(documents(registry.get(name)))]
    assert unsourced == []


@pytest.mark.parametrize("name", FABRICS.names())
def test_every_fabric_builds_the_same_twice(name):
    one, other = example_fabric(name), example_fabric(name)
    assert 4 <= one.num_accelerators <= 32
    assert one.num_links > 0
    assert one.links.tolist() == other.links.tolist()


@pytest.mark.parametrize("name", FABRICS.names())
def test_every_routing_conserves_bytes_on_every_fabric(name, told):
    fabric = example_fabric(name)
    count = min(fabric.num_accelerators, 8) if fabric.is_circuit_switched else fabric.num_accelerators
    for routing in _core.routing_names():  # circuits are planned anew each time, which takes seconds for 16
        keys = {"num_bytes": 1000 * count, "algorithm": "direct", "routing": routing, "ranks": list(range(count))}
        results = [rostam.run_collective(fabric, "all_to_all", **keys) for _ in range(2)]
        with told(routing):
            assert results[0].bytes_sent == results[0].bytes_received == count * (count - 1) * 1000
            assert results[0].time_ps == results[1].time_ps > 0
            assert results[0].link_bytes.tolist() == results[1].link_bytes.tolist()


@pytest.mark.parametrize(("collective", "algorithm"), _core.schedule_names())
def test_every_collective_conserves_bytes_and_repeats(collective, algorithm):
    ranks = range(2) if collective == "send_recv" else range(8)
    clusters = [
        rostam.fabric("electrical_cluster", num_accelerators=8, in_server_reduction=True),
        rostam.fabric(
            "fat_tree", num_accelerators=8, server_size=4, in_server_reduction=True, in_network_reduction=True
        ),
        rostam.fabric("electrical_flat", num_accelerators=8, in_network_reduction=True),
    ]
    fabric = next(one for one in clusters if refusal(one, collective, algorithm, np.arange(8)) is None)
    extra = {"group": 2, "grid": (4, 2) if _core.needs_grid(collective, algorithm) else None}
    results = [
        rostam.run_collective(fabric, collective, num_bytes=8000, algorithm=algorithm, ranks=list(ranks), **extra)
        for _ in range(2)
    ]
    # Switches copy: more is received than sent; or add up, less.
    if algorithm != "multicast" and (collective, algorithm) != ("reduce_scatter", "pull"):
        assert results[0].bytes_sent == results[0].bytes_received
    assert min(results[0].bytes_sent, results[0].bytes_received) > 0
    assert results[0].time_ps == results[1].time_ps > 0


@pytest.mark.parametrize("name", COST_MODELS.names())
def test_every_cost_model_builds_or_names_the_setting_it_needs(name):
    config = COST_MODELS.get(name).Config
    assert (config.__doc__ or "").strip()
    assert not config.__doc__.startswith("Config(")
    refusal = ""
    try:
        assert callable(make_cost_model(name, "a100_80gb").duration_s)
    except ConfigError as error:
        refusal = str(error)
    assert not refusal or "needs" in refusal


@pytest.mark.parametrize("name", PLACERS.names())
def test_every_placer_is_a_strategy_of_that_name(name):
    assert rostam.Strategy(placer=name).placer == name


def test_every_accelerator_figure_has_a_source():
    for name, accelerator in ACCELERATORS.items():
        assert accelerator.name == name
        figures = {"memory_bytes", "memory_bandwidth_bytes_per_s"}
        figures |= {f"peak_flops_per_s.{kind}" for kind in accelerator.peak_flops_per_s}
        assert figures - set(accelerator.sources) == set(), name
        assert all(accelerator.sources.values())


def test_every_model_declares_inputs_a_loss_and_its_source_or_what_is_assumed(told):
    for name in MODELS:
        spec = get_spec(name)
        module = sys.modules[MODELS[name].target.partition(":")[0]]
        with told(name):
            assert spec.name == name
            assert spec.inputs
            assert callable(spec.loss)
            assert MODELS[name].what
            assert spec.assumed or "Source:" in (module.__doc__ or "")


def header_comment(path):
    """Return the // lines at the top of a C++ file."""
    lines = path.read_text().splitlines()
    return "\n".join(lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))])


@pytest.mark.parametrize("folder", ["collectives", "routing", "fabric"])
def test_every_builtin_line_has_a_file_that_says_its_rule(folder):
    """Collectives: a closed form in alpha, S and B. Others: a file or first comment named after the entry."""
    headers = [f"{path.stem}\n{header_comment(path)}" for path in (CSRC / folder).glob("*.cpp")]
    lines = re.findall(r"^(?:X\w*|ROSTAM_\w+)\((.*)\)", (CSRC / folder / "builtin.inc").read_text(), re.MULTILINE)
    assert lines
    for entry in (re.sub(r', ".*"', "", line) for line in lines):
        own = [h for h in headers if re.search(entry.split(", ")[-1].replace("_", "[_ -]"), h, re.IGNORECASE)]
        assert own, f"no file of csrc/{folder} names {entry} in its first comment"
        if folder == "collectives":
            assert any("alpha" in header for header in own), entry


def test_adding_a_taken_name_is_refused():
    registry = Registry("thing")
    registry.add("one", "module:first")
    with pytest.raises(ConfigError, match="already registered"):
        registry.add("one", "module:second")
