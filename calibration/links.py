"""Constants of link classes, fitted on measured collectives (docs/collectives.md).

Model: rostam_py.fabrics.link_classes, on one server whose ranks share no link. Sizes of each collective and number of
    ranks, in file order, are numbered: the odd ones are fitted, the even ones judged, and one number of ranks is held
    out wholly. Least squares of nothing: the mean absolute logarithm of predicted over measured time, by coordinate
    steps from a fixed start, so that the result is the same bit for bit. Who chooses protocols, NCCL's tuning model or
    predicted times, is what meets the fitted rows best. A harness that launches every call of every rank takes so long
    at least (``Fitted``): what that is is fitted with the rest, on the same rows, and kept apart from the links.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from calibration.library import COLLECTIVES
from calibration.published import read
from rostam_py.fabrics.hybrid_cube_mesh import HybridCubeMeshConfig
from rostam_py.fabrics.link_classes import (
    LINKS,
    MIN_NVLS_RANKS,
    HeldOutCollective,
    LinkClass,
    has_rates,
    held_out_of,
    protocols_of,
    read_link_class,
)
from rostam_py.fabrics.link_classes import PROTOCOLS as OVERHEADS

_Class = TypeVar("_Class", bound=LinkClass)
_LEAST_US = 1e-3
MIN_BYTES, MAX_BYTES = 2**20, 2**33  # below, tables of XLA are noise (calibration/README.md)
_XLA = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "collective-permute": "permute",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One measured time. table: that it is of; world: ranks of the communicator; pattern: of a permute."""

    table: str
    collective: str
    num_ranks: int
    num_bytes: int
    seconds: float
    pattern: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of a file. system: those of this system alone. device: that was measured, where not the class's. from_bytes:
    smaller ones take what the host takes to launch them, and say nothing of links."""

    file: str
    system: str = ""
    device: str = ""
    from_bytes: int = MIN_BYTES

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return f"{self.file}, {self.system}" if self.system else self.file


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What a link class is fitted on. rate: of the data sheet, what a rank has inside its server [bytes/s];
    links_of: how many links rings of so many ranks use, where that differs; held_out: a number of ranks; messages:
    whose permutes are fitted, where not of ``tables``; rivals: that measured the same by other means and disagree;
    others: of other accelerators on such links, which are judged alone; launched: a table whose small sizes take what
    the host takes to launch them."""

    name: str
    accelerator: str
    rate: float
    tables: tuple[Table, ...]
    held_out: int
    has_nvls: bool = False
    links_of: dict[int, int] | None = None
    messages: tuple[Table, ...] = ()
    rivals: tuple[Table, ...] = ()
    others: tuple[Table, ...] = ()
    launched: str = ""

    def rate_of(self, num_ranks: int) -> float:
        """Return the data sheet's rate for a ring of so many ranks [bytes/s]."""
        return self.rate if self.links_of is None else self.rate * self.links_of[num_ranks]


# A link of 25 GB/s for each of the rings that the hybrid cube mesh has over the first ranks of a DGX-1.
_MESH = HybridCubeMeshConfig(num_accelerators=8)
_DGX1_LINKS = {p: len(_MESH.ring_channels(range(p), 1)) for p in range(2, 9)}
# Of NCCL as PyTorch calls it, a process for each GPU; XLA's tables are classes of their own (docs/collectives.md says
# why). One thread launched all eight ranks of SimuMax's: its times are flat up to 8 MiB.
_XLA_H100, _XLA_B200 = Table("collectives_h100.csv"), Table("collectives_b200.csv")
_SIMUMAX = Table("nccl_tests_8gpu_simumax.csv", from_bytes=16 * 2**20)
BENCHES = (
    Bench(
        name="nvlink2", accelerator="V100", rate=25e9, tables=(Table("allreduce_v100_dgx1.csv"),), held_out=6,
        links_of=_DGX1_LINKS,
    ),
    Bench(
        name="nvlink3", accelerator="A100", rate=300e9,
        tables=(Table("allreduce_a100_nvswitch.csv"), Table(COLLECTIVES, "a100_sxm")), held_out=5,
        launched="allreduce_a100_nvswitch.csv",
    ),
    Bench(
        name="nvlink4", accelerator="H100", rate=450e9, tables=(Table(COLLECTIVES, "h100_sxm"), _SIMUMAX), held_out=4,
        has_nvls=True,
        messages=(_XLA_H100,), rivals=(_XLA_H100,), others=(Table(COLLECTIVES, "h200_sxm", "H200"),),
    ),
    Bench(
        name="nvlink5", accelerator="B200", rate=900e9, tables=(Table(COLLECTIVES, "b200_sxm"),), held_out=4,
        has_nvls=True,
        messages=(_XLA_B200,), rivals=(_XLA_B200,),
        others=(
            Table(COLLECTIVES, "b300_sxm", "B300"), Table(COLLECTIVES, "gb200", "GB200"),
            Table(COLLECTIVES, "gb300", "GB300"),
        ),
    ),
    Bench(name="nvlink4_xla", accelerator="H100", rate=450e9, tables=(_XLA_H100,), held_out=4, has_nvls=True),
    Bench(name="nvlink5_xla", accelerator="B200", rate=900e9, tables=(_XLA_B200,), held_out=4),
)  # fmt: skip


