"""Compare all-reduces by ring, and by pull and push through switches that reduce, with the forms of Klenk et al."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from printed_figures import print_figures
from searched_points import print_table

import rostam_py as rostam
from rostam_py.collectives.table_walk import walk_all_reduce
from rostam_py.reproduction import Figure

RATE = 150e9  # of a DGX-2's accelerator: six links of 25 GB/s
GIB = 2**30
NAMES = ("ring", "pull", "push")
SIZES = ("1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB")
COUNTS = (4, 16, 64, 128)
WITHIN = 0.05  # of a form
CROSSING_S = 0.5e-6  # of the switch, end to end; assumed
ACCESS_S = 0.3e-6  # to an accelerator's memory; assumed
NO_CLAIM = "no claim, a table"
# NCCL opens 12 channels on NVLink 2, each a block of threads on one of a V100's 80 multiprocessors.
KERNELS = 12 / 80
BUCKETS = {"layer by layer": "1 B", "in buckets": "25 MB", "in one shot": "100 GB"}


def fabric(count: int = 16, **more: Any) -> Any:
    """Return one switch up to 16 accelerators, else leaves of eight below eight spines."""
    if count <= 16:
        latency = {"latency": CROSSING_S} | more
        return rostam.fabric(
            "electrical_flat", num_accelerators=count, accelerator_bandwidth=RATE, in_network_reduction=True, **latency
        )
    return rostam.fabric(
        "fat_tree", num_accelerators=count, radix=16, leaf_down=8, leaf_up=8, num_spines=8,
        accelerator_bandwidth=RATE, in_network_reduction=True, **more,
    )  # fmt: skip


def boards() -> Any:
    """Return a DGX-2: six planes of a switch on each of two boards, which eight cables join."""
    links = [(f"gpu{k}", f"sw{k // 8}") for k in range(16)] + [("sw0", "sw1")] * 8
    return rostam.fabric("custom", links=links, link_bandwidth="25 GB/s", planes=6, in_network_reduction=True)


def time_s(network: Any, algorithm: str, num_bytes: int | str) -> float:
    """Return the time of an all-reduce [s]."""
    return float(rostam.run_collective(network, "all_reduce", num_bytes=num_bytes, algorithm=algorithm).time_s)


def form(algorithm: str, count: int) -> float:
    """Return the bytes that an accelerator sends, over the buffer's."""
    return {"ring": 2 * (count - 1) / count, "pull": 1 + 1 / count, "push": 1.0}[algorithm]


def _figure(name: str, published: float, ours: float, unit: str = "x") -> Figure:
    difference = ours / published - 1
    return Figure(
        name=name, published=f"{published:.3f}{unit}", ours=f"{ours:.3f}{unit}", difference=f"{difference:+.1%}",
        is_met=abs(difference) <= WITHIN,
    )  # fmt: skip


def gains() -> Iterator[Figure]:
    """Yield how much faster than a ring 1 GiB is, by accelerators, and what a ring takes over S / B."""
    for count in COUNTS:
        times = {name: time_s(fabric(count), name, GIB) for name in NAMES}
        for name in NAMES[1:]:
            published = form("ring", count) / form(name, count)
            yield _figure(
                f"{name}, 1 GiB, {count} accelerators: gain over the ring", published, times["ring"] / times[name]
            )
    times = {name: time_s(boards(), name, GIB) for name in NAMES}
    for name in NAMES[1:]:
        published = form("ring", 16) / form(name, 16)
        yield _figure(f"{name}, 1 GiB, DGX-2's two boards: gain over the ring", published, times["ring"] / times[name])


def small() -> Iterator[Figure]:
    """Yield the gain of small messages: crossings alone, and on the line of flags and accesses that gives 18."""
    network = fabric()
    plain = time_s(network, "ring", "1 KiB") / time_s(network, "push", "1 KiB")
    yield Figure(
        name="push, 1 KiB, 16 accelerators: gain over the ring, crossings alone", published="18.0x",
        ours=f"{plain:.1f}x", difference=f"{plain / 18 - 1:+.1%}", is_met=abs(plain / 18 - 1) <= WITHIN,
    )  # fmt: skip
    flag_s = (CROSSING_S + 3 * ACCESS_S) / 2
    network = fabric(reduction_flag=flag_s, reduction_memory=ACCESS_S)
    own = time_s(network, "ring", "1 KiB") / time_s(network, "push", "1 KiB")
    yield Figure(
        name="push, 1 KiB, 16 accelerators: gain where s = (L + 3 g) / 2", published="18.0 x", ours=f"{own:.1f} x",
        difference=f"{own / 18 - 1:+.1%}", is_met=abs(own / 18 - 1) <= WITHIN,
    )  # fmt: skip


