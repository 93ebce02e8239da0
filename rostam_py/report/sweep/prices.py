"""Which network prices a report may hold against each other.

A fabric's bill counts switches and cables of 400 Gb/s, one a link whatever bandwidth the link is given, so that a
faster network has the price of a slower one. Prices are therefore compared at one bandwidth per accelerator only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rostam_py.fabrics.bill import PORT_BYTES_PER_S
from rostam_py.report.sweep.reading import BANDWIDTH, has_values

if TYPE_CHECKING:
    import polars

NETWORK = "network_usd"
BASIS = "switches and cables by a list of 400 Gb/s parts, one a link whatever its bandwidth"
# Inside its servers an electrical cluster has switches of the full bandwidth, which the list leaves out.
_PARTLY_LISTED = ("electrical_cluster",)


def priced(rows: polars.DataFrame) -> polars.DataFrame:
    """Return the rows that have a network price which says something about their network.

    Model: the price is known and positive; the fabric's switches are all on the list; the bandwidth per accelerator is
        a whole number of 400 Gb/s ports. How a fabric divides its bandwidth over links is not known here.
    """
    import polars as pl

    if not has_values(rows, NETWORK):
        return rows.clear()
    rows = rows.filter(pl.col(NETWORK) > 0, *_whole_ports(rows))
    if "fabric_kind" in rows.columns:
        rows = rows.filter(~pl.col("fabric_kind").is_in(_PARTLY_LISTED).fill_null(False))
    return rows


def by_bandwidth(rows: polars.DataFrame) -> list[polars.DataFrame]:
    """Return the rows in groups of equal bandwidth per accelerator, least first; in one group where it is unknown."""
    if not len(rows) or not has_values(rows, BANDWIDTH):
        return [rows]
    return rows.sort(BANDWIDTH, maintain_order=True).partition_by(BANDWIDTH, maintain_order=True)


def left_out(rows: polars.DataFrame) -> str:
    """Return, in words, which lines and bandwidths ``priced`` leaves out and why; empty if none."""
    import polars as pl

    kept, words = priced(rows), []
    unknown = rows.filter(pl.col(NETWORK).is_null() | (pl.col(NETWORK) <= 0))
    partly = rows.filter(pl.col("fabric_kind").is_in(_PARTLY_LISTED)) if "fabric_kind" in rows.columns else rows.clear()
    reasons = {"have no price": unknown, "are only partly on the list": partly}
    for reason, some in reasons.items():
        lines = [line for line in some["line"].unique(maintain_order=True) if line not in set(kept["line"])]
        if lines:
            words.append(f"Not drawn, for they {reason}: {', '.join(lines)}.")
    if _whole_ports(rows) and len(rows.filter(~_whole_ports(rows)[0])):
        words.append("Points whose bandwidth is no whole number of 400 Gb/s ports are not drawn.")
    return " ".join(words)


def _whole_ports(rows: polars.DataFrame) -> list[polars.Expr]:
    import polars as pl

    if not has_values(rows, BANDWIDTH):
        return []
    ports = pl.col(BANDWIDTH) / PORT_BYTES_PER_S
    return [((ports.round() >= 1) & ((ports - ports.round()).abs() < 1e-6)).fill_null(True)]