def rows_of(tables: Sequence[Table]) -> list[Row]:
    """Return the rows of tables from 1 MiB on, in file order, without those that the host limits."""
    return [row for table in tables for row in _read(table) if table.from_bytes <= row.num_bytes <= MAX_BYTES]


def _read(table: Table) -> Iterator[Row]:
    for one in read(table.file):
        if "num_elements" in one:  # XLA: rates are tensor bytes / time
            size = int(one["tensor_bytes"])
            seconds = size / float(one["bytes_per_s"])
            kind = _XLA[one["collective"]]
            yield Row(table.name, kind, int(one["num_devices"]), size, seconds, one["pattern"])
        elif one.get("system", "") == table.system:
            kind = one.get("collective", "all_reduce").replace("alltoall", "all_to_all")
            yield Row(table.name, kind, int(one["num_gpus"]), int(one["bytes"]), float(one["time_us"]) * 1e-6)


def split(bench: Bench, rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows to fit, to judge, and of the number of ranks that is held out."""
    seen: dict[tuple[str, str, int, str], int] = {}
    fitted: list[Row] = []
    judged: list[Row] = []
    held_out: list[Row] = []
    for row in rows:
        key = (row.table, row.collective, row.num_ranks, row.pattern)
        seen[key] = seen.get(key, 0) + 1
        if row.num_ranks == bench.held_out:
            held_out.append(row)
        else:
            (fitted if seen[key] % 2 else judged).append(row)
    return fitted, judged, held_out


@dataclass(frozen=True, kw_only=True)
class Fitted(LinkClass):
    """A class with what the harness of ``Bench.launched`` takes at least: base_us + rank_us for each rank [us].

    It is a property of that measurement, in the class's file apart from its constants (``harness``), and counts where
    rows of that table are compared, never in a run.
    """

    base_us: float = 0.0
    rank_us: float = 0.0

    @property
    def constants(self) -> dict[str, Any]:
        """Those of the links alone."""
        return {key: value for key, value in super().constants.items() if key not in _HARNESS}


_HARNESS = ("base_us", "rank_us")


def shipped(name: str, folder: Path = LINKS) -> Fitted:
    """Return a class as its file has it, with its harness."""
    held = json.loads((folder / f"{name}.json").read_text())
    harness = {key: held.get("harness", {}).get(key, 0.0) for key in _HARNESS}
    return Fitted(name=name, **read_link_class(name, folder).constants, **harness)


@dataclass(frozen=True, slots=True)
class _Ring:
    """A protocol of rings: what it costs to start and for each step [s], bytes on the wire for each byte."""

    protocol: str
    start_up_s: float
    hop_s: float
    overhead: float


def _rings(links: LinkClass) -> list[_Ring]:
    """Return the protocols of rings on such links; the same for every row."""
    return [
        _Ring(protocol, links.start_up_s("ring", protocol), links.hop_s("ring", protocol, is_inside=True),
              OVERHEADS[protocol])
        for protocol in protocols_of("ring")
    ]  # fmt: skip


def predict(bench: Bench, links: LinkClass, row: Row, rings: Sequence[_Ring] | None = None) -> tuple[float, str]:
    """Return the predicted time [s], and by what. rings: of ``links``, where many rows are predicted."""
    p, rate = row.num_ranks, bench.rate_of(row.num_ranks) * links.share
    chunk = row.num_bytes / p
    if row.collective == "all_to_all":
        cap = links.message_rate(math.ceil(chunk), p, is_both_ways=True)
        seconds = links.exchange_launch_us * 1e-6 + links.end_s("all_to_all", chunk, rate)
        return seconds + max((p - 1) * chunk / rate, chunk / cap), "direct"
    if row.collective == "permute":
        cap = links.message_rate(row.num_bytes, p, is_both_ways=row.pattern != "one_way_half")
        return links.message_launch_us * 1e-6 + row.num_bytes / min(rate, cap), row.pattern
    passes = 2 if row.collective == "all_reduce" else 1
    end_s = links.end_s(row.collective, chunk, rate)
    steps = passes * (p - 1)
    chosen = next(iter(links.choices(row.collective, row.num_bytes, p)), None)
    best_s, best = math.inf, ""
    for ring in _rings(links) if rings is None else rings:
        seconds = ring.start_up_s + end_s + steps * (ring.hop_s + chunk * ring.overhead / rate)
        if seconds < best_s and chosen in (None, ("ring", ring.protocol)):
            best_s, best = seconds, f"ring {ring.protocol}"
    if (
        row.collective == "all_reduce" and links.nvls_overhead is not None and p >= MIN_NVLS_RANKS
        and chosen in (None, ("nvls", "Simple"))
    ):  # fmt: skip
        hop = links.start_up_s("nvls", "Simple") + links.hop_s("nvls", "Simple", is_inside=True)
        seconds = hop + end_s + (p + 1) * chunk * links.nvls_overhead / rate
        if seconds < best_s:
            best_s, best = seconds, "nvls Simple"
    return best_s, best


def harness_s(bench: Bench, links: LinkClass, row: Row) -> float:
    """Return what a row's harness takes at least [s]; nothing of one that queues its calls."""
    if row.table != bench.launched or not isinstance(links, Fitted):
        return 0.0
    return (links.base_us + links.rank_us * row.num_ranks) * 1e-6


def errors(bench: Bench, links: LinkClass, rows: Sequence[Row]) -> list[float]:
    """Return predicted / measured - 1 of every row, as its harness would measure it."""
    return [max(predict(bench, links, row)[0], harness_s(bench, links, row)) / row.seconds - 1 for row in rows]


def fit(bench: Bench) -> Fitted:
    """Return the class with the constants that fit its odd rows best, to four digits."""
    fitted = split(bench, rows_of(bench.tables))[0]
    permutes = [row for row in split(bench, rows_of(bench.messages or bench.tables))[0] if row.collective == "permute"]
    kinds = {row.collective for row in fitted}
    links = Fitted(
        name=bench.name, launch_us=5.0, hop_factor=1.5, copy_end=1.0, reduce_end=1.0, all_reduce_end=1.0, own_end=1.0,
        nvls_launch_us=30.0 if bench.has_nvls else 0.0, nvls_overhead=1.2 if bench.has_nvls else None,
        exchange_launch_us=20.0, message_launch_us=20.0, channels=32 if permutes else 0,
        channel_gb_per_s=25.0 if permutes else 0.0, both_ways=0.7 if permutes else 1.0,
        base_us=50.0 if bench.launched else 0.0, rank_us=3.0 if bench.launched else 0.0,
    )  # fmt: skip
    rings = [row for row in fitted if row.collective not in ("all_to_all", "permute")]
    names = ["share", "launch_us", "hop_factor", "all_reduce_end"]
    names += ["copy_end", "reduce_end"] if "all_gather" in kinds else []
    names += ["nvls_launch_us", "nvls_overhead"] if bench.has_nvls else []
    names += _HARNESS if bench.launched else ()
    # From several shares: a share that is too low is made up for by hops of nothing, and the other way round.
    choices = _CHOICES if has_rates(bench.name) else _CHOICES[:1]
    starts = [replace(links, share=share, tuned=tuned) for tuned in choices for share in (0.7, 0.8, 0.9)]
    ends = [descend(bench, start, names, rings) for start in starts]
    links = min(ends, key=lambda one: _loss(bench, one, rings) * (_HANDICAP if one.tuned else 1.0))
    if "all_gather" not in kinds:
        links = replace(links, copy_end=links.all_reduce_end, reduce_end=links.all_reduce_end)
    exchanges = [row for row in fitted if row.collective == "all_to_all"]
    links = descend(bench, links, ["message_launch_us", "channel_gb_per_s", "both_ways"], permutes)
    if not permutes:
        links = replace(links, message_launch_us=links.launch_us)
    links = descend(bench, links, ["exchange_launch_us", "own_end"], exchanges)
    if not exchanges:
        links = replace(links, exchange_launch_us=links.launch_us, own_end=links.copy_end)
    what = "all_reduce, all_gather, reduce_scatter" if "all_gather" in kinds else "all_reduce, its end for both halves"
    sources = {
        "ring": _source(bench, bench.tables, what),
        "all_to_all": _source(bench, bench.tables, "all_to_all") if exchanges else "as ring: not measured",
        "messages": _source(bench, bench.messages or bench.tables, "permutes")
        if permutes
        else "as ring, without a limit of channels: not measured",
    }
    return replace(links, sources=sources)


# Who chooses: predicted times, or NCCL's tuning model, with LL128 and, as half of the tables' releases on B200 do,
# without. NCCL is known to choose by its model, so predicted times must meet the fitted rows better by 5% (our choice).
_HANDICAP = 0.95
_CHOICES: tuple[tuple[str, ...], ...] = ((), ("LL", "LL128", "Simple"), ("LL", "Simple"))


def _source(bench: Bench, tables: Sequence[Table], what: str) -> str:
    names = "; ".join(table.name for table in tables)
    return f"{names}: {what}, odd sizes from 1 MiB on, all numbers of ranks but {bench.held_out}"


def fit_network(inside: LinkClass) -> LinkClass:
    """Return InfiniBand: the share of a 400 Gb/s NIC at which rings over 32 H100 reach the published bandwidth.

    Model: 8 channels over 4 servers of 8 in step (csrc/collectives/ring.cpp): 2 (p-1) steps of the mean hop + a chunk
        of S / 8p through each NIC. Hops are NCCL's own: no table tells start-ups between servers.
    """
    (row,) = (one for one in read("collectives_published.csv") if one["num_servers"] != "1")
    size, p, m = int(row["bytes"]), int(row["num_gpus"]), int(row["num_servers"])
    network = LinkClass(name="infiniband", hop_factor=1.0)
    seconds = 2 * (p - 1) / p * size / (float(row["busbw_gb_per_s"]) * 1e9)
    hops = [one.hop_s("ring", "Simple", is_inside=one is inside) for one in (inside, network)]
    mean = (hops[0] * (p - m) + hops[1] * m) / p
    own = inside.end_s("all_reduce", size / p, 450e9 * inside.share)
    step = (seconds - inside.start_up_s("ring", "Simple") - own) / (2 * (p - 1)) - mean
    share = float(f"{size * m / p / p / step / 50e9:.4g}")
    source = "collectives_published.csv: ring over 32 H100, the share of a 400 Gb/s NIC; hops as in NCCL's tuning table"
    return replace(
        network, share=share, sources={"ring": source, "messages": "start-up as inside servers, hops as rings"}
    )


def fit_all() -> list[LinkClass]:
    """Return every class that is fitted."""
    classes = [fit(bench) for bench in BENCHES]
    (nvlink4,) = (one for one in classes if one.name == "nvlink4")
    return [*classes, fit_network(nvlink4)]


def descend(bench: Bench, links: _Class, names: Sequence[str], rows: Sequence[Row]) -> _Class:
    """Return the class with the named constants moved, one after the other, as long as the rows are met better."""
    if not rows:
        return links

    return _coordinate_steps(links, names, lambda one: _loss(bench, one, rows))


def _loss(bench: Bench, links: LinkClass, rows: Sequence[Row]) -> float:
    """Return the mean absolute logarithm of predicted over measured time, and a part of the mean signed one.

    Every collective of a table counts alike, however many its rows.
    """
    rings = _rings(links)
    logs: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        seconds = max(predict(bench, links, row, rings)[0], harness_s(bench, links, row))
        logs.setdefault((row.table, row.collective), []).append(math.log(seconds / row.seconds))
    each = [(math.fsum(map(abs, one)) + 0.3 * abs(math.fsum(one))) / len(one) for one in logs.values()]
    return math.fsum(each) / len(each)


def _coordinate_steps(links: _Class, names: Sequence[str], loss: Callable[[LinkClass], float]) -> _Class:
    best, step = loss(links), 0.2
    while step > 0.0005:
        has_moved = False
        for moves in _moves(names):
            changed: dict[str, Any] = {name: _moved(name, getattr(links, name), sign, step) for name, sign in moves}
            if changed.get("share", 0.0) > 1.0:
                continue
            tried = replace(links, **changed)
            found = loss(tried)
            if found < best:
                links, best, has_moved = tried, found, True
        if not has_moved:
            step /= 2
    return links


def _moved(name: str, value: float, sign: int, step: float) -> float:
    """Return a constant times 1 + sign x step, to four digits; ends, which may be 0, plus sign x step.

    Start-ups of less than a nanosecond are none.
    """
    moved = max(0.0, value + sign * step) if name.endswith("_end") else value * (1 + sign * step)
    if name.endswith("_us") and moved < _LEAST_US:
        return 0.0
    return float(f"{moved:.4g}")


def _moves(names: Sequence[str]) -> Iterator[list[tuple[str, int]]]:
    """Yield single constants up and down, then pairs, since rate and ends, launch and hops trade off."""
    for k, name in enumerate(names):
        yield from ([(name, 1)], [(name, -1)])
        for other in names[:k]:
            yield from ([(name, a), (other, b)] for a in (1, -1) for b in (1, -1))


def judge(bench: Bench, links: LinkClass) -> list[HeldOutCollective]:
    """Return the errors of a class on what it was not fitted on, up to 1 GiB: its own tables, others', rivals'."""
    stated = []
    for tables, is_fitted in ((bench.tables, True), (bench.others, False), (bench.rivals, False)):
        every = rows_of(tables)
        parts = [[row for row in part if row.num_bytes <= 2**30] for part in split(bench, every)]
        if not is_fitted:
            parts = [[], [], [row for row in every if row.num_bytes <= 2**30]]
        devices = {table.name: table.device or bench.accelerator for table in tables}
        for table, collective in dict.fromkeys((row.table, row.collective) for row in every):
            own = [[row for row in part if (row.table, row.collective) == (table, collective)] for part in parts]
            rows = own[1] + own[2]
            found = errors(bench, links, rows)
            absolute, signed = _mean(map(abs, found), len(rows)), _mean(found, len(rows))
            worst, at = max(zip(found, rows, strict=True), key=lambda one: abs(one[0]))
            stated.append(
                HeldOutCollective(
                    device=devices[table], collective=collective, table=table, num_fitted=len(own[0]),
                    num_even=len(own[1]), num_held_out=len(own[2]), absolute=absolute, signed=signed,
                    worst=round(worst, 4), worst_bytes=at.num_bytes, worst_ranks=at.num_ranks,
                    is_rival=tables is bench.rivals,
                )
            )  # fmt: skip
    return stated


def _mean(values: Iterable[float], count: int) -> float:
    return round(math.fsum(values) / count, 4)


def table() -> Iterator[str]:
    """Yield a Markdown table of what the files of all classes state, misses first."""
    stated = [(bench.name, one) for bench in BENCHES for one in held_out_of(bench.name)]
    yield "| class | device | collective | fitted + even + held out | mean | mean signed | worst | rule | table |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, one in sorted(
        stated, key=lambda pair: (pair[1].is_rival, not pair[1].is_miss, pair[1].collective != "all_reduce")
    ):
        at, rule = f"{one.worst_bytes / 2**20:g} MiB, {one.worst_ranks} ranks", "missed" if one.is_miss else "held"
        yield (
            f"| {name} | {one.device} | {one.collective} | {one.num_fitted} + {one.num_even} + {one.num_held_out} |"
            f" {one.absolute:.1%} | {one.signed:+.1%} | {one.worst:+.0%} ({at}) |"
            f" {'of a rival' if one.is_rival else rule} | {one.table} |"
        )


def record(links: LinkClass) -> dict[str, Any]:
    """Return a class as its file holds it: its constants, and how far they are off on what they were not fitted on."""
    bench = next((one for one in BENCHES if one.name == links.name), None)
    if bench is None:
        return links.constants
    harness: dict[str, Any] = {}
    if bench.launched:
        harness = {"harness": {"table": bench.launched} | {key: getattr(links, key) for key in _HARNESS}}
    return links.constants | harness | {"held_out": [asdict(one) for one in judge(bench, links)]}


def write(links: LinkClass, folder: Path = LINKS) -> Path:
    """Write the file of a class."""
    path = folder / f"{links.name}.json"
    path.write_text(json.dumps(record(links), indent=2) + "\n")
    return path
