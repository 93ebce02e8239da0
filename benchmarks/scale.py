"""Networks at full scale: collectives, permutations and jobs, symmetric and not, with the CPU seconds asked of each."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rostam_py as rostam
from benchmarks.case import RINGS, Case

_RATE = "400 Gb/s"
_MIB = 2**20
_CPU_LIMIT_S = 60
_NUM_SEEDS = 20
_SIZES = (64 * 2**10, 16 * _MIB)  # bytes of a flow of a permutation, drawn evenly between them


def _tree(count: int) -> dict[str, Any]:
    """Return a non-blocking tree; three levels of radix 64 end at 65,536."""
    radix = 64 if count <= 65536 else 128
    return {"name": "fat_tree", "num_accelerators": count, "radix": radix, "link_bandwidth": _RATE}


def _torus(rows: int, columns: int) -> dict[str, Any]:
    return {"name": "torus", "dims": [rows, columns], "link_bandwidth": _RATE}


def _hx4mesh(boards: int) -> dict[str, Any]:
    return {
        "name": "hammingmesh", "board": [4, 4], "boards": [boards, boards], "planes": 4, "link_bandwidth": _RATE,
    }  # fmt: skip


def _built(fabric: dict[str, Any], has_failed_link: bool = False) -> Any:
    built = rostam.fabric(**fabric)
    return built.with_random_failures("links", 1, seed=0) if has_failed_link else built


def _message_hops(num_messages: int, link_bytes: np.ndarray, bytes_sent: int) -> float:
    """Return how many links messages crossed, those that are sprayed over paths counted by their share of each."""
    return num_messages * float(np.sum(link_bytes)) / bytes_sent


def _collective(
    *,
    fabric: dict[str, Any],
    collective: str,
    algorithm: str,
    num_bytes: int,
    has_failed_link: bool = False,
    is_shuffled: bool = False,
    **options: Any,
) -> Callable[[], dict[str, Any]]:
    built = _built(fabric, has_failed_link)
    run_collective = rostam.run_collective  # imports are start_import's cost
    if is_shuffled:
        options["ranks"] = np.random.default_rng(0).permutation(built.num_accelerators).tolist()

    def call() -> dict[str, Any]:
        result = run_collective(built, collective, num_bytes=num_bytes, algorithm=algorithm, **options)
        hops = _message_hops(result.num_messages, result.link_bytes, result.bytes_sent)
        return {"num_messages": result.num_messages, "message_hops": hops, "simulated_s": result.time_s}

    return call


def _permutation(*, count: int, routing: str, num_seeds: int = _NUM_SEEDS) -> Callable[[], dict[str, Any]]:
    """Run a random permutation of random sizes for each seed, exact, on one fabric; routes are part of each run."""
    built = _built(_tree(count))
    run_flows = rostam.run_flows
    drawn = []
    for seed in range(num_seeds):
        rng = np.random.default_rng(seed)
        order = rng.permutation(count)
        dst = np.empty(count, dtype=int)
        dst[order] = np.roll(order, -1)  # one cycle: none sends to itself
        drawn.append((dst.tolist(), rng.integers(*_SIZES, count).tolist()))

    def call() -> dict[str, Any]:
        seconds = []
        for seed, (dst, sizes) in enumerate(drawn):
            start = time.thread_time()  # that of the process steps by 4 ms where its CPU seconds are limited
            run_flows(built, src=range(count), dst=dst, num_bytes=sizes, routing=routing, seed=seed)
            seconds.append(time.thread_time() - start)
        return {"flows_per_s": count / statistics.median(seconds), "first_s": seconds[0]}

    return call


def _fabric(*, fabric: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    rostam.fabric("fat_tree", num_accelerators=4, link_bandwidth=_RATE)  # imports are start_import's cost

    def call() -> dict[str, Any]:
        return {"num_links": len(rostam.fabric(**fabric).links)}

    return call


def _job(
    *,
    model: str,
    fabric: dict[str, Any],
    strategy: dict[str, Any],
    global_batch: int,
    slow: dict[int, float] | None = None,
    has_failed_link: bool = False,
    is_shuffled: bool = False,
    **options: Any,
) -> Callable[[], dict[str, Any]]:
    built = _built(fabric, has_failed_link)
    if is_shuffled:
        order = np.random.default_rng(0).permutation(built.num_accelerators).tolist()
        strategy = {**strategy, "accelerators": order}
    machine = rostam.Machine(fabric=built, accelerator="a100_80gb", slow=slow or {})
    chosen = rostam.Strategy.of(**strategy)
    plan = rostam.place(rostam.trace(model), machine, global_batch=global_batch, strategy=chosen, software="ideal")
    simulate = rostam.simulate

    def call() -> dict[str, Any]:
        result = simulate(plan, **options)
        messages = sum(result.num_messages.values()) * len(result.iteration_times_s)
        hops = _message_hops(messages, result.link_bytes, sum(result.bytes_sent.values()))
        return {
            "num_devices": result.num_simulated_devices, "message_hops": hops, "simulated_s": result.iteration_time_s,
        }  # fmt: skip

    return call


def _collective_case(name: str, size: int, target_cpu_s: float, **arguments: Any) -> Case:
    target_bytes = arguments.pop("target_bytes", 0.0)
    return Case(
        name=name, prepare=_collective, size=size, target_cpu_s=target_cpu_s, target_bytes=target_bytes,
        cpu_limit_s=_CPU_LIMIT_S, arguments=arguments,
    )  # fmt: skip


def _rings() -> list[Case]:
    ring = {"collective": "all_reduce", "algorithm": "ring", "num_bytes": 64 * _MIB}

    def flat(count: int) -> dict[str, Any]:
        return {"name": "electrical_flat", "num_accelerators": count, "link_bandwidth": _RATE}

    found = [
        _collective_case(f"ring_folded_flat:{n}", n, target, fabric=flat(n), **ring)
        for n, target in ((1024, 0.01), (16384, 0.0), (65536, 0.5))
    ]
    found += [
        _collective_case(f"ring_unfolded_flat:{n}", n, target, fabric=flat(n), fold=False, **ring)
        for n, target in ((256, 0.0), (1024, 0.4))
    ]
    tree = _tree(1024)  # 32 leaves of 32 accelerators
    found.append(_collective_case("ring_folded_tree_32x32", 0, 0.1, fabric=tree, **ring))
    found.append(_collective_case("ring_unfolded_tree_32x32", 0, 0.0, fabric=tree, fold=False, **ring))
    found += [
        _collective_case(f"shuffled_ring_torus:{n * n}", n * n, target, fabric=_torus(n, n), is_shuffled=True, **ring)
        for n, target in ((8, 0.0), (12, 0.0), (16, 5.0), (18, 0.0), (32, 60.0))
    ]
    found += [
        _collective_case(
            f"shuffled_ring_torus_tolerance:{n * n}", n * n, target, fabric=_torus(n, n), is_shuffled=True,
            tolerance=0.01, **ring,
        )
        for n, target in ((8, 0.0), (16, 0.0), (32, 20.0))  # a third of what is asked of the exact one
    ]  # fmt: skip
    hx2mesh = {"name": "hammingmesh", "board": [2, 2], "boards": [16, 16], "link_bandwidth": _RATE}
    found.append(
        _collective_case(
            "hamiltonian_hx2mesh_failed_link:1024", 1024, 2.0, fabric=hx2mesh, has_failed_link=True,
            collective="all_reduce", algorithm="dual_hamiltonian_rings", num_bytes=64 * _MIB,
        )
    )  # fmt: skip
    # The plane's grid of 128 x 128 accelerators; a torus of 256 x 512.
    found.append(
        _collective_case(
            "hamiltonian_hx4mesh:16384", 16384, 5.0, fabric=_hx4mesh(32), collective="all_reduce",
            algorithm="dual_hamiltonian_rings", num_bytes=64 * _MIB,
        )
    )  # fmt: skip
    found.append(
        _collective_case(
            "torus_2d_all_reduce:131072", 131072, 60.0, fabric=_torus(256, 512), collective="all_reduce",
            algorithm="torus_2d", num_bytes=64 * _MIB, target_bytes=8e9,
        )
    )  # fmt: skip
    return found


def _all_to_alls() -> list[Case]:
    direct = {"collective": "all_to_all", "algorithm": "direct", "num_bytes": _MIB}
    found = [
        _collective_case(f"all_to_all_tree:{n}", n, target, fabric=_tree(n), target_bytes=memory, **direct)
        for n, target, memory in ((1024, 0.3, 0.0), (16384, 10.0, 2e9), (131072, 60.0, 8e9))
    ]
    found += [
        _collective_case(f"all_to_all_torus:{n * n}", n * n, target, fabric=_torus(n, n), **direct)
        for n, target in ((8, 0.0), (16, 0.0), (32, 5.0))
    ]
    found += [
        _collective_case(f"all_to_all_hx4mesh:{16 * n * n}", 16 * n * n, 0.0, fabric=_hx4mesh(n), **direct)
        for n in (8, 32)
    ]
    found += [
        _collective_case("all_to_all_torus_256x512", 0, 60.0, fabric=_torus(256, 512), target_bytes=8e9, **direct)
    ]
    found += [
        _collective_case(
            f"all_to_all_torus_failed_link:{n * n}", n * n, target, fabric=_torus(n, n), has_failed_link=True, **direct
        )
        for n, target in ((8, 0.0), (12, 0.0), (16, 5.0), (24, 0.0))
    ]
    found += [
        _collective_case(f"all_to_all_tree_hashed:{n}", n, target, fabric=_tree(n), routing="hash", **direct)
        for n, target in ((64, 0.0), (128, 0.0), (256, 2.0))
    ]
    return found


def _flows() -> list[Case]:
    return [
        Case(
            name=f"permutation_{routing}:{count}", prepare=_permutation, size=count, least={"flows_per_s": least},
            cpu_limit_s=_CPU_LIMIT_S, arguments={"count": count, "routing": routing},
        )
        for routing in ("spray", "hash")
        for count, least in ((1024, 300e3), (16384, 200e3))
    ]  # fmt: skip


def _fabrics() -> list[Case]:
    return [
        Case(
            name=f"fabric_{fabric['name']}:{count}", prepare=_fabric, size=count, target_cpu_s=target,
            cpu_limit_s=_CPU_LIMIT_S, arguments={"fabric": fabric},
        )
        for count, target, fabric in (
            (1024, 0.0, _tree(1024)), (16384, 0.3, _tree(16384)),
            (1024, 0.0, _torus(32, 32)), (16384, 0.3, _torus(128, 128)),
        )
    ]  # fmt: skip


def _gpt3(num_microbatches: int) -> dict[str, Any]:
    """Return GPT-3 on 16,128 accelerators, so many micro-batches of one sequence in each of 42 replicas."""
    strategy = {
        "dp": 42, "pp": 96, "tp": 4, "micro_batch": 1, "recompute": "full", "precision": "bf16_mixed",
        "algorithms": RINGS,
    }  # fmt: skip
    fabric = _tree(16128)
    return {"model": "gpt3_175b", "fabric": fabric, "strategy": strategy, "global_batch": 42 * num_microbatches}


def _resnet50() -> dict[str, Any]:
    strategy = {"dp": 16384, "algorithms": RINGS}
    return {"model": "resnet50", "fabric": _tree(16384), "strategy": strategy, "global_batch": 2 * 16384}


def _with_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a job whose algorithms nobody names, as most users run it: choosing them is a part of the run."""
    strategy = {key: value for key, value in arguments["strategy"].items() if key != "algorithms"}
    return {**arguments, "strategy": strategy}


