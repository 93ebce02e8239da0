"""What the packet tier asks of a run: its options for the core, and what it refuses before the run."""

from collections.abc import Iterable
from typing import Any

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.optical import refuse_dynamic
from rostam_py.plan.failures import Failure
from rostam_py.plan.packets import PacketOptions
from rostam_py.simulation.engines import walks_packets
from rostam_py.simulation.events import Reroute


def packet_options(given: Any) -> "_core.PacketOptions":
    """Return the core's options of packets; None stands for the defaults.

    Raises: ConfigError for another object than PacketOptions.
    """
    if given is not None and not isinstance(given, PacketOptions):
        raise ConfigError(f"packets is {given!r}; it must be a rostam.PacketOptions")
    values = (given or PacketOptions()).to_dict()
    latency_s = values.pop("buffer_latency")
    latency_ps = -1 if latency_s is None else round(latency_s * 1e12)
    values["num_vcs"] = values["num_vcs"] or 0
    values["buffer_parts"] = values["buffer_parts"] or "routing"
    return _core.PacketOptions(**values, buffer_latency_ps=latency_ps)


def check_packet_run(fidelity: str, fabric: Any, events: Iterable[Any]) -> None:
    """Refuse what the packet tier cannot do.

    Args: fabric: as ``fabric_for_events`` returns it.
    Raises: ConfigError for circuits that are set anew in the run, and for events that move messages over planes that
        differ.
    """
    if not walks_packets(fidelity):
        return
    if fabric.is_circuit_switched:
        refuse_dynamic(fabric, f"fidelity={fidelity!r}")
    if len(fabric.plane_classes) > 1 and any(isinstance(one, Failure | Reroute) for one in events):
        raise ConfigError(
            f"fidelity={fidelity!r} moves no message that is under way over several planes, of which events strike one;"
            " take fabric.planes=1, or fidelity='flow'"
        )
