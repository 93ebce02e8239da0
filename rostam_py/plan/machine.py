"""Machine: a fabric whose accelerators are all of one type, some of them possibly slow, and how they launch work."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rostam_py.checks import is_integer
from rostam_py.costs.accelerators import ACCELERATORS, Accelerator, get_accelerator
from rostam_py.costs.power import check_limit
from rostam_py.errors import ConfigError
from rostam_py.html import html_pairs
from rostam_py.plan.host import DEFAULT_HOST, DEFAULT_SYNC, HOST_SYNCS, HOSTS, HostCosts, check_host, host_costs
from rostam_py.units import check_simulated, format_bandwidth, format_count, format_size, parse_time

# Fields of a machine besides its parts, as machine.KEY of the command line and sweeps takes them.
PHYSICS = ("launch_latency", "min_kernel_time", "comm_compute_fraction")
# Fields about the hosts that launch its kernels: how the training program uses them (software.rules.KEY of the command
# line and sweeps), and how fast they are, taken likewise.
HOST_RULES = ("host", "host_sync", "host_graphs")
HOST_SPEED = ("host_launch", "host_slowdown")
HOST = (*HOST_RULES, *HOST_SPEED)
# Fields that say what it takes to run it, taken likewise; None where that is not known.
UPKEEP = ("watts", "usd", "accelerator_watts")
BY_CHANNELS = "by channels"  # comm_compute_fraction where none is given


@dataclass(frozen=True, kw_only=True, repr=False)
class Machine:
    """A fabric with accelerators on it.

    fabric: the network that connects them; it has ``num_accelerators``, ``healthy_accelerators`` and ``name``.
    accelerator: an Accelerator, or the name of a known one.
    slow: accelerator id -> speed factor in (0, 1]; 0.5 computes at half speed (any factor > 0 is legal).
    launch_latency: from the end of what a kernel or collective waits for to its start (MODEL B7) [s or text].
    min_kernel_time: least duration of a kernel or collective [s or text].
    comm_compute_fraction: share of compute that running collectives take away (MODEL B8), in [0, 1); None: as many
        multiprocessors as each has channels, on links that have a class, and nothing on ideal ones.
    host: how training code runs (rostam list hosts): graphs, the default, never lets a device wait for its host.
    host_launch: of each kernel, collective and message, in place of the host's own [s or text].
    host_sync: where hosts wait for their devices: none, optimizer, experts or messages.
    host_graphs: parts of each layer that replay CUDA graphs where host=transformer_engine: attention, router.
    host_slowdown: how many times as long its hosts take as those that were measured, launches that are given apart.
    watts: maximum power of all of it, accelerators by their data sheets [W]. usd: price without its network
        [US dollars]; None: not known.
    accelerator_watts: limit of each accelerator's power, which is set by software [W]; None: its data sheet's.
    """

    fabric: Any
    accelerator: Accelerator | str = "a100_80gb"
    slow: dict[int, float] = field(default_factory=dict)
    launch_latency: str | float = field(default="1 us", metadata={"unit": "time"})
    min_kernel_time: str | float = field(default="1 us", metadata={"unit": "time"})
    comm_compute_fraction: float | None = None
    host: str = field(default=DEFAULT_HOST, metadata={"choices": HOSTS})
    host_launch: str | float | None = field(default=None, metadata={"unit": "time"})
    host_sync: str = field(default=DEFAULT_SYNC, metadata={"choices": HOST_SYNCS})
    host_graphs: list[str] | None = None
    host_slowdown: float = 1.0
    watts: float | None = None
    usd: float | None = None
    accelerator_watts: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.accelerator, str):
            object.__setattr__(self, "accelerator", get_accelerator(self.accelerator))
        for accelerator in self.slow:
            if not is_integer(accelerator) or not 0 <= accelerator < self.num_accelerators:
                raise ConfigError(
                    f"machine.slow names accelerator {accelerator!r}; the fabric has 0 to {self.num_accelerators - 1}"
                )
        object.__setattr__(self, "slow", {int(k): float(v) for k, v in dict(self.slow).items()})
        for accelerator, factor in self.slow.items():
            if not 0 < factor < float("inf"):
                raise ConfigError(f"machine.slow[{accelerator}] is {factor}; a speed factor must be > 0 and finite")
        check_physics({key: getattr(self, key) for key in (*PHYSICS, *HOST, *UPKEEP)})
        if self.accelerator_watts is not None:
            object.__setattr__(self, "accelerator", replace(self.device, watts=float(self.accelerator_watts)))
            check_limit(self.device)

    @property
    def device(self) -> Accelerator:
        """The accelerator's data sheet."""
        if isinstance(self.accelerator, str):
            return get_accelerator(self.accelerator)
        return self.accelerator

    @property
    def most_watts(self) -> float | None:
        """Maximum power of all of it under its accelerators' limits [W], None where unknown.

        Model: less, or more, by what limits differ from data sheets, but no less than the accelerators may draw.
        """
        sheet = ACCELERATORS.get(self.device.name)
        if self.watts is None or self.accelerator_watts is None or sheet is None or not sheet.watts:
            return self.watts
        limited = self.num_accelerators * self.accelerator_watts
        return max(self.watts + limited - self.num_accelerators * sheet.watts, min(self.watts, limited))

    @property
    def prices(self) -> dict[str, str]:
        """The known prices of the network and of the rest, in words; nothing for ideal machines."""
        found = {}
        if (usd := self.fabric.network_usd) is not None:
            is_whole = self.fabric.config.is_fully_priced
            left_out = "" if is_whole else "; switches inside servers are not on the price list"
            found["network price"] = f"{usd:,.0f} USD of switches and cables{left_out}"
        elif missing := self.fabric.missing_prices:
            found["network price"] = f"unknown: {'; '.join(missing)}"
        if self.usd is not None:
            found["machine price"] = f"{self.usd:,.0f} USD without the network"
        return found

    @property
    def num_accelerators(self) -> int:
        """Accelerators of the fabric, failed ones included."""
        return int(self.fabric.num_accelerators)

    @property
    def healthy_accelerators(self) -> list[int]:
        """Ids of the accelerators that have not failed, ascending."""
        return sorted(int(a) for a in self.fabric.healthy_accelerators)

    @property
    def launch_latency_s(self) -> float:
        """``launch_latency`` [s]."""
        return parse_time(self.launch_latency, "machine.launch_latency")

    @property
    def min_kernel_s(self) -> float:
        """``min_kernel_time`` [s]."""
        return parse_time(self.min_kernel_time, "machine.min_kernel_time")

    @property
    def host_launch_s(self) -> float:
        """Launch cost of a kernel, collective or message on its device's host [s]; 0 where hosts never limit."""
        return self.host_costs.launch_s

    @property
    def host_costs(self) -> HostCosts:
        """Costs of kernels on its devices' hosts."""
        graphs = self.host_graphs or ()
        return host_costs(self.host, self.host_launch, self.device.host_slowdown, graphs, self.host_slowdown)

    @property
    def shared_multiprocessors(self) -> int:
        """Multiprocessors of an accelerator that kernels share with running collectives; 0 where these hold none."""
        by_channels = self.comm_compute_fraction is None and not self.fabric.config.link_classes.are_ideal
        return self.device.multiprocessors if by_channels else 0

    @property
    def physics(self) -> dict[str, float | str]:
        """What decides how work starts, times in seconds, by key."""
        share = self.comm_compute_fraction
        values = (self.launch_latency_s, self.min_kernel_s, BY_CHANNELS if share is None else float(share))
        found: dict[str, float | str] = dict(zip(PHYSICS, values, strict=True))
        if self.host_launch_s:
            found |= {"host_launch": self.host_launch_s, "host_sync": self.host_sync, "host": self.host}
        if self.host_graphs:
            found["host_graphs"] = ", ".join(self.host_graphs)
        if self.host_launch_s and self.host_slowdown != 1:
            found["host_slowdown"] = self.host_slowdown
        return found

    def with_failures(self, **parts: Any) -> "Machine":
        """Return this machine with failed parts. Args: as ``fabric.with_failures`` takes them."""
        return replace(self, fabric=self.fabric.with_failures(**parts))

    def with_slow_accelerators(self, factors: dict[int, float]) -> "Machine":
        """Return this machine with other speed factors for the named accelerators."""
        return replace(self, slow=self.slow | dict(factors))

    def __repr__(self) -> str:
        return f"Machine({self.device.name} on {self.fabric.describe()})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the fabric in a line and the accelerator's data sheet."""
        device, rate = self.device, format_bandwidth(self.fabric.injection_bandwidth_bytes_per_s)
        peaks = ", ".join(f"{kind} {format_count(peak)}FLOP/s" for kind, peak in device.peak_flops_per_s.items())
        pairs = {
            "accelerators": f"{self.num_accelerators:,} x {device.name}, {rate} each",
            "memory": f"{format_size(device.memory_bytes)} at {format_size(device.memory_bandwidth_bytes_per_s)}/s",
            "peak": peaks,
            "fabric": self.fabric.describe(),
            "slow": f"{len(self.slow):,} of them" if self.slow else None,
        }
        return html_pairs("machine", pairs)


def check_physics(given: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings of a machine's launches that are no times or no share, of its power or price.

    Args: given: some of PHYSICS, HOST and UPKEEP, by name.
    """
    limit = given.get("accelerator_watts")
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if limit is not None and not (is_number and 0 < limit < float("inf")):
        raise ConfigError(
            f"machine.accelerator_watts is {limit!r}; it must be a number > 0 [W], or null for the data sheet's limit"
        )
    for key in UPKEEP:
        value = given.get(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value < float("inf")):
            raise ConfigError(f"machine.{key} is {value!r}; it must be a number >= 0, or null where it is not known")
    check_host(given)
    for key in ("launch_latency", "min_kernel_time"):
        if key in given:
            check_simulated(parse_time(given[key], f"machine.{key}"), f"machine.{key}")
    share = given.get("comm_compute_fraction")
    if share is None:
        return
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ConfigError(f"machine.comm_compute_fraction is {share!r}; it must be in [0, 1), or null: by channels")
