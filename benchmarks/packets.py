"""The packet tier: packet-hops per CPU second, and a whole iteration with ``packets.skip``."""

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rostam_py as rostam
from benchmarks.case import Case

_PACKET_BYTES = 8192  # the default


def _permutation(*, num_accelerators: int, num_bytes: int, routing: str) -> Callable[[], dict[str, Any]]:
    """Send from every accelerator of a fat tree to another one, drawn; the routes are part of the call."""
    fabric = rostam.fabric("fat_tree", num_accelerators=num_accelerators, link_bandwidth="400 Gb/s")
    order = np.random.default_rng(0).permutation(num_accelerators)
    src = np.flatnonzero(order != np.arange(num_accelerators))
    run_flows = rostam.run_flows

    def call() -> dict[str, Any]:
        start = time.thread_time()
        result = run_flows(
            fabric, src=src, dst=order[src], num_bytes=[num_bytes] * len(src), routing=routing, fidelity="packet"
        )
        hops = result.link_bytes.sum() / _PACKET_BYTES
        rate = hops / 1e6 / (time.thread_time() - start)
        return {"packet_hops": hops, "million_hops_per_cpu_s": rate, "simulated_s": result.finish_s.max()}

    return call


def _iteration(*, skip: bool) -> Callable[[], dict[str, Any]]:
    """Simulate an iteration of GPT-13B on 128 accelerators of a tree, tp 8, dp 16, one micro-batch of one."""
    fabric = rostam.fabric("fat_tree", num_accelerators=128, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=16, tp=8, micro_batch=1)
    plan = rostam.place(rostam.trace("gpt_13b"), machine, global_batch=16, strategy=strategy, software="ideal")
    simulate, packets = rostam.simulate, rostam.PacketOptions(skip=skip)

    def call() -> dict[str, Any]:
        result = simulate(plan, fidelity="packet", packets=packets, max_iterations=1)
        found = re.search(r"([\d.]+)% of the bytes over links were walked", " ".join(result.notes))
        return {
            "packet_hops": float(np.sum(result.link_bytes)) / _PACKET_BYTES,
            "walked_percent": float(found.group(1)) if found else 100.0,
            "simulated_s": result.iteration_time_s,
        }

    return call


def packet_cases() -> list[Case]:
    """Return the cases."""
    permutation = {"num_accelerators": 1024, "num_bytes": 2**20}
    few = {"num_accelerators": 16, "num_bytes": 2**27}
    return [
        Case(
            name="packets_permutation:16", prepare=_permutation, arguments={**few, "routing": "spray"}, size=16,
            least={"million_hops_per_cpu_s": 6},
        ),
        Case(
            name="packets_permutation:1024", prepare=_permutation, arguments={**permutation, "routing": "spray"},
            size=1024, least={"million_hops_per_cpu_s": 3},
        ),
        Case(
            name="packets_permutation_adaptive", prepare=_permutation,
            arguments={**permutation, "routing": "adaptive"}, least={"million_hops_per_cpu_s": 3},
        ),
        Case(name="packets_gpt_13b:walked", prepare=_iteration, arguments={"skip": False}),
        Case(
            name="packets_gpt_13b:skip", prepare=_iteration, arguments={"skip": True}, target_cpu_s=60,
            limit="at most 1% of the packet-hops walked",
        ),
    ]  # fmt: skip
