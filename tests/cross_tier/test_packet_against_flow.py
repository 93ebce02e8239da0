"""MODEL I25: packets take what flows take, within its bounds, in the cases of experiments/packet_against_flow."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import rostam_py as rostam

SCRIPT = Path(__file__).parents[2] / "experiments" / "packet_against_flow" / "compare.py"


@pytest.fixture(scope="module")
def cases():
    spec = importlib.util.spec_from_file_location("packet_against_flow", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.cases()


def test_packets_take_what_flows_take_within_the_bounds(cases):
    found = {}
    for case in cases:
        if not np.isfinite(case.bound):
            break
        found[case.name] = (case.difference(), case.bound)
    assert len(found) == 22
    assert {name: off for name, (off, bound) in found.items() if abs(off) > bound} == {}


@pytest.mark.slow
@pytest.mark.parametrize("num_bytes", ["1 MiB", "16 MiB"])
@pytest.mark.parametrize(
    ("name", "params"),
    [("fat_tree", {"num_accelerators": 1024}), ("hammingmesh", {"board": (2, 2), "boards": (16, 16)})],
)
def test_all_to_alls_of_a_thousand_are_within_the_bound(name, params, num_bytes):
    fabric = rostam.fabric(name, **params)
    flow, packet = (
        rostam.run_collective(fabric, "all_to_all", num_bytes=num_bytes, algorithm="direct", fidelity=fidelity).time_s
        for fidelity in ("flow", "packet")
    )
    assert packet == pytest.approx(flow, rel=0.15)


def test_a_step_of_a_job_takes_what_flows_take():
    graph = rostam.trace("gpt_125m")
    machine = rostam.Machine(fabric=rostam.fabric("fat_tree", num_accelerators=16, radix=8), accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=16, strategy=rostam.Strategy(dp=4, tp=2, pp=2), software="ideal")
    flow, packet = (rostam.simulate(plan, fidelity=fidelity) for fidelity in ("flow", "packet"))
    assert packet.iteration_time_s == pytest.approx(flow.iteration_time_s, rel=0.01)
    assert packet.bytes_sent == flow.bytes_sent


@pytest.mark.parametrize("routing", ["spray", "hash", "adaptive", "valiant", "ugal"])
def test_equal_seeds_give_equal_bytes(routing):
    fabric = rostam.fabric("hammingmesh", board=(2, 2), boards=(2, 2))
    order = np.random.default_rng(0).permutation(16)
    src = np.flatnonzero(order != np.arange(16))
    flows = {"src": src, "dst": order[src], "num_bytes": [300_000] * len(src), "routing": routing, "fidelity": "packet"}
    first, again, other = (rostam.run_flows(fabric, **flows, seed=seed) for seed in (3, 3, 4))
    for what in ("sent_s", "finish_s", "link_bytes"):
        assert getattr(first, what).tobytes() == getattr(again, what).tobytes()
    if routing == "hash":
        assert first.link_bytes.tobytes() != other.link_bytes.tobytes()
