"""An engine that shares nothing runs every golden plan, unfolded: what the session promises holds on any engine."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(FOLDER))

from golden_cases import CASES  # noqa: E402  (found by the line above)
from golden_models import graph, hand_written_plan  # noqa: E402
from golden_runs import _fabric  # noqa: E402

import rostam_py as rostam  # noqa: E402

PLANS = [case for case in CASES if case.kind == "plans"]


@pytest.mark.parametrize("case", PLANS, ids=lambda case: case.name)
def test_every_golden_plan_runs(case):
    machine = rostam.Machine(fabric=_fabric(case), **case.machine)
    strategy = rostam.Strategy.of(**case.strategy)
    if case.model == "hand":
        plan = hand_written_plan(machine, strategy, case.batch)
    else:
        plan = rostam.place(graph(case.model), machine, global_batch=case.batch, strategy=strategy, software="ideal")
    routing = case.run.get("routing", "spray")
    unshared = rostam.simulate(plan, fidelity="unshared", routing=routing, seed=case.run.get("seed", 0))
    shared = rostam.simulate(plan, routing=routing, seed=case.run.get("seed", 0), fold=False)
    assert unshared.num_simulated_devices == plan.accelerators.size
    assert unshared.bytes_sent == unshared.bytes_received == shared.bytes_sent
    assert unshared.num_messages == shared.num_messages
    # Sharing only ever delays the first iteration, in which nothing of another one is under way.
    assert unshared.first_iteration_s <= shared.first_iteration_s * (1 + 1e-9)
