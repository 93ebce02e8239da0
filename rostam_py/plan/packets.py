"""PacketOptions: how the packet tier cuts messages, and what its switches are like.

Example:
    run_flows(fabric, ..., fidelity="packet", packets=PacketOptions(buffer_bytes="1 MiB", num_vcs=3))
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.units import check_simulated, parse_size, parse_time

MAX_SPEEDUP = 64  # as the core has it
SPARE_VCS = ("output", "destination", "idle")
BUFFER_PARTS = ("equal", "shared")
_SIZES = ("packet_bytes", "flit_bytes", "buffer_bytes")


@dataclass(kw_only=True, slots=True)
class PacketOptions:
    """Sizes and latencies of packets and switches.

    Model: MODEL I25a; csrc/packet/packet_network.h.
    Args:
        packet_bytes: packet size; the last packet of a message may be smaller.
        flit_bytes: of a packet that a switch waits for before it passes the packet on (cut-through): 0 for none,
            packet_bytes for all of it (store and forward).
        buffer_bytes: input buffer of every port, for all virtual channels of its link.
        num_vcs: virtual channels of a link: null for as many as the routing takes on the fabric, or more, or 1 for all.
        crossbar_speedup: outputs that the buffer of one port may feed at once, each at its link's rate.
        buffer_latency: from the input of a switch, or of an accelerator that forwards, to its output; null takes the
            fabric's switch latency (40 ns).
        spare_vcs: of more virtual channels than the routing takes: each set of them is for packets of some outputs of
            the next switch ("output") or of some destinations ("destination"), so that a blocked flow fills its part
            of the buffer only; or none takes them ("idle").
        buffer_parts: the virtual channels that the routing takes have equal parts of the buffer ("equal"), or a packet
            each and share the rest ("shared"); null: shared under turns_adaptive, else equal. Spare ones have as much.
        skip: replay messages that meet on the same links at the same relative times as messages before, instead of
            walking their packets; off by default. csrc/packet/episodes.h says when that is exact.
    Raises: ConfigError naming key, value and the allowed values; fabric and routing are checked as
        a simulation starts.
    Source: Hoefler et al., HammingMesh (SC 2022), appendix F; its routing (section IV-C) has three virtual channels.
        Shared buffers: Tamir and Frazier, IEEE Transactions on Computers 41(6), 1992. Spare channels: own.
    """

    packet_bytes: Any = field(default="8192 B", metadata={"unit": "size"})
    flit_bytes: Any = field(default="256 B", metadata={"unit": "size"})
    buffer_bytes: Any = field(default="32 MB", metadata={"unit": "size"})
    num_vcs: int | None = None
    crossbar_speedup: int = 2
    buffer_latency: Any = field(default=None, metadata={"unit": "time"})
    spare_vcs: str = field(default="output", metadata={"choices": SPARE_VCS})
    buffer_parts: str | None = field(default=None, metadata={"choices": BUFFER_PARTS})
    skip: bool = False

    def __post_init__(self) -> None:
        values = self.to_dict()
        if values["packet_bytes"] < 1:
            raise ConfigError(f"packets.packet_bytes is {self.packet_bytes!r}; it must be at least a byte")
        if values["buffer_bytes"] < values["packet_bytes"]:
            raise ConfigError(
                f"packets.buffer_bytes is {self.buffer_bytes!r}; it must hold a packet of packets.packet_bytes ="
                f" {self.packet_bytes!r} for each virtual channel"
            )
        _check_count("num_vcs", self.num_vcs, 1024, or_null=True)
        _check_count("crossbar_speedup", self.crossbar_speedup, MAX_SPEEDUP)
        if self.spare_vcs not in SPARE_VCS:
            raise ConfigError(f"packets.spare_vcs is {self.spare_vcs!r}; allowed: {', '.join(SPARE_VCS)}")
        if self.buffer_parts is not None and self.buffer_parts not in BUFFER_PARTS:
            allowed = ", ".join(BUFFER_PARTS)
            raise ConfigError(f"packets.buffer_parts is {self.buffer_parts!r}; allowed: {allowed}, or null")
        if not isinstance(self.skip, bool):
            raise ConfigError(f"packets.skip is {self.skip!r}; it must be true or false")

    @property
    def is_none(self) -> bool:
        """Whether they are the defaults."""
        return self.to_dict() == PacketOptions().to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Return sizes in bytes and the latency in seconds, by name."""
        values = asdict(self)
        for key in _SIZES:
            values[key] = parse_size(values[key], f"packets.{key}")
        latency, key = self.buffer_latency, "packets.buffer_latency"
        values["buffer_latency"] = None if latency is None else check_simulated(parse_time(latency, key), key)
        return values


def _check_count(key: str, value: Any, most: int, *, or_null: bool = False) -> None:
    if or_null and value is None:
        return
    if not is_integer(value) or not 1 <= value <= most:
        raise ConfigError(
            f"packets.{key} is {value!r}; it must be an integer from 1 to {most}{', or null' if or_null else ''}"
        )
