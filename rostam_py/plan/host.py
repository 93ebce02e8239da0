"""How long a device's host takes to launch a kernel, and where it waits for the device (MODEL B7).

Example:
    HOSTS["eager"].launch          # "10 us", of each kernel, collective and message
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.units import check_simulated, parse_time


@dataclass(frozen=True, slots=True)
class HostKind:
    """A way to run training code. launch: of each kernel, collective and message. source: of that figure."""

    what: str
    launch: str
    source: str


HOSTS = {
    "graphs": HostKind(
        "replayed CUDA graphs, or a host that is always ahead: it never limits",
        "0 us",
        "own: one launch replays a graph of thousands of kernels",
    ),
    "compiled": HostKind(
        "compiled code, whose wrappers launch kernels one by one",
        "8 us",
        "meta-pytorch/tritonbench, pull request 1017 (April 2026): 6.8 us for a kernel of torch.compile's without"
        " arguments, 9.1 us with 19, 3.0 to 3.3 us of it cuLaunchKernel; host of a GB200",
    ),
    "eager": HostKind(
        "eager PyTorch: Python, dispatch and autograd for every kernel",
        "10 us",
        "pytorch/pytorch, issue 41383 (2020): 6.8 us for an op with autograd before any launch; with cuLaunchKernel's"
        " 3.0 to 3.3 us of tritonbench (above). Transformer Engine's products of under 3 us at peak take 16 to 18 us a"
        " call (gemm_b200_simumax.csv, wall clock, rows with a side of 160)",
    ),
}
# Where hosts wait for what they have launched.
HOST_SYNCS = {
    "none": "nowhere",
    "optimizer": "in front of the optimizer's step, to read the gradients' norm (Megatron-Core's clip_grads.py)",
    "experts": "there and before rows go to their experts, to read how many each gets (dropless routing, in all of"
    " Megatron-Core's token_dispatcher.py)",
    "messages": "in front of the optimizer's step and before computing on what another stage sent (Megatron-Core's"
    " batch_p2p_sync)",
}
DEFAULT_SYNC = "optimizer"


def host_launch_s(host: str, launch: str | float | None) -> float:
    """Return what a kernel costs its host [s]. Args: launch: in place of the host's own [s or text]."""
    return parse_time(HOSTS[host].launch if launch is None else launch, "machine.host_launch")


def unused_sync(host_sync: str, launch_s: float, *, has_routed_rows: bool) -> str:
    """Return in words why a host waits less than ``host_sync`` says, "" where it does not.

    Args:
        launch_s: what a kernel costs it.
        has_routed_rows: whether the job sends rows to experts.
    """
    if not launch_s and host_sync not in ("none", DEFAULT_SYNC):
        return f"machine.host_sync is {host_sync}, but no device waits for its host: launches take none of its time"
    if host_sync == "experts" and not has_routed_rows:
        return "machine.host_sync is experts, but no rows go to experts: hosts wait in front of the optimizer alone"
    return ""


def check_host(given: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings of hosts that are no known names or no time. Args: given: some, by name."""
    for key, known in (("host", HOSTS), ("host_sync", HOST_SYNCS)):
        if key in given and given[key] not in known:
            raise ConfigError(f"machine.{key} is {given[key]!r}; it must be one of: {', '.join(known)}")
    launch = given.get("host_launch")
    if launch is not None:
        check_simulated(parse_time(launch, "machine.host_launch"), "machine.host_launch")
