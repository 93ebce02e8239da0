"""What is measured. A case prepares, unmeasured, and returns the call that is; each runs in its own process."""

import atexit
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rostam_py as rostam
from benchmarks.case import RINGS, Case
from benchmarks.packets import packet_cases
from benchmarks.paths import path_cases
from benchmarks.rescheduling import rescheduling_cases
from benchmarks.scale import scale_cases
from benchmarks.table_2 import table_2_case
from rostam_py.cli.commands import COMMANDS
from rostam_py.cli.main import main
from rostam_py.models import MODELS

BANDWIDTH = "2400 Gb/s"


def _fabric(name: str, count: int) -> Any:
    return rostam.fabric(name, num_accelerators=count, accelerator_bandwidth=BANDWIDTH)


def _collective(
    *, collective: str, algorithm: str, ranks: int, fabric: str = "electrical_flat"
) -> Callable[[], dict[str, Any]]:
    built = _fabric(fabric, ranks)
    run_collective = rostam.run_collective  # imports are start_import's cost

    def call() -> dict[str, Any]:
        result = run_collective(built, collective, num_bytes=2**26, algorithm=algorithm, fold=False)
        return {"num_messages": result.num_messages, "simulated_s": result.time_s}

    return call


def _torus(*, dims: tuple[int, ...]) -> Callable[[], dict[str, Any]]:
    """Choose and run an all-reduce on a torus that is built anew: routes of all candidates, folding, the run."""
    run_collective = rostam.run_collective

    def call() -> dict[str, Any]:
        built = rostam.fabric("torus", dims=dims, accelerator_bandwidth=BANDWIDTH)
        result = run_collective(built, "all_reduce", num_bytes=2**30, algorithm="auto")
        return {"num_messages": result.num_messages, "simulated_s": result.time_s}

    return call


def _job(
    *,
    model: str,
    fabric: str,
    strategy: dict[str, Any],
    global_batch: int,
    fold: bool,
    slow: dict[int, float] | None = None,
) -> Callable[[], dict[str, Any]]:
    chosen = rostam.Strategy.of(**strategy)
    built = _fabric(fabric, (chosen.dp or 1) * chosen.num_ranks_of_replica)
    machine = rostam.Machine(fabric=built, accelerator="a100_80gb", slow=slow or {})
    plan = rostam.place(rostam.trace(model), machine, global_batch=global_batch, strategy=chosen, software="ideal")
    simulate = rostam.simulate

    def call() -> dict[str, Any]:
        result = simulate(plan, fold=fold)
        return {"num_devices": result.num_simulated_devices, "simulated_s": result.iteration_time_s}

    return call


def _trace(*, model: str) -> Callable[[], dict[str, Any]]:
    import torch  # its import is not the tracer's cost

    torch.set_num_threads(1)

    def call() -> dict[str, Any]:
        graph = rostam.trace(model, cache=False)
        return {"num_ops": len(graph.ops), "num_parameters": graph.num_parameters}

    return call


def _trace_module(*, make: str, size: int) -> Callable[[], dict[str, Any]]:
    import torch

    from benchmarks import modules

    torch.set_num_threads(1)
    module, inputs = getattr(modules, make)(size)

    def call() -> dict[str, Any]:
        graph = rostam.trace(module, inputs)
        return {"num_ops": len(graph.ops), "num_parameters": graph.num_parameters}

    return call


def _circuits(*, fabric: str, num_accelerators: int, group: int, bandwidth: str) -> Callable[[], dict[str, Any]]:
    """Set circuits for the traffic of SiP-ML's figure 7: all to all in groups, uneven, and a ring across them."""
    import numpy as np

    from rostam_py.fabrics.traffic import Traffic

    rng = np.random.default_rng(0)
    a, b = np.divmod(np.arange(num_accelerators * group), group)
    dst = a - a % group + b
    sizes = np.exp(-3 * np.abs(a - dst) / group + 0.5 * rng.normal(size=len(a)))
    across = np.arange(num_accelerators)
    traffic = Traffic.from_messages(
        num_accelerators, np.concatenate([a, across]), np.concatenate([dst, (across + group) % num_accelerators]),
        np.concatenate([sizes, np.full(num_accelerators, 2 * sizes.mean())]) * 1e6,
    )  # fmt: skip
    built = rostam.fabric(fabric, num_accelerators=num_accelerators, accelerator_bandwidth=bandwidth)

    def call() -> dict[str, Any]:
        circuits = built.with_circuits(traffic).circuits
        return {"num_circuits": circuits.num_circuits, "slowest_pair_s": 1 / circuits.min_ratio_per_s}

    return call


