"""Say how far the interpolation of measured kernels is off on what it has not seen.

Model: ``rostam_py.costs.kernel_fit``, over a source's distinct shapes in file order; shipped tables hold the errors.
"""

from collections.abc import Iterable, Iterator

from rostam_py.costs.kernel_table import TABLES, KernelSeries, KernelTable


def shipped() -> Iterator[KernelSeries]:
    """Yield the series of all shipped tables."""
    for path in sorted(TABLES.glob("*.kernels.json")):
        yield from KernelTable.load(path).series


def table(series: Iterable[KernelSeries]) -> Iterator[str]:
    """Yield a Markdown table, misses first, the largest error first; series of too few rows are left out."""
    yield "| device | kernels | numbers | fitted + judged | mean absolute | mean signed | worst | rule | table |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    judged = [(one, one.held_out) for one in series if one.held_out is not None]
    for one, errors in sorted(judged, key=lambda pair: (not pair[1].is_miss, -pair[1].absolute)):
        yield (
            f"| {one.device.name} | {one.kind.replace('_', ' ')} | {one.numbers} |"
            f" {len(one.seconds) - errors.rows} + {errors.rows} | {errors.absolute:.1%} | {errors.signed:+.1%} |"
            f" {errors.worst:+.0%} | {'missed' if errors.is_miss else 'held'} | {one.source} |"
        )
