"""Nodes: what Algorithm 1 places, and which parts they read of one another."""

from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.errors import ConfigError
from rostam_py.placement.sip_ml.window import Window

RELATIONS = ("aligned", "all", "exchange", "same_part", "halo")


@dataclass(frozen=True, slots=True)
class Read:
    """One input of a node: an earlier node, and which of its parts every sub-op reads.

    relation: "aligned" (sub-op j of n the parts overlapping [j/n, (j+1)/n)), "all" and "exchange" (all parts),
    "same_part" (part j), "halo" (parts j - 1 to j + 1). num_bytes: of the tensor; it only decides which data a
    sub-op prefers to be close to.
    """

    node: int
    relation: str = "aligned"
    num_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """One op as equal sub-ops.

    duration_s: of one sub-op; 0 for nodes that only pass data on. shard: sub-ops j of all nodes with the same
        shard >= 0 are co-located (a parameter shard's forward and backward). beside: node whose sub-ops this
        node's are co-located with, -1 for none. memory_bytes: that one sub-op takes for the whole iteration.
    """

    duration_s: float
    num_parts: int
    reads: tuple[Read, ...] = ()
    shard: int = -1
    beside: int = -1
    memory_bytes: float = 0.0


def parts_read(relation: str, part: int, num_parts: int, num_source_parts: int) -> range:
    """Return the parts of a source with ``num_source_parts`` that sub-op ``part`` of ``num_parts`` reads."""
    if relation == "same_part":
        return range(part, part + 1)
    if relation == "halo":
        return range(max(0, part - 1), min(num_source_parts, part + 2))
    if relation == "aligned":
        first = part * num_source_parts // num_parts
        return range(first, max(first + 1, -(-(part + 1) * num_source_parts // num_parts)))
    return range(num_source_parts)


def binds(read: Read, num_parts: int, num_source_parts: int, window: Window) -> bool:
    """Tell whether a read asks for devices in range of one another.

    Model: sub-ops that each read all parts of a source can only be in range of all of them if both are few; more of
        them are reached round the group, hop by hop (MODEL D14), and bind no device.
    """
    return read.relation not in ("all", "exchange") or window.fits(num_parts, num_source_parts)


def check_nodes(nodes: Sequence[Node], num_devices: int, degree: int | None) -> None:
    """Raise ConfigError for nodes that make no sense."""
    for key, value in (("num_devices", num_devices), ("degree", degree)):
        if value is not None and value < 1:
            raise ConfigError(f"{key} is {value}; it must be >= 1")
    for index, node in enumerate(nodes):
        if node.num_parts < 1 or not 0 <= node.duration_s < float("inf") or node.memory_bytes < 0:
            raise ConfigError(
                f"node {index} has num_parts {node.num_parts}, duration_s {node.duration_s} and memory_bytes"
                f" {node.memory_bytes}; they must be >= 1, finite and >= 0, and >= 0"
            )
        if node.beside >= 0 and (node.beside >= index or nodes[node.beside].num_parts < node.num_parts):
            raise ConfigError(
                f"node {index} sits beside node {node.beside}, which is no earlier one with as many parts"
            )
        for read in node.reads:
            if not 0 <= read.node < index:
                raise ConfigError(f"node {index} reads node {read.node}; nodes must come in topological order")
            if read.relation not in RELATIONS:
                raise ConfigError(f"node {index} reads {read.relation!r}; it must be one of: {', '.join(RELATIONS)}")
            if read.relation in ("same_part", "halo") and nodes[read.node].num_parts < node.num_parts:
                raise ConfigError(f"node {index} reads its own part of node {read.node}, which has fewer parts")


def unit_bytes(nodes: Sequence[Node]) -> dict[int, list[float]]:
    """Return the bytes of every unit, by part: of a shard under its number, of a node n without one under -1 - n."""
    needs: dict[int, list[float]] = {}
    keys: list[int] = []
    for index, node in enumerate(nodes):
        own = node.shard if node.shard >= 0 else -1 - index
        keys.append(own if node.beside < 0 else keys[node.beside])
        parts = needs.setdefault(keys[index], [])
        parts += [0.0] * (node.num_parts - len(parts))
        for part in range(node.num_parts):
            parts[part] += node.memory_bytes
    return needs
