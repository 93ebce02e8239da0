"""Shares of links that exchanges of experts' rows reach (rostam_py.collectives.row_exchanges), from published tables.

``python -m calibration.row_exchanges`` writes them, and prints what each row misses.

Model: what a table prints counts a rank's own rows: p-1 of p parts of what its ranks receive cross NVLink, m-1 of m of
    what it sends to m servers the network. A share is the geometric mean of fitted rows' rates over their data sheet's,
    of dispatch and combine together. DeepEP on NVLink 5 was measured with 16 and 24 multiprocessors; the mean stands
    for the 20 that it takes by default.
"""

import json
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.published import read
from rostam_py.collectives.row_exchanges import BETWEEN, CONSTANTS, DEEPEP, HYBRIDEP
from rostam_py.placement.experts.hops import num_parts_hit

TABLE = "row_exchanges.csv"
PER_TOKEN = 8  # experts, of all rows
# Multiprocessors that a library's exchange holds. HybridEP: Megatron-Core's moe_hybridep_num_sms, set by
# Megatron-Bridge's recipes (one sets 32). DeepEP: Buffer.num_sms in deep_ep/buffer.py, Megatron-Core's
# moe_deepep_num_sms (DeepSeek-V3, arXiv 2412.19437, section 3.2.2).
MULTIPROCESSORS = {HYBRIDEP: 16, DEEPEP: 20}
# What no table has goes at another's share: (library, place, link class) -> (library, place, link class). HybridEP
# inside a server of Hopper: what it reaches of NVLink 5. Beside a network on Blackwell: what it reaches on Hopper (282
# GB/s and more of rows, 247 on the links, on two servers of B300: deepseek-ai/DeepEP, issue 590, which NICs bound);
# DeepEP's, which reaches less of NVLink 5 in one domain than of NVLink 4, what it does there.
ASSUMED = {
    (HYBRIDEP, "inside", "nvlink4"): (HYBRIDEP, "inside", "nvlink5"),
    (HYBRIDEP, "relay", "nvlink5"): (HYBRIDEP, "relay", "nvlink4"),
    (DEEPEP, "relay", "nvlink5"): (DEEPEP, "inside", "nvlink5"),
}


@dataclass(frozen=True)
class Row:
    """One printed rate. share: of the data sheet's that crosses the links. is_fitted: else it judges."""

    dispatcher: str
    place: str
    link: str
    what: str
    share: float
    is_fitted: bool

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is a rate of."""
        return self.dispatcher, self.place, self.link


def rows() -> list[Row]:
    """Return the rows of the table."""
    return [_row(one) for one in read(TABLE)]


def _row(one: dict[str, str]) -> Row:
    p, per_server, experts = (int(one[key]) for key in ("ranks", "ranks_per_server", "experts"))
    servers = p // per_server
    reached = min(int(one["groups"]) or servers, servers)
    drawn = reached * experts // servers
    on_servers = num_parts_hit(reached, experts // servers, PER_TOKEN, drawn)
    on_ranks = num_parts_hit(reached * per_server, experts // p, PER_TOKEN, drawn)
    rate = float(one["gb_per_s"])
    if one["place"] == BETWEEN:
        crossing = rate * (servers - 1) / servers
    else:  # of a rank's rows those of other ranks of its server; a relay's are its share of all that its server gets
        received = rate * on_ranks / on_servers if one["counts"] == "network" else rate
        crossing = received * (per_server - 1) / per_server
    what = f"{one['device']}, {p} ranks, {one['sms']} multiprocessors, {one['precision']} {one['direction']}"
    return Row(
        one["dispatcher"], one["place"], one["link"], what, crossing / float(one["sheet_gb_per_s"]), one["use"] == "fit"
    )


def fit() -> dict[str, dict[str, Any]]:
    """Return what the file of constants states."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows():
        found.setdefault(row.key, []).append(row)
    shares = {key: _mean([row.share for row in of_key if row.is_fitted]) for key, of_key in found.items()}
    stated: dict[str, dict[str, Any]] = {
        name: {"multiprocessors": count, "shares": {}, "sources": {}, "held_out": []}
        for name, count in MULTIPROCESSORS.items()
    }
    for key, (name, place, link) in [*((key, key) for key in shares), *((of, key) for key, of in ASSUMED.items())]:
        one = stated[name]
        one["shares"].setdefault(place, {})[link] = shares[key]
        if key == (name, place, link):
            used = "; ".join(row.what for row in found[key] if row.is_fitted)
            one["sources"][f"{place} {link}"] = f"{TABLE}: {used}"
        else:
            one["sources"][f"{place} {link}"] = f"not measured: as {' '.join(key)}"
    for key, of_key in found.items():
        stated[key[0]]["held_out"] += [
            {"place": row.place, "link": row.link, "row": row.what, "error": round(row.share / shares[key] - 1, 4)}
            for row in of_key if not row.is_fitted
        ]  # fmt: skip
    return stated


def _mean(shares: list[float]) -> float:
    return float(f"{math.exp(statistics.fmean(map(math.log, shares))):.4g}")


def write(path: Path = CONSTANTS) -> str:
    """Write the constants and return what was written."""
    path.write_text(json.dumps(fit(), indent=2) + "\n")
    return f"{path}: {path.stat().st_size / 1000:.0f} kB"


if __name__ == "__main__":
    sys.stdout.write(write() + "\n")
    for library, stated in fit().items():
        for miss in stated["held_out"]:
            sys.stdout.write(f"{library} {miss['place']} {miss['link']} {miss['row']}: time {miss['error']:+.1%}\n")
