"""Cases of SiP-Ring's rescheduling: one decision, and the average over the decisions of a run."""

import importlib
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import rostam_py as rostam
from benchmarks.case import Case

NUM_ACCELERATORS, REACH = 1024, 16
NUM_WAVELENGTHS = 320  # 8 Tb/s
NUM_TURNS = 40


def rescheduling_cases() -> list[Case]:
    """Return both families; a run of groups of 4 or 8 takes about a CPU minute."""
    found = [
        Case(
            name=f"ring_decision_k{group}", prepare=_decisions, arguments={"group": group},
            limit="5 ms a decision", least={"decisions_per_s": 200.0},
        )
        for group in (4, 8, 16)
    ]  # fmt: skip
    return found + [
        Case(
            name=f"ring_decisions_of_a_run_k{group}", prepare=_run, arguments={"group": group},
            limit="0.3 ms a decision", least={"decisions_per_s": 1 / 0.3e-3},
        )
        for group in (4, 8)
    ]  # fmt: skip


def figure_7(group: int, num_turns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sources, destinations and bytes, one row per turn, of SiP-ML's figure 7.

    All to all in groups, heaviest near the diagonal, and a ring across them. Every turn draws its bytes anew, in whole
    16ths of an octave, as controllers compare them: each changes most pairs.
    """
    rng = np.random.default_rng(seed)
    a, b = np.divmod(np.arange(NUM_ACCELERATORS * group), group)
    dst = a - a % group + b
    a, dst = a[a != dst], dst[a != dst]
    means = np.exp(-3 * np.abs(a - dst) / group)
    across = np.arange(NUM_ACCELERATORS)
    means = np.append(means, np.full(NUM_ACCELERATORS, 2 * means.mean()))
    src, dst = np.append(a, across), np.append(dst, (across + group) % NUM_ACCELERATORS)
    order = np.lexsort((dst, src))
    octaves = np.log2(means[order]) + 0.5 * rng.normal(size=(num_turns, len(src))) / np.log(2)
    return src[order], dst[order], np.exp2(np.round(16 * octaves) / 16)


def _decisions(*, group: int) -> Callable[[], dict[str, Any]]:
    from rostam_py import _core

    src, dst, sizes = figure_7(group, NUM_TURNS)

    def ms_each(keeps_idle: bool) -> float:
        """Return the CPU time of a decision, the first excepted: nothing is held before it [ms]."""

        def cpu_s(num_turns: int) -> float:
            begin = time.thread_time()
            _core.set_ring_in_turn(
                NUM_ACCELERATORS, src, dst, sizes[:num_turns], NUM_WAVELENGTHS, REACH, keeps_idle=keeps_idle
            )
            return time.thread_time() - begin

        return (cpu_s(NUM_TURNS) - cpu_s(1)) / (NUM_TURNS - 1) * 1e3

    def call() -> dict[str, Any]:
        alone, applied = ms_each(False), ms_each(True)
        return {"decision_ms": alone, "applied_ms": applied, "decisions_per_s": 1e3 / applied}

    return call


def _run(*, group: int) -> Callable[[], dict[str, Any]]:
    """Run transformer_350m as experiments/sip_ml_ring does, at 8,192 Gb/s, with a clock in the circuits' controller."""
    # The package's function hides the module of its name.
    module = importlib.import_module("rostam_py.simulation.simulate")
    machine = rostam.Machine(
        fabric=rostam.fabric(
            "sip_ring", num_accelerators=NUM_ACCELERATORS, accelerator_bandwidth="8192 Gb/s", control="periodic"
        ),
        accelerator="v100_32gb",
    )
    strategy = rostam.Strategy.of(
        dp=NUM_ACCELERATORS // group, mp=group, placer="sip_ml", precision="fp32", fusion="producer",
        accumulation="free", algorithms={"all_reduce": "ring"},
    )  # fmt: skip
    plan = rostam.place(
        rostam.trace("transformer_350m"),
        machine,
        global_batch=1024,
        strategy=strategy,
        cost="roofline",
        software="ideal",
    )
    own, read = module.circuit_controllers, module.reconfigurations_of

    def call() -> dict[str, Any]:
        clocked_s = []

        def with_clock(*args: Any, **keys: Any) -> Any:
            return [(name, {**parameters, "clock": [1]}) for name, parameters in own(*args, **keys)]

        def reading(fabric: Any, controllers: Any, reports: Any, *others: Any) -> Any:
            clocked_s.append(float(reports[-1]["decisions_cpu_s"][0]))
            return read(fabric, controllers, reports, *others)

        with (
            mock.patch.object(module, "circuit_controllers", with_clock),
            mock.patch.object(module, "reconfigurations_of", reading),
        ):
            circuits = rostam.simulate(plan).reconfigurations
        return {
            "decision_ms": clocked_s[0] / circuits.num_decisions * 1e3,
            "decisions_per_s": circuits.num_decisions / clocked_s[0],
            "num_decisions": circuits.num_decisions, "num_reconfigurations": len(circuits.begin_s),
        }  # fmt: skip

    return call
