"""Run golden cases and say what came out: whole picoseconds and bytes in the clear, long arrays as digests.

A digest is followed by the array's first entries, so that a difference can be read; ``regenerate.py --whole`` prints
everything.
"""

import hashlib
import json
from typing import Any

import numpy as np
from golden_cases import FABRICS, RING, Case
from golden_models import graph, hand_written_plan

import rostam_py as rostam
from rostam_py.fabrics.traffic import Traffic

FIRST = 4  # entries of a long array that are kept in the clear


def run_case(case: Case) -> dict[str, Any]:
    """Return everything that one case computes, arrays in full."""
    return _KINDS[case.kind](case)


def as_recorded(whole: dict[str, Any]) -> dict[str, Any]:
    """Return a result as its file holds it: lists of more than 2 x FIRST entries as length, digest, first entries."""
    return {key: _shortened(value) for key, value in whole.items()}


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(entry) for key, entry in value.items()}
    if not isinstance(value, list) or len(value) <= 2 * FIRST:
        return value
    digest = hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()
    return {"length": len(value), "digest": digest, "first": value[:FIRST]}


def _fabric(case: Case) -> Any:
    name, parameters = FABRICS[case.fabric]
    fabric = rostam.fabric(name, **parameters)
    failed = dict(case.failed)
    drawn = failed.pop("random", None)
    if failed:
        fabric = fabric.with_failures(**failed)
    return fabric if drawn is None else fabric.with_random_failures(kind=drawn[0], count=drawn[1], seed=drawn[2])


def _run_arguments(case: Case) -> dict[str, Any]:
    """Return the keyword arguments of a simulation, events built."""
    run = dict(case.run)
    events = [rostam.LinkBandwidth(*entry) for entry in run.pop("events", ())]
    events += [rostam.Reroute(*entry) for entry in run.pop("reroutes", ())]
    return run | {"events": events} if events else run


def _ps(seconds: Any) -> list[Any]:
    """Return times in whole picoseconds; None where a flow did not arrive."""
    return [None if np.isnan(value) else round(float(value) * 1e12) for value in seconds]


def _used(amounts: dict[str, int]) -> dict[str, int]:
    """Return the amounts that are not 0."""
    return {key: amount for key, amount in amounts.items() if amount}


def _links(values: Any) -> dict[str, Any]:
    """Return what links carried: the total, and [link, amount] of those that carried any."""
    used = np.flatnonzero(values)
    return {"total": float(np.sum(values)), "each": [[int(link), float(values[link])] for link in used]}


def _collective(case: Case) -> dict[str, Any]:
    run = _run_arguments(case)
    result = rostam.run_collective(_fabric(case), run.pop("collective"), **run)
    return {
        "ps": result.time_ps, "messages": result.num_messages, "sent": result.bytes_sent,
        "received": result.bytes_received, "finish_ps": _ps(result.finish_s), "link_bytes": _links(result.link_bytes),
    }  # fmt: skip


def _flows(case: Case) -> dict[str, Any]:
    result = rostam.run_flows(_fabric(case), **_run_arguments(case))
    return {
        "finish_ps": _ps(result.finish_s), "sent_ps": _ps(result.sent_s),
        "left": [float(value) for value in result.bytes_left], "link_bytes": _links(result.link_bytes),
    }  # fmt: skip


def _circuits(case: Case) -> dict[str, Any]:
    ends = (np.array(case.job["src"]), np.array(case.job["dst"]), np.array(case.job["num_bytes"]))
    fabric = _fabric(case)
    circuits = fabric.with_circuits(Traffic.from_messages(fabric.num_accelerators, *ends), **case.run).circuits
    return {"count": circuits.count.tolist(), "num_circuits": int(circuits.count.sum())}


def _plan(case: Case) -> dict[str, Any]:
    machine = rostam.Machine(fabric=_fabric(case), **case.machine)
    strategy = rostam.Strategy.of(**case.strategy)
    if case.model == "hand":
        plan = hand_written_plan(machine, strategy, case.batch)
    else:
        plan = rostam.place(
            graph(case.model), machine, global_batch=case.batch, strategy=strategy, cost=case.cost, software="ideal"
        )
    found = _run_result(rostam.simulate(plan, **_run_arguments(case)))
    return {"memory": int(plan.memory_bytes), "degree": int(plan.circuit_degree), **found}


def _run_result(result: Any) -> dict[str, Any]:
    by_device = np.rint(np.asarray(result.breakdown_by_device) * 1e12).astype(np.int64)
    is_used = by_device.any(axis=0)  # a new kind of communication that no golden plan has changes nothing
    path = [
        [s.kind, s.name, s.stage, s.device, s.microbatch, *_ps((s.start_s, s.duration_s))]
        for s in result.critical_path()
    ]
    return {
        "iteration_ps": _ps(result.iteration_times_s),
        "is_steady": result.is_steady,
        "simulated_devices": result.num_simulated_devices,
        "breakdown_ps": _used(dict(zip(result.breakdown, by_device.sum(axis=0).tolist(), strict=True))),
        "breakdown_by_device_ps": by_device[:, is_used].tolist(),
        "critical_path_ps": {kind: round(s * 1e12) for kind, s in result.critical_path_by_kind().items()},
        "critical_path": path,
        "sent": _used(result.bytes_sent),
        "received": _used(result.bytes_received),
        "messages": _used(result.num_messages),
        "link_bytes": _links(result.link_bytes),
        "link_busy_ps": [[link, round(busy * 1e12)] for link, busy in _links(result.link_busy_s)["each"]],
    }


def _mix(case: Case) -> dict[str, Any]:
    machine = rostam.Machine(fabric=_fabric(case), **case.machine)
    jobs = [
        rostam.Job(
            job["name"],
            graph(job["model"]),
            rostam.Strategy.of(**job["strategy"], algorithms=RING, fusion="producer", accumulation="free"),
            job["batch"],
            job.get("start_s", 0.0),
        )
        for job in case.job["jobs"]
    ]  # fmt: skip
    plans = rostam.place_mix(jobs, machine, host_size=4, cost=case.cost, **case.job.get("place", {}), software="ideal")
    result = rostam.simulate_mix(jobs, machine, plans=plans, **_run_arguments(case))
    found: dict[str, Any] = {}
    for job, run in zip(result.jobs, result.results, strict=True):
        alone = {"alone_ps": _ps(job.alone_times_s or ()), "ideal_ps": _ps(job.ideal_times_s or ())}
        found |= {f"{job.name} {key}": value for key, value in (_run_result(run) | alone).items()}
    return found


_KINDS = {"collectives": _collective, "flows": _flows, "circuits": _circuits, "plans": _plan, "mixes": _mix}
