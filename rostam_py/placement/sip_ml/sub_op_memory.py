"""What devices of a sip_ml group hold besides trained weights: frozen weights, buffers, and inputs kept for backward.

Model: frozen weights, and buffers that act as one, lie in shards as trained ones do. Of another buffer, and of an
input that backward reads, every sub-op that reads it has its slice, or all of it if its op does not split it; a
device holds each region once.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from rostam_py.placement.sip_ml.algorithm1 import SubOpPlacement
from rostam_py.placement.sip_ml.residents import SubOpResident
from rostam_py.placement.sip_ml.sub_ops import SubOpGraph


@dataclass(slots=True)
class Untrained:
    """Bytes of one device that need no update. placed: what Algorithm 1 took for its buffers and inputs, at least."""

    frozen: int = 0
    buffers: float = 0.0
    inputs: float = 0.0
    placed: float = 0.0


def untrained_memory(sub_ops: SubOpGraph, placed: SubOpPlacement, num_devices: int) -> list[Untrained]:
    """Return the frozen weights, buffers and kept inputs of every device; of a tensor each region once."""
    held = [Untrained() for _ in range(num_devices)]
    for size, home in sub_ops.frozen.values():
        for d in placed.devices[home]:
            held[d].frozen += size
    regions: list[dict[SubOpResident, set[tuple[Fraction, Fraction]]]] = [{} for _ in held]
    for node, devices in zip(sub_ops.nodes, placed.devices, strict=True):
        for part, d in enumerate(devices):
            held[d].placed += node.resident_bytes
            for r in node.residents:
                n, j = (node.num_parts, part) if r.is_sliced else (1, 0)
                regions[d].setdefault(replace(r, is_sliced=False), set()).add((Fraction(j, n), Fraction(j + 1, n)))
    for device, found in zip(held, regions, strict=True):
        for r, parts in found.items():
            covered = r.num_bytes * float(_covered(parts))
            if r.is_input:
                device.inputs += covered
            else:
                device.buffers += covered
    return held


def _covered(parts: set[tuple[Fraction, Fraction]]) -> Fraction:
    """Return the length of a union of intervals."""
    total, end = Fraction(0), Fraction(0)
    for low, high in sorted(parts):
        total += max(Fraction(0), high - max(low, end))
        end = max(end, high)
    return total
