"""What a search and a sweep ask of a placer is asked of its class, never of its name."""

import ast
import sys
import types
from pathlib import Path

import pytest

import rostam_py
import rostam_py as rostam
from rostam_py.placement.axis_costs import AxisCosts
from rostam_py.placement.placer import Placer
from rostam_py.plan import PLACERS, Strategy
from rostam_py.searching import Searcher

PACKAGE = Path(rostam_py.__file__).parent


@pytest.fixture
def twin(monkeypatch):
    """Register every placer a second time, as a class without anything of its own under another name."""
    module = types.ModuleType("placers_of_a_test")
    monkeypatch.setitem(sys.modules, "placers_of_a_test", module)
    for name in tuple(PLACERS):
        setattr(module, f"twin_{name}", type("Twin", (PLACERS.get(name),), {"__doc__": "By another name."}))
        monkeypatch.setitem(PLACERS._targets, f"twin_{name}", f"placers_of_a_test:twin_{name}")


def machine(fabric, **params):
    """Return eight accelerators at 1 Tb/s each."""
    built = rostam.fabric(fabric, num_accelerators=8, accelerator_bandwidth="1 Tb/s", **params)
    return rostam.Machine(fabric=built, accelerator="v100_32gb")


@pytest.mark.parametrize("name", tuple(PLACERS))
def test_every_placer_places_what_it_proposes_and_estimates_its_plans(name, small_graphs):
    graph, flat = small_graphs["transformer_350m"], machine("electrical_flat")
    assert issubclass(PLACERS.get(name), Placer)
    base = Strategy(placer=name, check_memory=False)
    proposed = list(PLACERS.get(name)(base, "roofline", None).candidates(8, 16))
    assert {one.placer for one in proposed} == {name}
    assert {one.num_ranks for one in proposed} == {8}
    for strategy in proposed:
        placer = PLACERS.get(name)(strategy, "roofline", None)
        plan = placer.place(graph, flat, 16)
        found = placer.estimator(plan).estimate(plan, flat.fabric, AxisCosts(plan, flat.fabric, "spray", {}))
        assert 0 < found.compute_s <= found.iteration_time_s
        assert found.iteration_time_s == pytest.approx(rostam.simulate(plan).iteration_time_s, rel=0.25)
        bound_s = placer.lower_bound_s(graph, flat, 16)
        assert bound_s is None or bound_s <= rostam.simulate(plan).iteration_time_s
        assert hash(placer.fabric_key(flat)) is not None


@pytest.mark.parametrize("fabric", ["electrical_flat", "sip_ocs"])
@pytest.mark.parametrize("name", tuple(PLACERS))
def test_a_placer_by_another_name_finds_the_same(name, fabric, small_graphs, twin):
    params = {"num_ocs": 5} if fabric == "sip_ocs" else {}
    results = []
    for registered in (name, f"twin_{name}"):
        searcher = Searcher(
            small_graphs["transformer_350m"], base=Strategy(check_memory=False), placers=[registered], software="ideal"
        )
        found = searcher.search(machine(fabric, **params), batches=[16], num_simulated=2)
        results.append(
            [
                (one.strategy.degrees(), one.bound_s, one.estimate_s, one.simulated_s, one.circuit_degree, one.reason)
                for one in found.candidates
            ]
        )
    assert results[0] == results[1]
    assert any(simulated for _, _, _, simulated, _, _ in results[0])


def test_no_code_outside_its_folder_names_a_placer():
    # Registering them, and the default of Strategy.placer, is all there is.
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        if where.parts[:2] in {("placement", name) for name in PLACERS}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in tuple(PLACERS):
                found.append((str(where), node.value))
    registered = [("plan/strategy_names.py", name) for name in sorted(PLACERS)]
    assert sorted(found) == [("plan/strategy_fields.py", Strategy().placer), *registered]
