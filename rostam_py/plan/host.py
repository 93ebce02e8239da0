"""How long a device's host takes to launch a kernel, and where it waits for the device (MODEL B7).

Example:
    HOSTS["eager"].launch          # "10 us", of each kernel, collective and message
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rostam_py.errors import ConfigError
from rostam_py.plan.host_calls import (
    GRACE_OVER_MEASURED,
    GRAPHED,
    GRAPHED_LOOP,
    INPUT,
    MEGATRON_CORE,
    MEGATRON_CORE_NODES,
    REPLAY,
    SOURCE,
    STEP,
    X86_OVER_MEASURED,
    HostCall,
    LoopCode,
    graphed_part,
)
from rostam_py.units import check_simulated, parse_time


@dataclass(frozen=True, slots=True)
class HostKind:
    """A way to run training code.

    launch: of each kernel, collective and message. calls: what the code of a module takes beyond its launches, by
    KernelTime.calls. turns: what it takes more there where micro-batches take turns (software.rules.ep_overlap).
    is_of_x86: that it was measured on a host of x86, than which others are slower (Accelerator.host_slowdown).
    launches_parts: each expert's product, and each pass of a cast, is launched by itself (KernelTime.launches).
    loop: forward and backward are a replayed graph, around which that code runs; None else. source: of those figures.
    """

    what: str
    launch: str
    source: str
    calls: Mapping[str, HostCall] = field(default_factory=dict)
    turns: Mapping[str, HostCall] = field(default_factory=dict)
    is_of_x86: bool = True
    launches_parts: bool = False
    loop: LoopCode | None = None


_EAGER = (
    "pytorch/pytorch, issue 41383 (2020): 6.8 us for an op with autograd before any launch; added to it"
    " cuLaunchKernel's 3.0 to 3.3 us from tritonbench (see compiled)"
)
HOSTS = {
    "graphs": HostKind(
        "replayed CUDA graphs, or a host that is always ahead: devices never wait for it",
        "0 us",
        "own: one launch replays a graph of thousands of kernels",
    ),
    "compiled": HostKind(
        "compiled code (torch.compile), whose wrappers launch kernels one by one",
        "8 us",
        "meta-pytorch/tritonbench, pull request 1017 (April 2026), host of a GB200: 6.8 us for a torch.compile kernel"
        " without arguments and 9.1 us for one with 19, of which cuLaunchKernel takes 3.0 to 3.3 us",
        is_of_x86=False,
    ),
    "eager": HostKind("eager PyTorch: Python, dispatch and autograd for every kernel", "10 us", _EAGER),
    "graphed_model": HostKind(
        "replayed CUDA graphs of forward and backward, a Python loop around them and an eager optimizer step",
        "6.6 us",
        "a kernel of the optimizer step: 1.7 us of Python measured on a CPU (calibration/measured/host_loop.csv), times"
        " 2.0 as for transformer_engine, plus cuLaunchKernel's 3.0 to 3.3 us (see compiled); the loop's Python measured"
        " likewise: 32 us before the step, 64 us from the step to the replay; a replay: NVIDIA's blog of 2024-09 (2 us,"
        " and 0.2 us for each kernel)",
        loop=GRAPHED_LOOP,
    ),
    "transformer_engine": HostKind(
        "eager Transformer Engine and Megatron-Core: host time for each of their modules, a launch for each expert",
        "8 us",
        "one expert's part of a grouped product takes 8.6 us or less on the host of a B200"
        " (grouped_gemm_b200_simumax.csv, 80 and 160 experts); Transformer Engine's C++ takes 16 to 20 us for a cast to"
        f" mxfp8 on Grace, 6 to 7 us on x86 (NVIDIA/TransformerEngine, pull 3137, 2026-07). {SOURCE}",
        calls=MEGATRON_CORE,
        turns=MEGATRON_CORE_NODES,
        launches_parts=True,
    ),
}
DEFAULT_HOST = "graphs"
# Where hosts wait for what they have launched.
HOST_SYNCS = {
    "none": "nowhere",
    "optimizer": "before the optimizer's step, to read the norm of the gradients (Megatron-Core's clip_grads.py)",
    "experts": "as optimizer, and before rows are sent to their experts, to read how many rows each gets (dropless"
    " routing, in all dispatchers of Megatron-Core's token_dispatcher.py)",
    "messages": "as optimizer, and before computing on what another stage has sent (Megatron-Core's batch_p2p_sync)",
}
DEFAULT_SYNC = "optimizer"


class HostCosts(NamedTuple):
    """What a device's host takes.

    launch_s: of each kernel, collective and message [s]. slowdown: of modules' code over what was measured. calls: see
    HostKind. launches_parts: see there. graphs: parts of a layer that replay CUDA graphs, of GRAPHED. loop: the code
    around a replayed graph, as this host runs it. turns: see HostKind.
    """

    launch_s: float
    slowdown: float = 1.0
    calls: Mapping[str, HostCall] = {}
    launches_parts: bool = False
    graphs: frozenset[str] = frozenset()
    loop: LoopCode | None = None
    turns: Mapping[str, HostCall] = {}

    @property
    def is_even(self) -> bool:
        """Whether every kernel costs the same."""
        return not self.calls and not self.graphs and self.loop is None

    def issues_s(self, kernel: Any, is_optimizer: bool = False, takes_turns: bool = False) -> list[float]:
        """Return what each launch of a kernel costs the host [s].

        Model: in front of a kernel that begins a module's code that takes its time, an expert's share in front of each
            expert's launch. Of a part that replays a graph kernels cost nothing, but the one that its module is called
            for what a replay takes. What the schedule takes where micro-batches take turns comes on top, of graphs too.
            Of a loop around a graph see LoopCode.
        Args: kernel: a KernelTime. is_optimizer: of the optimizer's step. takes_turns: software.rules.ep_overlap.
        """
        count = kernel.launches if self.launches_parts else 1
        if self.loop is not None:
            return [self._in_loop_s(self.loop, kernel.calls, is_optimizer)] * count
        more = self.turns[kernel.calls].base_s * self.slowdown if takes_turns and kernel.calls in self.turns else 0.0
        part = graphed_part(kernel.module) if self.graphs else ""
        if part in self.graphs:
            replay_s = self.calls["replay"].base_s * self.slowdown if kernel.calls in GRAPHED[part].replayed_at else 0.0
            return [replay_s + more]
        call = self.calls.get(kernel.calls)
        if call is None:
            return [self.launch_s] * count
        each = self.launch_s + call.part_s * self.slowdown
        return [each + (call.base_s * self.slowdown + more if k == 0 else 0.0) for k in range(count)]

    def _in_loop_s(self, loop: LoopCode, calls: str, is_optimizer: bool) -> float:
        """Return what a kernel costs a loop around a graph [s]; the scaler's update launches one more."""
        if is_optimizer:
            return self.launch_s + (loop.step_s if calls == STEP else 0.0)
        if calls == INPUT:
            return self.launch_s
        return loop.node_s + (loop.turn_s + self.launch_s + loop.replay_s if calls == REPLAY else 0.0)


