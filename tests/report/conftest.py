"""Synthetic sweep folders: columns as a sweep writes them, numbers from a small model with seeded noise."""

import itertools
import json
from pathlib import Path

import polars as pl
import pytest

FABRICS = {"tree_64": 2.0e6, "tapered_tree_64": 1.1e6, "torus_8x8": 0.7e6, "hx2mesh_8x8": 0.9e6, "flat_64": None}
SLOWNESS = {"tree_64": 1.0, "tapered_tree_64": 1.7, "torus_8x8": 1.5, "hx2mesh_8x8": 1.2, "flat_64": 0.95}
MODELS = {"resnet50": (0.006, 0.1e9), "gpt_1_3b": (0.15, 5.2e9)}  # seconds of compute, bytes of gradients
PARTS = ("compute_s", "launch_s", "bubble_s", "exposed_tp_s", "exposed_dp_s", "exposed_pp_s", "exposed_tied_s",
         "exposed_mp_s")  # fmt: skip


def _grid(**axes) -> pl.DataFrame:
    rows = list(itertools.product(*axes.values()))
    return pl.DataFrame(rows, schema=list(axes), orient="row").with_row_index("index").cast({"index": pl.Int64})


def _noise(seed_columns: list[str]) -> pl.Expr:
    """Return numbers in [0, 1) that hang on the named columns only."""
    return (pl.concat_str(seed_columns, separator="/").hash(seed=1) % 10_007).cast(pl.Float64) / 10_007


def _finish(table: pl.DataFrame, folder: Path, mode: str, axes: dict, num_errors: int, title: str) -> Path:
    failed = pl.col("index") < num_errors
    kept = {"index", "key", "mode", "status", "error_type", "error", *axes}
    table = table.with_columns(
        pl.format("{}", pl.col("index").cast(pl.String).str.zfill(64)).alias("key"), pl.lit(mode).alias("mode"),
        pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")).alias("status"),
        pl.when(failed).then(pl.lit("MemoryCapacityError")).alias("error_type"),
        pl.when(failed).then(pl.lit("the plan needs 96 GB of 80 GB")).alias("error"),
    ).with_columns(pl.col(axes).cast(pl.String))  # fmt: skip
    numbers = [name for name in table.columns if name not in kept]
    table = table.with_columns(pl.when(pl.col("status") == "ok").then(pl.col(name)).alias(name) for name in numbers)
    folder.mkdir(parents=True, exist_ok=True)
    table.write_parquet(folder / "points.parquet")
    labels = [{"key": key, "labels": [str(one) for one in values]} for key, values in axes.items()]
    manifest = {"version": 1, "rostam_version": "0.1.0", "title": title, "mode": mode, "axes": labels,
                "num_points": len(table), "base": {"fidelity": "flow", "routing": "spray"}, "details": []}  # fmt: skip
    (folder / "sweep.json").write_text(json.dumps(manifest))
    return folder