def _jobs() -> list[Case]:
    strategy = {"dp": 128, "tp": 8, "algorithms": RINGS}
    same = {"model": "transformer_350m", "fabric": _tree(1024), "strategy": strategy, "global_batch": 1024}
    found = [
        Case(
            name=f"transformer_1024_{name}", prepare=_job, target_cpu_s=10.0, cpu_limit_s=_CPU_LIMIT_S,
            arguments={**same, **change},
        )
        for name, change in (
            ("slow_device", {"slow": {37 * 8: 0.5}}), ("failed_link", {"has_failed_link": True}),
            ("hashed", {"routing": "hash"}), ("shuffled", {"is_shuffled": True}),
            ("defaults", {"strategy": {"dp": 128, "tp": 8}}),
        )
    ]  # fmt: skip
    found += [
        Case(name=name, prepare=_job, target_cpu_s=target, cpu_limit_s=limit, arguments=arguments)
        for name, target, limit, arguments in (
            ("gpt3_16128", 2.0, _CPU_LIMIT_S, _gpt3(36)),
            ("gpt3_16128_96_microbatches", 45.0, 3 * _CPU_LIMIT_S, _gpt3(96)),
            ("gpt3_16128_defaults", 0.0, 3 * _CPU_LIMIT_S, _with_defaults(_gpt3(36))),
            ("gpt3_16128_96_microbatches_defaults", 15.0, 3 * _CPU_LIMIT_S, _with_defaults(_gpt3(96))),
            ("resnet50_16384", 2.0, _CPU_LIMIT_S, _resnet50()),
            ("resnet50_16384_defaults", 2.0, _CPU_LIMIT_S, _with_defaults(_resnet50())),
        )
    ]
    found += [
        Case(
            name=f"resnet50_torus_{name}:{n * n}", prepare=_job, size=n * n, cpu_limit_s=_CPU_LIMIT_S,
            arguments={
                "model": "resnet50", "fabric": _torus(n, n), "strategy": {"dp": n * n, "algorithms": RINGS},
                "global_batch": 2 * n * n, **change(n * n),
            },
        )
        for name, change in (
            ("slow_device", lambda count: {"slow": {count // 3: 0.5}}),
            ("failed_link", lambda _: {"has_failed_link": True}), ("hashed", lambda _: {"routing": "hash"}),
        )
        for n in (16, 32, 64)
    ]  # fmt: skip
    return found


def scale_cases() -> list[Case]:
    """Return every case of this file, families together, sizes ascending."""
    return _rings() + _all_to_alls() + _flows() + _fabrics() + _jobs()
