"""Bills of materials: what switches and cables of a fabric cost.

Source: HammingMesh, section III-C and appendix E, prices of April 2022; NICs, boards and packaging not counted.
"""

from dataclasses import dataclass

from rostam_py.html import html_table

SWITCH_USD = 14_280.0
SWITCH_PORTS = 64
PORT_BYTES_PER_S = 50e9  # 400 Gb/s, what the priced switches and cables carry
CABLE_USD = {"DAC": 272.0, "AoC": 603.0}


@dataclass(frozen=True, slots=True)
class BillOfMaterials:
    """Parts of a fabric over all planes.

    num_cables: medium ("DAC", 5 m copper; "AoC", 20 m active optical) -> cables.
    """

    num_switches: int
    num_cables: dict[str, int]

    @property
    def total_usd(self) -> float:
        """Price of all parts [US dollars of April 2022]."""
        cables = sum(CABLE_USD[medium] * count for medium, count in self.num_cables.items())
        return self.num_switches * SWITCH_USD + cables

    def _repr_html_(self) -> str:
        """Return what a notebook shows: parts, prices and their sum."""
        rows = [("switches", self.num_switches, SWITCH_USD)]
        rows += [(f"{medium} cables", count, CABLE_USD[medium]) for medium, count in self.num_cables.items()]
        cells = [(name, f"{n:,}", f"{usd:,.0f} USD", f"{n * usd:,.0f} USD") for name, n, usd in rows]
        cells.append(("total", "", "", f"{self.total_usd:,.0f} USD"))
        return html_table("bill of materials", cells, ("part", "count", "each", "price"))
