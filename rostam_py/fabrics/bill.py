"""Bills of materials: what switches and cables of a fabric cost.

The list prices parts of 400 Gb/s. A faster link needs several of them side by side, so that dollars grow with bandwidth
(MODEL 28): ceil(bandwidth / 400 Gb/s) cables a link, and as many switches, in every plane.
Source: HammingMesh, section III-C and appendix E, prices of April 2022; NICs, boards and packaging not counted.
"""

import math
from dataclasses import dataclass

from rostam_py.html import html_table

SWITCH_USD = 14_280.0
SWITCH_PORTS = 64
PORT_BYTES_PER_S = 50e9  # 400 Gb/s, what a port of the priced switches and a priced cable carry
CABLE_USD = {"DAC": 272.0, "AoC": 603.0}


@dataclass(frozen=True, slots=True)
class Part:
    """Parts of one kind and price. usd: of each [US dollars]."""

    name: str
    count: int
    usd: float


def parts_per_port(bytes_per_s: float) -> int:
    """Return how many priced cables, or ports of priced switches, one link of this bandwidth needs: at least one."""
    return max(1, math.ceil(bytes_per_s / PORT_BYTES_PER_S * (1 - 1e-12)))  # 50e9 by way of a division is one part


@dataclass(frozen=True, slots=True)
class BillOfMaterials:
    """Parts of 400 Gb/s of a fabric over all planes: a fast link counts as several cables and switch ports.

    num_cables: medium ("DAC", 5 m copper; "AoC", 20 m active optical) -> cables.
    """

    num_switches: int
    num_cables: dict[str, int]

    @property
    def priced_parts(self) -> tuple[Part, ...]:
        """Parts of one price each [US dollars of April 2022]."""
        cables = (Part(f"{medium} cables", count, CABLE_USD[medium]) for medium, count in self.num_cables.items())
        return Part("switches", self.num_switches, SWITCH_USD), *cables

    @property
    def missing_prices(self) -> tuple[str, ...]:
        """What has no price, and is left out of the total."""
        return ()

    @property
    def caption(self) -> str:
        """What the parts are."""
        return "bill of materials in 400 Gb/s parts"

    @property
    def total_usd(self) -> float:
        """Price of all parts that have one [US dollars]."""
        return sum(part.count * part.usd for part in self.priced_parts)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: parts, prices and their sum."""
        cells = [
            (part.name, f"{part.count:,}", f"{part.usd:,.0f} USD", f"{part.count * part.usd:,.0f} USD")
            for part in self.priced_parts
        ]
        cells.append(("total", "", "", f"{self.total_usd:,.0f} USD"))
        cells += [(text, "", "", "") for text in self.missing_prices]
        return html_table(self.caption, cells, ("part", "count", "each", "price"))


@dataclass(frozen=True, slots=True)
class OwnBill(BillOfMaterials):
    """Parts at the user's own prices. parts: of every price. missing: what has none."""

    parts: tuple[Part, ...]
    missing: tuple[str, ...]

    @property
    def priced_parts(self) -> tuple[Part, ...]:
        """Parts of one price each [US dollars]."""
        return self.parts

    @property
    def missing_prices(self) -> tuple[str, ...]:
        """What has no price, and is left out of the total."""
        return self.missing

    @property
    def caption(self) -> str:
        """What the parts are."""
        return "bill of materials at given prices"
