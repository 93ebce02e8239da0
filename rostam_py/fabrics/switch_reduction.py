"""What switches that reduce are like: tables, speed-up, flits, and what their barriers and accesses cost.

Example:
    how = SwitchReduction(table_bytes=2**20, memory_s=1e-6)
    how.rate_share(150e9, hops=1, latency_s=1e-6, is_pull=True)    # 1.0: the table holds the round trip
"""

import math
from typing import NamedTuple

# Klenk et al., section on packets: flits of 16 B, payload up to 128 B behind one header flit.
PAYLOAD_BYTES = 128
# Operands and results share the output side of a switch, so that full rate needs twice the rate inside.
FULL_SPEEDUP = 2.0


class SwitchReduction(NamedTuple):
    """Switches that add up and copy.

    table_bytes: of the reduction tables of all planes, None where they hold a round trip. speedup: rate inside a switch
    over that of its ports. flag_s: what the flag behind a step takes (s). memory_s: of an access to an accelerator's
    memory (g). flit_bytes: of a flit, 0 where links carry payload at their rate. control_flits: requests and
    acknowledgements of a packet, for each direction. injection: share of B that accelerators inject at most.
    wave_bytes: of a wave, None for the whole buffer. waves: outstanding at most.
    """

    table_bytes: float | None = None
    speedup: float = FULL_SPEEDUP
    flag_s: float = 0.0
    memory_s: float = 0.0
    flit_bytes: int = 0
    control_flits: int = 0
    injection: float = 1.0
    wave_bytes: int | None = None
    waves: int = 1

    @property
    def wire_overhead(self) -> float:
        """Bytes on links for each byte of payload: a header flit, and control flits, for each packet of 128 B."""
        return 1 + (1 + self.control_flits) * self.flit_bytes / PAYLOAD_BYTES

    def round_trip_s(self, hops: int, latency_s: float, *, is_pull: bool) -> float:
        """Return how long an entry of a table is taken [s].

        Model: 2 d hops, d from the first switch to the farthest accelerator, of equal parts of a path's latency; of a
            pull an access to memory as well.
        Args: hops: links of the longest path, d + 1. latency_s: of that path.
        Source: Klenk et al. (ISCA 2020): GPU, switch, farthest GPU and back; skew is left out.
        """
        return 2 * (hops - 1) * latency_s / hops + (self.memory_s if is_pull else 0.0)

    def rate_share(
        self, bytes_per_s: float, *, hops: int, latency_s: float, is_pull: bool, factor: float = 1.0
    ) -> float:
        """Return the share of their links' rate at which data are reduced.

        Model: a buffer of S takes m S / B of its links at full rate, with m = 1 + 1/p of a pull's all_reduce, else 1.
            The least of the injection, f / 2, and m times S / (B time) by tables, table / (B x round trip), and by
            waves, k wave / (m wave + B x round trip): k are under way, and the next starts when the oldest is summed.
        Args:
            bytes_per_s: B.
            hops, latency_s, is_pull: as ``round_trip_s``.
            factor: m.
        Source: Klenk et al. (ISCA 2020); tests/collectives/test_switch_tables.py walks packets through a table.
        """
        in_flight = bytes_per_s * self.round_trip_s(hops, latency_s, is_pull=is_pull)
        shares = [1.0, self.injection, self.speedup / FULL_SPEEDUP]
        if self.table_bytes is not None and in_flight > 0:
            shares.append(factor * self.table_bytes / in_flight)
        if self.wave_bytes is not None:
            shares.append(factor * self.waves * self.wave_bytes / (factor * self.wave_bytes + in_flight))
        return min(shares)

    @property
    def needs_round_trip(self) -> bool:
        """Whether the rate depends on a round trip."""
        return self.table_bytes is not None or self.wave_bytes is not None


def is_share(value: object) -> bool:
    """Return whether a value is a number above 0 and at most 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1 and math.isfinite(value)
