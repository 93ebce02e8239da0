"""Which network prices a report may hold against each other.

A fabric's bill counts switches and cables of 400 Gb/s, as many per link as its bandwidth takes (MODEL 28), so that
prices of networks of any bandwidth compare, as long as the list has all of their switches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rostam_py.fabrics import FABRICS
from rostam_py.report.sweep.reading import has_values

if TYPE_CHECKING:
    import polars

NETWORK = "network_usd"
BASIS = "switches and cables of 400 Gb/s, ceil(bandwidth / 400 Gb/s) of them per link and plane"


def priced(rows: polars.DataFrame) -> polars.DataFrame:
    """Return the rows that have a network price which says something about their network.

    Model: the price is known and positive; the fabric's switches are all on the list.
    """
    import polars as pl

    if not has_values(rows, NETWORK):
        return rows.clear()
    rows = rows.filter(pl.col(NETWORK) > 0)
    if "fabric_kind" in rows.columns:
        rows = rows.filter(~pl.col("fabric_kind").is_in(_partly_priced(rows)).fill_null(False))
    return rows


def left_out(rows: polars.DataFrame) -> str:
    """Return, in words, which lines ``priced`` leaves out and why; empty if none."""
    import polars as pl

    kept, words = priced(rows), []
    unknown = rows.filter(pl.col(NETWORK).is_null() | (pl.col(NETWORK) <= 0))
    partly = rows.clear()
    if "fabric_kind" in rows.columns:
        partly = rows.filter(pl.col("fabric_kind").is_in(_partly_priced(rows)))
    reasons = {"have no price": unknown, "are only partly on the list": partly}
    for reason, some in reasons.items():
        lines = [line for line in some["line"].unique(maintain_order=True) if line not in set(kept["line"])]
        if lines:
            words.append(f"Not drawn, since they {reason}: {', '.join(lines)}.")
    return " ".join(words)


def _partly_priced(rows: polars.DataFrame) -> list[str]:
    """Return the kinds of fabrics whose bills leave switches out; an unregistered kind counts as whole."""
    kinds = [kind for kind in rows["fabric_kind"].unique() if kind in FABRICS.names()]
    return [kind for kind in kinds if not FABRICS.get(kind).is_fully_priced]
