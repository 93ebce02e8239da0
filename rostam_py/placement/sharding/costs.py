"""Seconds that the choice of a split weighs: of ops by roofline, of collectives by start-up and bandwidth.

Model: one accelerator in a group of fast links, whatever the machine, so that a plan can move between fabrics: an
A100's data sheet at the traced 32 bits, 19.5 TFLOP/s, 2 TB/s of memory and 300 GB/s of NVLink in each direction. At 16
bits all of it is faster in about the same proportion. A collective starts in 0.1 us, a tenth of a launch (MODEL B7):
more would make small models run whole, which a user who sets tp does not ask for. What splits along space exchange,
halos and statistics, starts in NCCL's 6.6 us on NVLink (LL, its tuning table): they are many and small, and the other
choice is a split along channels, not to run whole. Element-wise ops are part of the
kernels before and behind them (MODEL B7) and, as look-ups and zeros do, cost nothing of their own.
"""

from dataclasses import dataclass

from rostam_py.graph import Op
from rostam_py.graph.vocabulary import TABLE_ROLES

_FLOPS_PER_S = 19.5e12
_MEMORY_BYTES_PER_S = 2e12
_LINK_BYTES_PER_S = 300e9
_START_S = 100e-9
_EXCHANGE_START_S = 6.6e-6
_HELD_BYTES = 18  # read and written per trained scalar by an Adam step in mixed precision (MODEL D15)


@dataclass(frozen=True, slots=True)
class NotionalCosts:
    """Costs over ``degree`` members at ``batch`` samples.

    parts: groups of that size which the levels above make of the whole group. Collectives run over all levels at
    once where they want the same, so that those of an inner level add only the bytes of a larger ring.
    """

    degree: int
    batch: float
    parts: int = 1
    tie_s: float = 1e-9  # of two equal choices the one without this comes first

    def op_s(self, op: Op, share: float, times: int) -> float:
        """Return the seconds of a share of an op, run ``times`` times (forward, and backward for both operands)."""
        if op.is_metadata or op.is_elementwise or op.role in TABLE_ROLES or () in op.linear_in:
            return 0.0
        moved = op.bytes_read.at(self.batch) + op.bytes_written.at(self.batch)
        return times * share * max(op.flops.at(self.batch) / _FLOPS_PER_S, moved / _MEMORY_BYTES_PER_S)

    def collective_s(self, kind: str, num_bytes: float) -> float:
        """Return the seconds of a ring all_reduce or all_gather."""
        start_s = _START_S if self.parts == 1 else self.tie_s
        rounds = 2 if kind == "all_reduce" else 1
        share = (1 - 1 / self.degree) / self.parts  # (t-1)/t less (w-1)/w for t = w x degree
        return start_s + rounds * share * num_bytes / _LINK_BYTES_PER_S

    def inner_s(self, split_kind: str, kind: str, num_bytes: float) -> float:
        """Return the seconds of what an op split so sends while it runs: a collective of this kind, or a "halo".

        Args: num_bytes: of a halo from both neighbours together.
        """
        is_halo = kind == "halo"
        serial_s = num_bytes / _LINK_BYTES_PER_S if is_halo else self.collective_s(kind, num_bytes)
        return serial_s + (_EXCHANGE_START_S if split_kind == "spatial" and self.parts == 1 else 0.0)

    def summing_s(self, num_bytes: float) -> float:
        """Return the seconds of a gradient's sum over the members, which all gradients start together once."""
        return self.collective_s("all_reduce", num_bytes) - self.collective_s("all_reduce", 0.0)

    def holding_s(self, num_elements: float) -> float:
        """Return the seconds of an optimizer step of a trained tensor."""
        return num_elements * _HELD_BYTES / _MEMORY_BYTES_PER_S