def _run_table(axes: dict, convergence: bool) -> pl.DataFrame:
    table = _grid(**axes)
    gigabits = pl.col("fabric.accelerator_bandwidth").str.head(-5).cast(pl.Float64)
    tp, slow = pl.col("strategy.tp"), pl.col("fabric").replace_strict(SLOWNESS, return_dtype=pl.Float64)
    compute = pl.col("model").replace_strict({k: v[0] for k, v in MODELS.items()}, return_dtype=pl.Float64)
    num_bytes = pl.col("model").replace_strict({k: v[1] for k, v in MODELS.items()}, return_dtype=pl.Float64)
    bandwidth = pl.col("accelerator_bandwidth_bytes_per_s")
    jitter = 1 + 0.15 * _noise(["model", "fabric", "strategy.tp", "seed"])
    table = table.with_columns((gigabits * 1e9 / 8).alias("accelerator_bandwidth_bytes_per_s")).with_columns(
        compute.alias("compute_s"), (compute * 0.02).alias("launch_s"), pl.lit(0.0).alias("bubble_s"),
        (compute * 8e10 * (tp - 1) / tp * slow / bandwidth).alias("exposed_tp_s"),
        (num_bytes * 2 / tp * slow * jitter / bandwidth).alias("exposed_dp_s"),
        pl.lit(0.0).alias("exposed_pp_s"), pl.lit(0.0).alias("exposed_tied_s"), pl.lit(0.0).alias("exposed_mp_s"),
    )  # fmt: skip
    price = pl.col("fabric").replace_strict(FABRICS, return_dtype=pl.Float64)
    table = table.with_columns(
        pl.sum_horizontal(PARTS).alias("iteration_time_s"), pl.lit(64).alias("num_accelerators"),
        pl.lit("a100_80gb").alias("accelerator"), pl.format("dp {} x tp {}", 64 // tp, tp).alias("strategy"),
        pl.lit(4096).alias("global_batch"), (num_bytes * 9 / tp + 2e9).cast(pl.Int64).alias("memory_bytes"),
        (price * (0.4 + bandwidth / 1e11)).alias("network_usd"), pl.lit([], pl.List(pl.String)).alias("notes"),
        pl.lit(None, pl.List(pl.Struct({"name": pl.String, "slowdown": pl.Float64}))).alias("jobs"),
    )  # fmt: skip
    curve = pl.col("iteration_time_s") * 30_000 if convergence else pl.lit(None, pl.Float64)
    table = table.with_columns(
        (4096 / pl.col("iteration_time_s")).alias("samples_per_s"), curve.alias("time_to_accuracy_s"),
        (pl.col("accelerator_bandwidth_bytes_per_s") > 3e11).alias("is_extrapolated"),
        pl.lit(0.4).alias("mfu"),
    )  # fmt: skip
    hours = pl.col("num_accelerators") * pl.col("time_to_accuracy_s") / 3600
    return table.with_columns(hours.alias("accelerator_hours"), (hours * 2.5).alias("cost_usd"))


@pytest.fixture(scope="session")
def run_sweep():
    """A builder of folders of a sweep over model, fabric, bandwidth, tp and seed, in mode "run" or "search"."""

    def build(folder: Path, *, seeds=3, tps=(1, 4), gigabits=(400, 800, 1600, 3200), mode="run", num_errors=2,
              convergence=True, title="Fabrics for ResNet-50 and GPT 1.3B") -> Path:  # fmt: skip
        axes = {"model": list(MODELS), "fabric": list(FABRICS), "strategy.tp": list(tps)}
        axes |= {"fabric.accelerator_bandwidth": [f"{one} Gb/s" for one in gigabits], "seed": list(range(seeds))}
        return _finish(_run_table(axes, convergence), folder, mode, axes, num_errors, title)

    return build


@pytest.fixture(scope="session")
def mix_sweep():
    """A builder of folders of a sweep of job mixes over routing, number of jobs and seed."""

    def build(folder: Path, *, seeds=20, num_errors=0) -> Path:
        axes = {"routing": ["hash", "adaptive"], "mix.num_jobs": [1, 2, 3, 4, 5], "seed": list(range(seeds))}
        table = _grid(**axes).with_columns(pl.lit("tree_2048").alias("fabric"), pl.lit(2048).alias("num_accelerators"))
        worst = pl.col("routing").replace_strict({"hash": 0.3, "adaptive": 0.05}, return_dtype=pl.Float64)
        table = table.with_columns(pl.int_ranges(pl.col("mix.num_jobs")).alias("job")).explode("job")
        noise = _noise(["routing", "mix.num_jobs", "seed", "job"])
        slowdown = 1 + worst * (pl.col("mix.num_jobs") - 1) * noise * noise
        name = pl.when(pl.col("job") % 2 == 0).then(pl.lit("gpt_1_3b")).otherwise(pl.lit("bloom_7b"))
        table = table.with_columns(slowdown.alias("slowdown"), name.alias("job_model"))
        fields = [pl.format("job{}", "job").alias("name"), pl.col("job_model").alias("model"),
                  pl.lit(256).alias("num_accelerators"), pl.lit(0.0).alias("start_s"),
                  pl.col("slowdown").alias("iteration_time_s"), pl.lit(1.0).alias("alone_s"),
                  pl.lit(0.98).alias("ideal_s"), pl.col("slowdown"),
                  (pl.col("slowdown") / 0.98).alias("slowdown_ideal")]  # fmt: skip
        rest = ["index", *axes, "fabric", "num_accelerators"]
        table = table.with_columns(pl.struct(fields).alias("jobs")).group_by(rest, maintain_order=True).agg(
            "jobs", pl.col("slowdown").mean().alias("slowdown_mean"), pl.col("slowdown").max().alias("slowdown_max"),
        )  # fmt: skip
        table = table.with_columns(pl.col("mix.num_jobs").alias("num_jobs"))
        return _finish(table, folder, "mix", axes, num_errors, "GPT and BLOOM on one tree")

    return build
