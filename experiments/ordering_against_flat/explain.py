"""Find why a point is faster than Elect-Flat, or a fabric slower with more bandwidth: undo one difference at a time.

A cause is the first of the reruns, each on top of those before it, after which the anomaly is gone.
"""

from dataclasses import dataclass, replace

from measure import BANDWIDTHS, FABRICS, FLAT, RING, ROWS, SHORTEST_PATH, Job, Ordering, Point, Space

TOLERANCE = 1e-6  # below it times are equal: picoseconds on milliseconds


@dataclass(frozen=True)
class Anomaly:
    """One point out of order.

    ratio: its time over Elect-Flat's, or over its own at the bandwidth before. reruns: what was made equal, and the
    ratio after it. cause: in words; "" if no rerun removed it.
    """

    job: Job
    row: str
    fabric: str
    bandwidth: str
    ratio: float
    reruns: tuple[tuple[str, float], ...]
    cause: str


def anomalies(ordering: Ordering, jobs: tuple[Job, ...]) -> list[Anomaly]:
    """Return every point below Elect-Flat's time and every point slower than at the bandwidth before."""
    found = []
    for job in jobs:
        for row in ROWS:
            for fabric in FABRICS:
                for before, bandwidth in zip((None, *BANDWIDTHS), BANDWIDTHS, strict=False):
                    mine = ordering.time_s(job, row, fabric, bandwidth)
                    if fabric != FLAT and mine < ordering.time_s(job, row, FLAT, bandwidth) * (1 - TOLERANCE):
                        found.append(_faster_than_flat(ordering, job, row, fabric, bandwidth))
                    if before and mine > ordering.time_s(job, row, fabric, before) * (1 + TOLERANCE):
                        found.append(_slower_with_more(ordering, job, row, fabric, before, bandwidth))
    return found


def _faster_than_flat(ordering: Ordering, job: Job, row: str, fabric: str, bandwidth: str) -> Anomaly:
    space = ROWS[row][0]
    mine, flat = (ordering.point(job, row, name, bandwidth)["best"] for name in (fabric, FLAT))
    ratio = mine["time_to_accuracy_s"] / flat["time_to_accuracy_s"]
    nearest = SHORTEST_PATH[fabric]

    def against_flat(latency: str) -> float:
        times = [ordering.rerun(job, entry, FLAT, bandwidth, space, latency) for entry in (mine, flat)]
        return mine["time_to_accuracy_s"] / min(times)

    def both_in(other: Space, entry: Point = mine) -> float:
        own = ordering.rerun(job, entry, fabric, bandwidth, other)
        return own / ordering.rerun(job, entry, FLAT, bandwidth, other, nearest)

    algorithms = " and ".join(mine["algorithms"]), " and ".join(flat["algorithms"])
    waits = " and ".join(f"{axis} {_exposed_ms(mine, axis):.3f} ms, there {_exposed_ms(flat, axis):.3f}"
                         for axis in ("tp", "dp"))  # fmt: skip
    tries = [
        ("its strategy on Elect-Flat", lambda: against_flat("1 us"),
         f"search: Elect-Flat is faster with {mine['strategy']}, which its search did not simulate"),
        (f"Elect-Flat at {nearest}", lambda: against_flat(nearest),
         f"latency: neighbours are {nearest} apart, on Elect-Flat 1 us"),
        ("one bucket on both", lambda: both_in(one_bucket(space)),
         f"sharing: gradients, slower here, leave more of the ports to tp, which kernels wait for: exposed {waits}"),
        ("one bucket and rings on both", lambda: both_in(one_bucket(RING)),
         f"algorithm: auto, which predicts collectives alone, took {algorithms[0]} here, {algorithms[1]} there"),
    ]  # fmt: skip
    if mine.get("pp", 1) > 1:
        tries.insert(
            3, ("one bucket and one micro-batch on both", lambda: both_in(one_bucket(space), _one_microbatch(mine)),
                "sharing: messages between stages, slower here, leave more of the ports to tp, which kernels wait for:"
                f" on the critical path tp {_critical_ms(mine, 'tp'):.1f} ms, there {_critical_ms(flat, 'tp'):.1f},"
                f" pp {_critical_ms(mine, 'pp'):.1f} ms, there {_critical_ms(flat, 'pp'):.1f}"),
        )  # fmt: skip
    waits_less = {
        "sharing: gradients": _exposed_ms(mine, "tp") < _exposed_ms(flat, "tp"),
        "sharing: messages": _critical_ms(mine, "tp") < _critical_ms(flat, "tp"),
    }
    reruns = []
    for name, measure, cause in tries:
        reruns.append((name, measure()))
        if not all(less for start, less in waits_less.items() if cause.startswith(start)):
            continue
        if reruns[-1][1] >= 1 - TOLERANCE:
            return Anomaly(job, row, fabric, bandwidth, ratio, tuple(reruns), cause)
    return Anomaly(job, row, fabric, bandwidth, ratio, tuple(reruns), "")


def _slower_with_more(ordering: Ordering, job: Job, row: str, fabric: str, before: str, bandwidth: str) -> Anomaly:
    space = ROWS[row][0]
    low, high = (ordering.point(job, row, fabric, one)["best"] for one in (before, bandwidth))
    ratio = high["time_to_accuracy_s"] / low["time_to_accuracy_s"]

    def again(other: Space) -> float:
        return ordering.rerun(job, low, fabric, bandwidth, other) / ordering.rerun(job, low, fabric, before, other)

    tries = [
        (f"the strategy of {before}", lambda: again(space),
         f"search: faster with {low['strategy']}, which was not simulated"),
        ("one bucket at both", lambda: again(one_bucket(space)),
         "sharing: gradients and tp or pp messages share ports max-min, and more bandwidth changes what overlaps"),
        ("one bucket and rings at both", lambda: again(one_bucket(RING)),
         "algorithm: auto, which predicts collectives alone, changed its choice"),
    ]  # fmt: skip
    reruns = []
    for name, measure, cause in tries:
        reruns.append((name, measure()))
        if reruns[-1][1] <= 1 + TOLERANCE:
            return Anomaly(job, row, fabric, bandwidth, ratio, tuple(reruns), cause)
    return Anomaly(job, row, fabric, bandwidth, ratio, tuple(reruns), "")


def _exposed_ms(entry: Point, axis: str) -> float:
    return 1e3 * float(entry["breakdown_s"].get(axis, 0.0))


def _critical_ms(entry: Point, axis: str) -> float:
    return 1e3 * float(entry["critical_path_s"].get(axis, 0.0))


def _one_microbatch(entry: Point) -> Point:
    """Return the point with its replicas' samples in one micro-batch: no stage sends while another computes."""
    return entry | {"micro_batch": entry["batch"] // entry["dp"]}


def one_bucket(space: Space) -> Space:
    """Return the space with all gradients reduced at once, when backward is over: nothing else is sent meanwhile."""
    return replace(space, name=f"{space.name}, one bucket", bucket_size="100 GB")
