"""Switching: how circuits of a running network are set anew, as the core's controller is told."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Switching:
    """How a running network's circuits are set anew: the core's controller, and the pairs that it serves.

    controller: its registered name. src, dst: all pairs that may send, int64 arrays (pairs,), sorted.
    bandwidth_bytes_per_s: that a pair has with every circuit, over all planes, float64. latency_s: of each pair's path.
    parameters: of the controller, without the engine's links. links: those that it names, by parameter, as indices of
    the fabric's links; none stands for ``link``, one for each pair, in order. server_size: accelerators that are one
    end of a pair. rail_size: accelerators of a server that are each on a rail; a message to another server is of the
    pair that ends where it does and begins at its own server's accelerator on that rail.
    """

    controller: str
    src: np.ndarray
    dst: np.ndarray
    bandwidth_bytes_per_s: np.ndarray
    latency_s: np.ndarray
    parameters: dict[str, Any]
    links: dict[str, np.ndarray] = field(default_factory=dict)
    server_size: int = 1
    rail_size: int = 1

    def ends_of(self, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the pairs that messages between accelerators are of; equal for messages of none."""
        if self.rail_size == 1:
            return src // self.server_size, dst // self.server_size
        size = self.rail_size
        is_inside = src // size == dst // size
        return np.where(is_inside, dst, src // size * size + dst % size), dst
