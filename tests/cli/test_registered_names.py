"""MODEL 29: what is registered is listed, completed, simulated, searched, swept and reported, by its name alone.

Python's registries get a component each at run time. Those of the core cannot: each of its names must pass, and one
that it is made to report must be known wherever names are checked or shown.
"""

import dataclasses
import json
import sys
import types

import pytest

from rostam_py import _core
from rostam_py.cli.choices import check_choice
from rostam_py.cli.completion import candidates
from rostam_py.cli.main import main
from rostam_py.collectives.rank_groups import needs_grid
from rostam_py.convergence import CURVES, get_curve
from rostam_py.costs import ACCELERATORS, COST_MODELS
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.electrical_flat import ElectricalFlatConfig
from rostam_py.models import MODELS, Model, get_spec
from rostam_py.placement.megatron.placer import MegatronPlacer
from rostam_py.plan import GROUP_KINDS, PLACERS, GroupKind
from rostam_py.spec.lookup import choices_of
from rostam_py.spec.settings import complete_settings

_MODULE = "rostam_components_of_a_test"


@pytest.fixture
def twins(monkeypatch):
    """Register a component of every kind; each behaves as a known one under a name of its own."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class TwinFabric(ElectricalFlatConfig):
        """An ideal switch by another name."""

        def build(self, name):
            return ElectricalFlatConfig.build(self, "electrical_flat")

    module = types.ModuleType(_MODULE)
    module.TwinFabric = TwinFabric
    TwinFabric.__module__ = _MODULE

    class TwinPlacer(MegatronPlacer):
        """megatron whose replicas form groups of a kind of their own."""

        def place(self, graph, machine, global_batch):
            plan = MegatronPlacer.place(self, graph, machine, global_batch)
            groups = [dataclasses.replace(g, kind="twin_kind") if g.kind == "dp" else g for g in plan.groups]
            return dataclasses.replace(plan, groups=tuple(groups))

    module.TwinPlacer = TwinPlacer
    module.TWIN_KIND = GroupKind("twin-parallel", "#123456", 20)
    module.TwinCost = type("TwinCost", (COST_MODELS.get("roofline"),), {"__doc__": "A roofline by another name."})
    module.TwinCost.Config = dataclasses.make_dataclass(
        "Config", [], bases=(COST_MODELS.get("roofline").Config,), kw_only=True
    )
    module.TWIN_CURVE = dataclasses.replace(get_curve("resnet50_mlperf"), name="twin_curve", models=("twin_model",))
    module.build_model = lambda: dataclasses.replace(get_spec("resnet50"), name="twin_model")
    monkeypatch.setitem(sys.modules, _MODULE, module)
    for registry, name, attribute in (
        (FABRICS, "twin_fabric", "TwinFabric"), (PLACERS, "twin_placer", "TwinPlacer"),
        (COST_MODELS, "twin_cost", "TwinCost"), (CURVES, "twin_curve", "TWIN_CURVE"),
        (GROUP_KINDS, "twin_kind", "TWIN_KIND"),
    ):  # fmt: skip
        monkeypatch.setitem(registry._targets, name, f"{_MODULE}:{attribute}")
    monkeypatch.setitem(MODELS, "twin_model", Model(f"{_MODULE}:build_model", "ResNet-50 by another name", "images"))
    twin = dataclasses.replace(ACCELERATORS["a100_80gb"], name="twin_accelerator")
    monkeypatch.setitem(ACCELERATORS, "twin_accelerator", twin)


NAMED = {
    "fabric": ("twin_fabric", "fabrics"), "cost": ("twin_cost", "costs"), "model": ("twin_model", "models"),
    "convergence": ("twin_curve", "convergence"), "accelerator": ("twin_accelerator", "accelerators"),
    "placer": ("twin_placer", "placers"), "group": ("twin_kind", "groups"),
}  # fmt: skip
COMMON = [
    "model=twin_model", "fabric=twin_fabric", "fabric.num_accelerators=8", "accelerator=twin_accelerator",
    "cost=twin_cost", "convergence=twin_curve",
]  # fmt: skip


@pytest.mark.parametrize("key", NAMED)
def test_a_registered_component_is_listed(key, twins, capsys):
    name, kind = NAMED[key]
    assert main(["list", kind, "--json"]) == 0
    assert name in [row[key] for row in json.loads(capsys.readouterr().out)[kind]]
    assert candidates(["list", kind[:-1]]) == [kind]


@pytest.mark.parametrize("key", [key for key in NAMED if key not in ("placer", "group")])
def test_a_registered_component_is_completed(key, twins):
    name, _ = NAMED[key]
    for command in ("run", "search", "sweep"):
        assert candidates([command, f"{key}=twin"]) == [f"{key}={name}"]


def test_a_registered_placer_is_completed(twins):
    assert candidates(["run", "strategy.placer=twin"]) == ["strategy.placer=twin_placer"]
    assert candidates(["search", "search.placers=[twin"]) == ["search.placers=[twin_placer]"]


def test_registered_components_run_are_searched_swept_and_reported(twins, cached_traces, tmp_path, capsys):
    batch, placer = "global_batch=3200", "strategy.placer=twin_placer"
    assert main(["run", *COMMON, batch, placer, "report=true", f"out={tmp_path / 'run'}", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["time_to_accuracy"]["convergence"] == "twin_curve"
    assert result["breakdown_s"]["twin_kind"] > 0
    assert "dp" not in {kind for kind, sent in result["bytes_sent"].items() if sent}
    options = ["search.placers=[twin_placer]", "search.num_simulated=1", "search.batches=[3200]"]
    assert main(["search", *COMMON, *options, f"out={tmp_path / 'search'}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["candidates"][0]["exposed_communication_s"] > 0
    assert found["candidates"][0]["simulated_s"] > 0
    axes = [batch, "strategy.placer=megatron,twin_placer", "sweep.backend=inline", f"out={tmp_path / 'sweep'}"]
    assert main(["sweep", *COMMON, *axes, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert [row["status"] for row in rows] == ["ok", "ok"]
    assert rows[0]["iteration_time_s"] == rows[1]["iteration_time_s"] == result["iteration_time_s"]
    assert rows[1]["exposed_twin_kind_s"] == rows[0]["exposed_dp_s"] > 0
    assert main(["sweep", *COMMON, *options, "sweep.mode=search", "sweep.backend=inline", "report=false",
                 f"out={tmp_path / 'searches'}", "--json"]) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["points"][0]["status"] == "ok"
    for folder in ("run", "sweep"):
        assert main(["report", str(tmp_path / folder)]) == 0
        text = (tmp_path / folder / "report.html").read_text()
        assert "twin_fabric" in text
        assert "twin-parallel" in text
        assert "twin_model" in text


def test_every_routing_and_algorithm_of_the_core_is_simulated_and_swept(cached_traces, tmp_path, capsys):
    routings = _core.routing_names()
    algorithms = [a for name, a in _core.schedule_names() if name == "all_reduce" and not needs_grid(name, a)
                  and not _core.models_bandwidth(name, a)]  # fmt: skip
    keys = [f"routing={','.join(routings)}", f"strategy.algorithms.all_reduce={','.join(algorithms)}"]
    out = ["sweep.backend=inline", "report=false", f"out={tmp_path}", "--json"]
    assert main(["sweep", "fabric=electrical_flat", "fabric.num_accelerators=8", *keys, *out]) == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert {row["routing"] for row in rows} == set(routings)
    assert len(rows) == len(routings) * len(algorithms)
    assert {row["status"] for row in rows} == {"ok"}


def test_a_routing_that_the_core_registers_is_known_everywhere(monkeypatch, capsys):
    names, summary = _core.routing_names(), _core.routing_summary
    monkeypatch.setattr(_core, "routing_names", lambda: [*names, "zigzag"])
    monkeypatch.setattr(_core, "routing_summary", lambda name: "twin" if name == "zigzag" else summary(name))
    assert main(["list", "routings", "--json"]) == 0
    assert {"routing": "zigzag", "what": "twin"} in json.loads(capsys.readouterr().out)["routings"]
    assert candidates(["sweep", "routing=z"]) == ["routing=zigzag"]
    assert "zigzag" in choices_of("routing")
    check_choice("routing", ["zigzag"])
    assert complete_settings({"routing": "zigzag"})["routing"] == "zigzag"
    assert main(["run", "--help"]) == 0
    assert "zigzag (twin)" in capsys.readouterr().out


def test_an_algorithm_that_the_core_registers_is_known_everywhere(monkeypatch, capsys):
    names = _core.schedule_names()
    monkeypatch.setattr(_core, "schedule_names", lambda: [*names, ("all_reduce", "wheel"), ("gather", "wheel")])
    known = _core.needs_grid
    monkeypatch.setattr(_core, "needs_grid", lambda name, algorithm: algorithm != "wheel" and known(name, algorithm))
    assert main(["list", "collectives", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["collectives"]
    assert {"collective": "gather", "algorithm": "wheel", "ranks": "any"} in rows
    assert candidates(["run", "strategy.algorithms.all_reduce=wh"]) == ["strategy.algorithms.all_reduce=wheel"]
    assert candidates(["run", "strategy.algorithms.g"]) == ["strategy.algorithms.gather="]
    for collective in ("all_reduce", "gather"):
        settings = complete_settings({"strategy": {"algorithms": {collective: "wheel"}}})
        assert settings["strategy"]["algorithms"] == {collective: "wheel"}