def host_costs(
    host: str, launch: str | float | None, slowdown: float, graphs: Sequence[str] = (), own_slowdown: float = 1.0
) -> HostCosts:
    """Return what a kernel costs its host.

    Args:
        launch: in place of the host's own, as it is on this host [s or text].
        slowdown: of the accelerator's hosts over those of x86.
        graphs: parts of a layer that replay CUDA graphs.
        own_slowdown: of this machine's hosts over others of the kind.
    """
    kind = HOSTS[host]
    own = parse_time(kind.launch, "machine.host_launch") * (slowdown if kind.is_of_x86 else 1.0) * own_slowdown
    launch_s = own if launch is None else parse_time(launch, "machine.host_launch")
    of_code = own_slowdown * (X86_OVER_MEASURED if slowdown == 1 else GRACE_OVER_MEASURED)
    parts = frozenset(graphs) if kind.calls else frozenset[str]()
    loop = None if kind.loop is None else kind.loop.times(of_code, slowdown * own_slowdown)
    return HostCosts(launch_s, of_code, kind.calls, kind.launches_parts, parts, loop, kind.turns)


def unused_sync(host_sync: str, launch_s: float, *, has_routed_rows: bool) -> str:
    """Return in words why a host waits less than ``host_sync`` says, "" where it does not.

    Args:
        launch_s: what a kernel costs it.
        has_routed_rows: whether the job sends rows to experts.
    """
    if not launch_s and host_sync not in ("none", DEFAULT_SYNC):
        return f"software.rules.host_sync is {host_sync}, but no device waits for its host: launches take it no time"
    if host_sync == "experts" and not has_routed_rows:
        return "software.rules.host_sync is experts, but no rows are sent to any: hosts wait only before the optimizer"
    return ""


def unused_slowdown(slowdown: float, launch_s: float) -> str:
    """Return in words that ``host_slowdown`` changes nothing, "" where it does. Args: launch_s: what a kernel costs."""
    if slowdown == 1 or launch_s:
        return ""
    return f"machine.host_slowdown is {slowdown:g}, but no device waits for its host: launches take no time on the host"


def unused_graphs(parts: Iterable[str], calls: Collection[str]) -> str:
    """Return in words which parts of ``host_graphs`` no layer has, "" where layers have all.

    Args:
        parts: of GRAPHED.
        calls: modules that kernels are called for.
    """
    missing = [
        part for part in parts
        if not any(one in calls for one in GRAPHED[part].replayed_at if not one.endswith("_backward"))
    ]  # fmt: skip
    if not missing:
        return ""
    return f"software.rules.host_graphs names {', '.join(missing)}, which no layer has: no more than a norm is saved"


def check_host(given: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings of hosts that are no known names or no time. Args: given: some, by name."""
    for key, known in (("host", HOSTS), ("host_sync", HOST_SYNCS)):
        if key in given and (not isinstance(given[key], str) or given[key] not in known):
            raise ConfigError(f"software.rules.{key} is {given[key]!r}; it must be one of: {', '.join(known)}")
    slowdown = given.get("host_slowdown", 1.0)
    if isinstance(slowdown, bool) or not isinstance(slowdown, int | float) or not 0 < slowdown < float("inf"):
        raise ConfigError(f"machine.host_slowdown is {slowdown!r}; it must be a finite number > 0")
    graphs = given.get("host_graphs")
    if graphs is not None and not isinstance(graphs, list | tuple):
        raise ConfigError(f"software.rules.host_graphs is {graphs!r}; it must be a list of: {', '.join(GRAPHED)}")
    for part in graphs or ():
        if part not in GRAPHED:
            raise ConfigError(f"software.rules.host_graphs has {part!r}; it may have: {', '.join(GRAPHED)}")
    if given.get("host_graphs") and "host" in given and not HOSTS[given["host"]].calls:
        kinds = ", ".join(name for name, kind in HOSTS.items() if kind.calls)
        raise ConfigError(f"software.rules.host_graphs needs software.rules.host={kinds}; that is {given['host']}")
    launch = given.get("host_launch")
    if launch is not None:
        check_simulated(parse_time(launch, "machine.host_launch"), "machine.host_launch")