def _place_sip_ml(*, mp: int, num_accelerators: int) -> Callable[[], dict[str, Any]]:
    graph = rostam.trace("transformer_350m")
    machine = rostam.Machine(fabric=_fabric("electrical_flat", num_accelerators), accelerator="v100_32gb")
    strategy = rostam.Strategy(dp=num_accelerators // mp, mp=mp, placer="sip_ml")

    def call() -> dict[str, Any]:
        plan = rostam.place(graph, machine, global_batch=1024, strategy=strategy, software="ideal")
        return {"num_tasks": sum(len(stage.templates["iteration"]) for stage in plan.stages)}

    return call


def _search(*, fabric: str, num_accelerators: int) -> Callable[[], dict[str, Any]]:
    graph = rostam.trace("transformer_350m")
    machine = rostam.Machine(fabric=_fabric(fabric, num_accelerators), accelerator="v100_32gb")

    def call() -> dict[str, Any]:
        base = rostam.Strategy(algorithms=RINGS)
        found = rostam.search(graph, machine, convergence="transformer_sip_ml", base=base, software="ideal")
        return {"num_candidates": len(found.candidates), "simulated_s": found.best.simulated_s}

    return call


def _search_decoder(*, model: str, num_accelerators: int, global_batch: int) -> Callable[[], dict[str, Any]]:
    """Search all placers' degrees with what users get: most plans do not fit, of which little should be made."""
    graph = rostam.trace(model)
    fabric = rostam.fabric("fat_tree", num_accelerators=num_accelerators)
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")

    def call() -> dict[str, Any]:
        found = rostam.search(graph, machine, batches=[global_batch], software="ideal")
        return {"num_candidates": len(found.candidates), "simulated_s": found.best.simulated_s}

    return call


_SWEPT = {
    "model": "graph:gpt", "fabric": {"name": "torus", "dims": [8, 8]}, "global_batch": 512,
    "strategy": {"tp": 2, "pp": 2, "micro_batch": 1, "precision": "bf16_mixed", "algorithms": RINGS},
}  # fmt: skip


def _cluster() -> str:
    """Start a Ray cluster of one node of two CPUs, which ends with this process, and return its address."""
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    atexit.register(cluster.shutdown)
    return cluster.address


def _sweep(*, backend: str, num_points: int, on_cluster: bool = False) -> Callable[[], dict[str, Any]]:
    """Sweep points of about 20 ms on two workers; ideal is what one process takes for a point, halved."""
    from rostam_py.sweep import Sweep, SweepOptions, Tally
    from rostam_py.sweep.evaluate import Evaluator

    graph = rostam.trace("gpt_125m")
    bandwidths = [f"{100 + i} Gb/s" for i in range(num_points)]
    sweep = Sweep(_SWEPT, grid={"fabric.accelerator_bandwidth": bandwidths}, graphs={"gpt": graph})
    evaluator = Evaluator({"graph:gpt": graph}.__getitem__)
    samples = sweep.points[:: max(1, num_points // 100)]
    evaluator.row(samples[0].key, samples[0].settings)
    begin = time.perf_counter()
    for point in samples:
        evaluator.row(point.key, point.settings)
    point_s = (time.perf_counter() - begin) / len(samples)
    address = _cluster() if on_cluster else None

    def call() -> dict[str, Any]:
        marks: list[tuple[float, int]] = []

        def note(tally: Tally) -> None:
            marks.append((time.perf_counter(), tally.done))

        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            sweep.run(folder, SweepOptions(backend=backend, workers=2, details=0, address=address), progress=note)
            whole_s = time.perf_counter() - begin
        first = next(mark for mark in marks if mark[1])
        running_s = marks[-1][0] - first[0]
        return {
            "point_ms": 1e3 * point_s, "start_s": first[0] - begin,
            "of_ideal_running": (num_points - first[1]) * point_s / 2 / running_s,
            "of_ideal_whole": num_points * point_s / 2 / whole_s,
        }  # fmt: skip

    return call


def _mix(*, num_jobs: int) -> Callable[[], dict[str, Any]]:
    """Simulate GPT-3 jobs of 512 accelerators each under ECMP on the 2,048 of the published Clos, three iterations."""
    fabric = rostam.fabric(
        "fat_tree", num_accelerators=2048, radix=64, num_spines=32, server_size=8, link_bandwidth="100 Gb/s"
    )
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=8, tp=8, pp=8, precision="tf32", micro_batch=1, recompute="full", algorithms=RINGS)
    graph = rostam.trace("gpt3_175b")
    jobs = [rostam.Job(f"gpt_{i}", graph, strategy, 64) for i in range(num_jobs)]
    plans = rostam.place_mix(jobs, machine, allocation="random", host_size=8, seed=0, software="ideal")

    def call() -> dict[str, Any]:
        mix = rostam.simulate_mix(jobs, machine, plans=plans, routing="hash", baselines=False)
        return {"slowest_s": max(one.iteration_time_s for one in mix.jobs)}

    return call


def _stored_sweep(*, num_points: int) -> Callable[[], dict[str, Any]]:
    """Load, put into a table and report a sweep all of whose points are stored; the rows are one row's copies."""
    from rostam_py.report.report import write_report
    from rostam_py.sweep import Sweep, SweepOptions
    from rostam_py.sweep.evaluate import Evaluator
    from rostam_py.sweep.store import Store, write_point

    graph = rostam.trace("gpt_125m")
    seeds = num_points // 100
    fabrics = [{"label": f"torus {i}", "name": "torus", "dims": [8, 8]} for i in range(10)]
    bandwidths = [f"{100 * (i + 1)} Gb/s" for i in range(10)]
    grid: dict[str, Any] = {"fabric": fabrics, "fabric.accelerator_bandwidth": bandwidths, "seed": range(seeds)}
    folder = tempfile.mkdtemp()

    def call() -> dict[str, Any]:
        sweep = Sweep(_SWEPT, grid=grid, graphs={"gpt": graph})
        result = sweep.run(folder, SweepOptions(details=0))
        page = write_report(folder)
        return {"num_points": result.num_points, "page_mb": page.stat().st_size / 1e6}

    sweep = Sweep(_SWEPT, grid=grid, graphs={"gpt": graph})
    store = Store(Path(folder) / "store")
    first = sweep.points[0]
    row = Evaluator({"graph:gpt": graph}.__getitem__).row(first.key, first.settings)
    for number, point in enumerate(sweep.points):
        write_point(store.folder, row | {"key": point.key, "seed": point.settings["seed"]}, 0.02)
        if number % 2000 == 1999:
            store.fold()
    return call


def _start(*, statement: str) -> Callable[[], dict[str, Any]]:
    """Run a statement in a fresh interpreter: what a user waits for at every call of a command."""

    def call() -> dict[str, Any]:
        subprocess.run([sys.executable, "-c", statement], check=True, stdout=subprocess.DEVNULL)
        return {}

    return call


def _second_run(*, model: str) -> Callable[[], dict[str, Any]]:
    """Run a model that the trace cache has: what a user waits for who changes one setting and runs again."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    environment = {**os.environ, "ROSTAM_CACHE_DIR": folder.name}
    keys = [f"model={model}", "strategy.check_memory=false", f"out={folder.name}/run"]

    def call() -> dict[str, Any]:
        subprocess.run(
            [sys.executable, "-m", "rostam_py.cli.main", "run", *keys],
            check=True, stdout=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        return {}

    call()
    return call


def _experiment(*, name: str, warm: bool) -> Callable[[], dict[str, Any]]:
    """Run a preset in this process: traced, or with its trace kept if warm, placed, simulated and written."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    os.environ["ROSTAM_CACHE_DIR"] = folder.name
    keys = ["run", f"experiment={name}", f"out={folder.name}/run"]
    if warm:
        subprocess.run([sys.executable, "-m", "rostam_py.cli.main", *keys], check=True, stdout=subprocess.DEVNULL)

    def call() -> dict[str, Any]:
        with contextlib.redirect_stdout(io.StringIO()):
            if main(keys):
                raise RuntimeError(f"experiment={name} did not run")
        result = json.loads(Path(folder.name, "run", "result.json").read_text(encoding="utf-8"))
        return {"num_devices": result["num_simulated_devices"], "simulated_s": result["iteration_time_s"]}

    return call


# What starts, what it may cost, and the statement.
_STARTS = {
    "import": ("0.5 CPU s", "import rostam_py; dir(rostam_py)"),
    "complete_command": ("0.3 CPU s", "from rostam_py.cli.completion import candidates; candidates(['ru'])"),
    "complete_name": ("0.3 CPU s", "from rostam_py.cli.completion import candidates; candidates(['run', 'fabric=t'])"),
    "complete_key": ("1 CPU s", "from rostam_py.cli.completion import candidates; candidates(['run', 'strategy.'])"),
    "help": ("0.7 CPU s", "from rostam_py.cli.main import main; main(['--help'])"),
    **{
        f"help_{command}": ("0.7 CPU s", f"from rostam_py.cli.main import main; main(['{command}', '--help'])")
        for command in COMMANDS
    },
}

_TRANSFORMER = {
    "model": "transformer_350m", "strategy": {"dp": 128, "tp": 8, "algorithms": RINGS}, "global_batch": 1024,
}  # fmt: skip
_GPT3 = {
    "model": "gpt3_175b", "fabric": "fat_tree", "global_batch": 1536,
    "strategy": {
        "pp": 96, "tp": 4, "micro_batch": 1, "recompute": "full", "precision": "bf16_mixed", "algorithms": RINGS,
    },
}  # fmt: skip


def cases() -> list[Case]:
    """Return every case, families together, sizes ascending."""
    found = [
        Case(name=f"start_{name}", prepare=_start, limit=limit, arguments={"statement": statement})
        for name, (limit, statement) in _STARTS.items()
    ]
    found += [
        Case(name=f"second_run_{model}", prepare=_second_run, limit="0.8 s wall", arguments={"model": model})
        for model in MODELS
    ]
    found += [
        Case(
            name=f"ring_unfolded:{ranks}", prepare=_collective, size=ranks, limit="2 CPU s, 200 MB at 1,024",
            arguments={"collective": "all_reduce", "algorithm": "ring", "ranks": ranks},
        )
        for ranks in (256, 512, 1024, 2048)
    ]  # fmt: skip
    found += [
        Case(
            name=f"one_component:{ranks}", prepare=_collective, size=ranks,
            arguments={"collective": "all_to_all", "algorithm": "direct", "ranks": ranks, "fabric": "fat_tree"},
        )
        for ranks in (256, 512)
    ]  # fmt: skip
    found += [
        Case(
            name=f"torus_all_reduce:{side**3}", prepare=_torus, size=side**3, limit="0.5 CPU s at 4,096",
            arguments={"dims": (side,) * 3},
        )
        for side in (8, 16)
    ]  # fmt: skip
    for fabric, limit in (("sip_ocs", "0.3 CPU s"), ("sip_ring", "50 ms")):
        found += [
            Case(
                name=f"circuits_{fabric}_k{group}", prepare=_circuits, limit=limit,
                arguments={"fabric": fabric, "num_accelerators": 1024, "group": group, "bandwidth": "8000 Gb/s"},
            )
            for group in (8, 16)
        ]  # fmt: skip
    for fabric in ("electrical_flat", "electrical_cluster", "fat_tree"):
        for fold in (True, False):
            name = f"transformer_350m_{fabric}_{'folded' if fold else 'unfolded'}"
            arguments = {**_TRANSFORMER, "fabric": fabric, "fold": fold}
            found.append(Case(name=name, prepare=_job, arguments=arguments, limit="20 CPU s, 1 GB"))
    slow = {**_TRANSFORMER, "fabric": "electrical_cluster", "fold": True, "slow": {37 * 8: 0.5}}
    found.append(Case(name="one_slow_device", prepare=_job, arguments=slow, limit="20 CPU s, 1 GB"))
    found += [
        Case(name=f"place_sip_ml:{mp}", prepare=_place_sip_ml, size=mp, arguments={"mp": mp, "num_accelerators": 256})
        for mp in (4, 8, 16)
    ]
    found += [
        Case(
            name=f"search_{fabric}:{count}", prepare=_search, size=count, limit="60 CPU s at 1,024",
            arguments={"fabric": fabric, "num_accelerators": count},
        )
        for fabric in ("electrical_cluster", "sip_ocs")
        for count in (256, 1024)
    ]  # fmt: skip
    found += [
        Case(
            name=f"search_{model}_on_{count}", prepare=_search_decoder, limit=limit,
            arguments={"model": model, "num_accelerators": count, "global_batch": batch},
        )
        for model, count, batch, limit in (
            ("llama3_8b", 64, 256, "12 CPU s"), ("llama3_70b", 512, 512, "60 CPU s"),
        )
    ]  # fmt: skip
    found += [
        Case(
            name=f"sweep_{name}", prepare=_sweep, limit="85% of ideal",
            arguments={"backend": backend, "num_points": 2000, "on_cluster": on_cluster},
        )
        for name, backend, on_cluster in (
            ("process", "process", False), ("ray", "ray", False), ("ray_cluster", "ray", True),
        )
    ]  # fmt: skip
    found += [
        Case(name=f"gpt3_mix:{512 * count}", prepare=_mix, size=512 * count, arguments={"num_jobs": count})
        for count in (1, 2, 4)
    ]
    found += [
        Case(
            name=f"stored_sweep:{count}", prepare=_stored_sweep, size=count, limit="30 s, 2 GB at 100,000",
            arguments={"num_points": count},
        )
        for count in (10_000, 100_000)
    ]  # fmt: skip
    for fabric in ("electrical_cluster", "fat_tree"):
        arguments = {**_TRANSFORMER, "strategy": {"dp": 128, "tp": 8}, "fabric": fabric, "fold": True}
        name = f"transformer_350m_{fabric}_defaults"
        found.append(Case(name=name, prepare=_job, arguments=arguments, limit="20 CPU s, 1 GB"))
    found.append(Case(name="gpt3_pp96_tp4", prepare=_job, arguments={**_GPT3, "fold": True}, limit="60 CPU s, 2 GB"))
    found += [
        Case(
            name=f"{name}_{'warm' if warm else 'cold'}", prepare=_experiment, limit="60 CPU s, 3 GB",
            arguments={"name": name, "warm": warm}, target_cpu_s=10.0 if warm and name == "deepseek_v3_2048" else 0.0,
        )
        for name in ("llama3_405b_8k", "llama3_405b_128k", "deepseek_v3_2048")
        for warm in (False, True)
    ]  # fmt: skip
    found.append(
        Case(name="trace_gpt3_175b", prepare=_trace, arguments={"model": "gpt3_175b"}, limit="30 CPU s, 1.5 GB")
    )
    found += [
        Case(
            name=f"trace_{name}", prepare=_trace_module, limit=limit, size=size,
            arguments={"make": make, "size": size},
        )
        for name, make, size, limit in (
            ("llama_blocks:80", "llama", 80, "8 CPU s with imports, 1 GB"),
            ("llama_blocks:126", "llama", 126, "12 CPU s with imports, 1 GB"),
            ("scan_steps:512", "scan", 512, "20 CPU s, 1 GB at 2,048"),
            ("scan_steps:2048", "scan", 2048, "20 CPU s, 1 GB at 2,048"),
            ("cell_steps:2048", "cell", 2048, "20 CPU s, 1 GB"),
        )
    ]  # fmt: skip
    return [*found, *rescheduling_cases(), *packet_cases(), *path_cases(), *scale_cases(), table_2_case()]
