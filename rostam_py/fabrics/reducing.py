"""Parameters of fabrics whose switches may reduce: shared by the schemas of those that have such switches."""

from dataclasses import dataclass, field, fields
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import FabricConfig, check_integer
from rostam_py.fabrics.switch_reduction import FULL_SPEEDUP, SwitchReduction, is_share
from rostam_py.units import parse_size, parse_time

_PREFIX = "reduction_"


@dataclass(kw_only=True, slots=True)
class ReducingFabricConfig(FabricConfig):
    """What fabrics have whose switches may add up and copy what comes through them.

    Args:
        in_network_reduction: switches reduce data, for the algorithms pull, push and multicast.
        reduction_table: bytes of a reduction's tables over all planes ["1 MiB"]; None: enough for the round trip.
        reduction_speedup: rate inside a switch over that of its ports, > 0; operands and results share the output
            side, so that 2 is full rate and f below it f / 2 of that.
        reduction_flag: latency of the flag behind a step of any collective ["0 ns"].
        reduction_memory: latency of an access to an accelerator's memory ["0 ns"].
        reduction_flit: flit of every packet of 128 B of payload, which has a header flit ["16 B"]; 0: links carry
            payload at their rate. It holds for all collectives and messages of the fabric.
        reduction_control_flits: request and acknowledgement flits of a packet on each direction, >= 0.
        reduction_injection: share of the bandwidth that accelerators inject at most, above 0 to 1.
        reduction_wave: bytes of a wave of the buffer ["64 KiB"]; None: the whole buffer.
        reduction_waves: waves outstanding at most, >= 1.
    Source: Klenk et al., An In-Network Architecture for Accelerating Shared-Memory Multiprocessor Collectives (ISCA
        2020). What it states no number for is 0 or enough here, as links of this simulator are ideal unless said.
    """

    in_network_reduction: bool = False
    reduction_table: Any = field(default=None, metadata={"unit": "size"})
    reduction_speedup: float = FULL_SPEEDUP
    reduction_flag: Any = field(default="0 ns", metadata={"unit": "time"})
    reduction_memory: Any = field(default="0 ns", metadata={"unit": "time"})
    reduction_flit: Any = field(default="0 B", metadata={"unit": "size"})
    reduction_control_flits: int = 0
    reduction_injection: float = 1.0
    reduction_wave: Any = field(default=None, metadata={"unit": "size"})
    reduction_waves: int = 1

    def __post_init__(self) -> None:
        FabricConfig.__post_init__(self)
        self.reduction_control_flits = check_integer("fabric.reduction_control_flits", self.reduction_control_flits, 0)
        self.reduction_waves = check_integer("fabric.reduction_waves", self.reduction_waves, 1)
        speedup = self.reduction_speedup
        if isinstance(speedup, bool) or not isinstance(speedup, int | float) or not 0 < speedup < float("inf"):
            raise ConfigError(f"fabric.reduction_speedup is {speedup!r}; it must be a number > 0")
        if not is_share(self.reduction_injection):
            raise ConfigError(
                f"fabric.reduction_injection is {self.reduction_injection!r}; it must be a share above 0 and at most 1"
            )
        for key in ("reduction_table", "reduction_wave"):
            value = getattr(self, key)
            if value is not None and parse_size(value, f"fabric.{key}") < 1:
                raise ConfigError(f"fabric.{key} is {value!r}; it must be at least 1 B")
        parse_size(self.reduction_flit, "fabric.reduction_flit")

    @property
    def reduces_in_network(self) -> bool:
        """As given."""
        return self.in_network_reduction

    @property
    def switch_reduction(self) -> SwitchReduction:
        """As given, in SI units."""
        table, wave = (
            None if value is None else parse_size(value, "fabric.reduction_table")
            for value in (self.reduction_table, self.reduction_wave)
        )
        return SwitchReduction(
            table_bytes=table, speedup=float(self.reduction_speedup),
            flag_s=parse_time(self.reduction_flag, "fabric.reduction_flag"),
            memory_s=parse_time(self.reduction_memory, "fabric.reduction_memory"),
            flit_bytes=parse_size(self.reduction_flit, "fabric.reduction_flit"),
            control_flits=self.reduction_control_flits, injection=float(self.reduction_injection), wave_bytes=wave,
            waves=self.reduction_waves,
        )  # fmt: skip

    def unread_keys(self) -> tuple[str, ...]:
        """Return notes of reduction parameters that nothing reads, since no switches reduce."""
        if self.reduces_in_network or self.reduces_in_servers:
            return ()
        return tuple(
            f"fabric.{entry.name} is {getattr(self, entry.name)!r}, but fabric.in_network_reduction is false"
            for entry in fields(self)
            if entry.name.startswith(_PREFIX) and getattr(self, entry.name) != entry.default
        )