def rates() -> Iterator[Figure]:
    """Yield the share of full rate by the switch's speed-up, its tables, and waves under way."""
    for name in NAMES[1:]:
        held = RATE * (CROSSING_S + (ACCESS_S if name == "pull" else 0.0))
        bytes_s, full = GIB / RATE, time_s(fabric(reduction_memory=ACCESS_S), name, GIB)
        for share in (0.25, 0.5, 0.75):
            limited = fabric(reduction_memory=ACCESS_S, reduction_table=round(share * held))
            what = f"{name}, tables of {share:g} of the round trip's bytes ({share * held / 1e3:.1f} kB): rate over B"
            yield _figure(what, share, bytes_s / time_s(limited, name, GIB), "")
        for speedup in (1.0, 1.5):
            slow = fabric(reduction_memory=ACCESS_S, reduction_speedup=speedup)
            yield _figure(f"{name}, switch speed-up {speedup:g}: rate", speedup / 2, full / time_s(slow, name, GIB), "")
    held, full = RATE * CROSSING_S, time_s(fabric(), "push", GIB)
    for wave in (2**14, 2**16, 2**18):
        for count in (1, 2, 4):
            limited = fabric(reduction_wave=wave, reduction_waves=count)
            what = f"push, {count} {'wave' if count == 1 else 'waves'} of {wave // 1024} KiB under way: rate over B"
            yield _figure(what, min(1.0, count * wave / (wave + held)), full / time_s(limited, "push", GIB), "")


def walks() -> Iterator[list[str]]:
    """Yield rows of 1 MiB walked packet by packet through tables of a share of the round trip's bytes."""
    for name in NAMES[1:]:
        held = RATE * (CROSSING_S + (ACCESS_S if name == "pull" else 0.0))
        for share in (0.25, 0.5, 0.75, 1.0, 2.0):
            limited = fabric(reduction_memory=ACCESS_S, reduction_table=round(share * held))
            walk = walk_all_reduce(limited, name, 2**20, skew_s=CROSSING_S if name == "push" else 0.0)
            rate = 2**20 / RATE / walk.data_s
            yield [name, f"{share:g}", f"{rate:.2f}", str(walk.num_evicted), f"{walk.link_bytes.sum() / 2**20:.1f}"]


def step_s(model: str, strategy: rostam.Strategy, batch: int, algorithm: str, *, frees_kernels: bool = True) -> float:
    """Return the time of a training step of 16 V100 [s]. frees_kernels: switches in place of kernels add."""
    takes = 0.0 if algorithm != "ring" and frees_kernels else KERNELS
    machine = rostam.Machine(fabric=fabric(), accelerator="v100_32gb", comm_compute_fraction=takes)
    chosen = strategy.with_keys(algorithms={"all_reduce": algorithm})
    plan = rostam.place(rostam.trace(model), machine, global_batch=batch, strategy=chosen)
    return float(rostam.simulate(plan).iteration_time_s)


def trainings() -> list[dict[str, Any]]:
    """Return each training's step times by ring, pull, push, and push that takes kernels as a ring does [s]."""
    data = rostam.Strategy.of(dp=16, precision="fp16_mixed")
    tensor = rostam.Strategy.of(tp=16, precision="fp16_mixed", recompute="full")
    cases = [
        (f"{model}, data-parallel, gradients {what}", model, data.with_keys(bucket_size=bucket), 512)
        for model in ("resnet50", "transformer_350m")
        for what, bucket in BUCKETS.items()
    ]
    cases.append(("megatron_18b, tensor-parallel over 16", "megatron_18b", tensor, 8))
    rows = []
    for name, model, strategy, batch in cases:
        times = {one: step_s(model, strategy, batch, one) for one in NAMES}
        kernels = step_s(model, strategy, batch, "push", frees_kernels=False)
        rows.append({"name": name, **times, "push, kernels taken": kernels})
    return rows


def training_figures(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """Yield the gain of a step by push; the source's own are drawn without numbers. Args: rows: of ``trainings``."""
    for row in rows:
        name = f"{row['name']}: gain of a step by push"
        yield Figure(name=name, published=NO_CLAIM, ours=f"{row['ring'] / row['push']:.4f}x")


def figures() -> list[Figure]:
    """Return the ledger's figures: forms within WITHIN, and tables."""
    return [*gains(), *small(), *rates(), *training_figures(trainings())]


def main() -> None:
    """Print the speed-up over size and accelerators, and all figures."""
    rows = []
    for name in NAMES[1:]:
        for count in COUNTS:
            network = fabric(count)
            cells = [f"{time_s(network, 'ring', size) / time_s(network, name, size):.2f}" for size in SIZES]
            rows.append([name, str(count), *cells])
    print_table("all_reduce: gain over the ring", ("algorithm", "accelerators", *SIZES), rows)
    print_table(
        "1 MiB through 16 accelerators' tables, packet by packet, a push's starts drawn within a crossing",
        ("algorithm", "table over round trip", "rate over B", "evicted", "MiB on links"), list(walks()),
    )  # fmt: skip
    steps = trainings()
    columns = [one for one in steps[0] if one != "name"]
    print_table(
        "a training step of 16 V100 [ms]", ("training", *columns),
        [[row["name"], *(f"{row[one] * 1e3:.2f}" for one in columns)] for row in steps],
    )  # fmt: skip
    print_figures("switches that reduce", [*gains(), *small(), *rates(), *training_figures(steps)])


if __name__ == "__main__":
    main()
