"""What libraries reach that send experts' rows once to each server and rank: HybridEP's and DeepEP's own kernels.

Example:
    DISPATCHERS["hybridep"].multiprocessors                     # 16
    row_overhead(fabric.config.link_classes, "hybridep inside") # bytes that links are busy for, for each of a row

Model: such an exchange is an all-to-all whose messages go at a share of their links' data sheet; dispatch and combine
    have one share, since a layer runs as many of one as of the other. Starts lie in the share: all were measured at one
    size, 4,096 tokens of 7,168. Places: inside one server (or NVLink domain); relay, inside servers beside what crosses
    between them; between servers.
Source: row_exchanges.json, fitted by ``python -m calibration.row_exchanges`` on the libraries' published tables
    (calibration/measured/row_exchanges.csv); docs/collectives.md has what they miss.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from rostam_py.fabrics.link_classes import LINK_CLASSES, LinkClasses

CONSTANTS = Path(__file__).with_name("row_exchanges.json")
HYBRIDEP, DEEPEP = "hybridep", "deepep"
INSIDE, RELAY, BETWEEN = "inside", "relay", "between"
# Links that none of the tables measured go as these; NVLink 2 and 3 have no kernels of HybridEP.
_AS = {"nvlink2": "nvlink4", "nvlink3": "nvlink4", "nvlink4_xla": "nvlink4", "nvlink5_xla": "nvlink5"}
_NETWORK = "infiniband"


@dataclass(frozen=True)
class Dispatcher:
    """A library's exchanges. multiprocessors: that they hold. shares: place -> link class -> of the data sheet's rate.

    sources: "place link class" -> rows of the table. held_out: what the shares miss on rows that were not fitted.
    """

    name: str
    multiprocessors: int
    shares: dict[str, dict[str, float]]
    sources: dict[str, str]
    held_out: tuple[dict[str, float | str], ...] = ()

    def share(self, place: str, link: str) -> float:
        """Return the share of the data sheet's rate that its rows reach on a class of links."""
        if place == BETWEEN or link == _NETWORK:  # as between servers, where a network joins a server's ranks
            return self.shares[BETWEEN][_NETWORK]
        return self.shares[place][_AS.get(link, link)]


def read_dispatchers(path: Path = CONSTANTS) -> dict[str, Dispatcher]:
    """Return the dispatchers of a file by their names."""
    stated = json.loads(path.read_text())
    return {name: Dispatcher(name, **{**one, "held_out": tuple(one["held_out"])}) for name, one in stated.items()}


DISPATCHERS = read_dispatchers()


def row_protocol(dispatcher: str, place: str) -> str:
    """Return the protocol of a schedule (ScheduleKey) whose messages are rows that go once to each rank."""
    return f"{dispatcher} {place}"


def row_overhead(classes: LinkClasses, protocol: str) -> float:
    """Return the bytes that links are busy for, for each byte of a message of rows; 1 on ideal links.

    Model: less than 1 where the library's kernels reach more than NCCL's rings, by which links are scaled.
    """
    name, place = protocol.split()
    link = classes.between if place == BETWEEN else classes.inside
    if link.is_ideal:
        return 1.0
    share: float = LINK_CLASSES.get(link.name).share
    return share / DISPATCHERS[name].share(place, link.name)
