"""Say how far the interpolation of measured kernels is off on what it has not seen.

Model: ``rostam_py.costs.kernel_fit``, over a source's distinct shapes in file order; shipped tables hold the errors.
"""

from collections.abc import Iterable, Iterator

from rostam_py.costs.kernel_table import TABLES, HeldOut, KernelSeries, KernelTable

MAX_ABSOLUTE = 0.08  # mean absolute error allowed for a family on a device
MAX_SIGNED = 0.04  # and mean signed error


def shipped() -> Iterator[KernelSeries]:
    """Yield the series of all shipped tables."""
    for path in sorted(TABLES.glob("*.kernels.json")):
        yield from KernelTable.load(path).series


def is_miss(found: HeldOut) -> bool:
    """Say whether errors break the rule."""
    return found.absolute > MAX_ABSOLUTE or abs(found.signed) > MAX_SIGNED


def table(series: Iterable[KernelSeries]) -> Iterator[str]:
    """Yield a Markdown table, misses first, the largest error first; series of too few rows are left out."""
    yield "| device | kernels | precision | fitted + judged | mean absolute | mean signed | worst | rule | table |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    judged = [(one, one.held_out) for one in series if one.held_out is not None]
    for one, errors in sorted(judged, key=lambda pair: (not is_miss(pair[1]), -pair[1].absolute)):
        yield (
            f"| {one.device.name} | {one.kind.replace('_', ' ')} | {one.precision or 'fp32'} |"
            f" {len(one.seconds) - errors.rows} + {errors.rows} | {errors.absolute:.1%} | {errors.signed:+.1%} |"
            f" {errors.worst:+.0%} | {'missed' if is_miss(errors) else 'held'} | {one.source} |"
        )
