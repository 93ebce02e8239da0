"""How long a device's host takes to launch a kernel, and where it waits for the device (MODEL B7).

Example:
    HOSTS["eager"].launch          # "10 us", of each kernel, collective and message
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rostam_py.errors import ConfigError
from rostam_py.units import check_simulated, parse_time


@dataclass(frozen=True, slots=True)
class HostKind:
    """A way to run training code.

    launch: of each kernel, collective and message. call: what a matrix product of forward takes beyond its launch.
    is_of_x86: that it was measured on a host of x86, than which others are slower (Accelerator.host_slowdown).
    launches_parts: each expert's product, and each pass of a cast, is launched by itself (KernelTime.launches).
    replays_model: forward and backward are replayed graphs, which cost it nothing. source: of those figures.
    """

    what: str
    launch: str
    source: str
    call: str = "0 us"
    is_of_x86: bool = True
    launches_parts: bool = False
    replays_model: bool = False


_EAGER = (
    "pytorch/pytorch, issue 41383 (2020): 6.8 us for an op with autograd before any launch; with cuLaunchKernel's"
    " 3.0 to 3.3 us of tritonbench (above)"
)
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
        is_of_x86=False,
    ),
    "eager": HostKind("eager PyTorch: Python, dispatch and autograd for every kernel", "10 us", _EAGER),
    "graphed_model": HostKind(
        "replayed CUDA graphs of forward and backward, and an optimizer's step of eager code",
        "10 us",
        _EAGER,
        replays_model=True,
    ),
    "transformer_engine": HostKind(
        "eager code of Transformer Engine and Megatron-Core: a call for each product, a launch for each expert",
        "10 us",
        f"{_EAGER}. A forward of te.Linear takes 90.5 and 99.7 us on two Graces where torch's Linear takes 33.2 and"
        " 37.1, 2.7 times as long, and that one 13.5 us on a Xeon 8480C: 23 us more for the call"
        " (NVIDIA/TransformerEngine, issue 2053, 2025-08; pull request 1191 of 2024-09 has 115 us for Megatron-Core's"
        " module on a host that is not named, so that this is the least). An expert's part of a grouped product, a"
        " launch here, takes a B200's host 8.6 us or less (grouped_gemm_b200_simumax.csv, 80 and 160 experts)",
        call="23 us",
        launches_parts=True,
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


class HostCosts(NamedTuple):
    """What a device's host takes [s]. launch_s: of each kernel, collective and message. call_s: for a matrix product of
    forward beyond that. launches_parts, replays_model: see HostKind."""

    launch_s: float
    call_s: float
    launches_parts: bool
    replays_model: bool = False

    @property
    def is_uneven(self) -> bool:
        """Some kernels cost it more than others."""
        return self.call_s > 0 or self.replays_model

    def issues_s(self, launches: int, is_call: bool, is_optimizer: bool = False) -> list[float]:
        """Return what each launch of a kernel costs the host [s]. Args: see KernelTime and Task."""
        count = launches if self.launches_parts else 1
        if self.replays_model and not is_optimizer:
            return [0.0] * count
        return [self.launch_s + (self.call_s if is_call and k == 0 else 0.0) for k in range(count)]


def host_costs(host: str, launch: str | float | None, slowdown: float) -> HostCosts:
    """Return what a kernel costs its host.

    Args:
        launch: in place of the host's own, as it is on this host [s or text].
        slowdown: of the host over one of x86.
    """
    kind = HOSTS[host]
    factor = slowdown if kind.is_of_x86 else 1.0
    own = parse_time(kind.launch, "machine.host_launch") * factor
    launch_s = own if launch is None else parse_time(launch, "machine.host_launch")
    return HostCosts(launch_s, parse_time(kind.call, "machine.host") * factor, kind.launches_parts, kind.replays_model)


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
