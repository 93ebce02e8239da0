"""Keys: every key of a run, a search and a mix, with its default, unit and allowed names, once.

Example:
    RunKeys(global_batch=256).fidelity      # "flow"
    keys_of("mix")["jobs"]                  # its field

The command line, sweeps and experiments take their schemas from these dataclasses: ``rostam run`` is RunKeys and what
becomes of the result, a point of a sweep one of MODES. Importing them loads neither simulation nor what lies above it:
help and completion wait for this module. Field metadata says more of a value: "unit" ("bandwidth", "time"
or "size") of what carries one as text; "choices", the names that it may be: a container, or what returns one, given the
key of a mapping that has "keys"; "schemas", what returns the dataclasses of which one is given by name, "default" that
of a point which names none; "inner", the keys below a name, and what they mean.
"""

import dataclasses
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rostam_py.checks import check_seed, is_integer
from rostam_py.convergence import CURVES
from rostam_py.costs import ACCELERATORS, COST_MODELS, DEFAULT_COST
from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.failures import RandomFailures
from rostam_py.fabrics.routings import routings
from rostam_py.models import MODELS
from rostam_py.plan import PLACERS, Strategy
from rostam_py.plan.failures import Outages
from rostam_py.plan.machine import HOST_SPEED, PHYSICS, UPKEEP, Machine, check_physics
from rostam_py.plan.open_strategy import OpenStrategy
from rostam_py.plan.packets import PacketOptions
from rostam_py.plan.program_rules import RULE_NAMES, choices_of_rule, unit_of_rule
from rostam_py.plan.searched_axes import check_axes
from rostam_py.plan.variability import Variability
from rostam_py.software.names import DEFAULT_SOFTWARE, STACKS
from rostam_py.spec.model_names import KEY_WORDS
from rostam_py.units import parse_time

MISSING = "???"  # Hydra's word for what must be given
NO_CURVE = "none"  # a search that minimises the time per sample
# Fields of a strategy that a search tries values of, whatever they are set to.
SEARCHED = {
    entry.name: entry.default
    for entry in dataclasses.fields(Strategy)
    if entry.name in ("dp", "tp", "pp", "mp", "placer")
}


def _keys_of(made: type[Strategy], name: str, *bases: Any) -> Any:
    """Return the schema of a strategy's keys on the command line and in files: all but rules, which are software's."""

    def check(keys: Any) -> None:
        checked = made(**{entry.name: getattr(keys, entry.name) for entry in entries})
        for entry in entries:  # lists and texts in one form
            setattr(keys, entry.name, getattr(checked, entry.name))

    entries = [entry for entry in dataclasses.fields(made) if entry.name != "rules"]
    hints = typing.get_type_hints(made)
    parts = [] if bases else [(entry.name, hints[entry.name], _copied(entry)) for entry in entries]
    found: Any = dataclasses.make_dataclass(name, parts, bases=bases, kw_only=True, namespace={"__post_init__": check})
    found.__module__ = __name__  # so that workers can unpickle it
    found.__doc__ = str(made.__doc__).partition("\n    rules:")[0]
    return found


def _copied(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return field(default_factory=entry.default_factory, metadata=entry.metadata)
    return field(default=entry.default, metadata=entry.metadata)


StrategyKeys: Any = _keys_of(Strategy, "StrategyKeys")
JobStrategyKeys: Any = dataclasses.make_dataclass(
    "JobStrategyKeys",
    [(
        "rules", dict[str, Any],
        field(
            default_factory=dict,
            metadata={"keys": lambda: RULE_NAMES, "choices": lambda rule: choices_of_rule(rule), "units": unit_of_rule},
        ),
    )],
    bases=(StrategyKeys,), kw_only=True, namespace={"__post_init__": lambda keys: Strategy(**vars(keys))},
)  # fmt: skip
JobStrategyKeys.__module__, JobStrategyKeys.__doc__ = __name__, Strategy.__doc__
OpenStrategyKeys: Any = _keys_of(OpenStrategy, "OpenStrategyKeys", StrategyKeys)


def strategy_class(mode: str) -> Any:
    """Return the strategy's schema in a mode: candidates of a search have degrees that its strategy has not."""
    return OpenStrategyKeys if mode == "search" else StrategyKeys


DEFAULT_MODEL = "resnet50"


def _of_machine(name: str) -> Any:
    known = {entry.name: entry for entry in dataclasses.fields(Machine)}[name]
    is_number = name in (*UPKEEP, "comm_compute_fraction")
    kind: Any = float if isinstance(known.default, float) else float | None if is_number else Any
    return name, kind, field(default=known.default, metadata=known.metadata)


def _check_machine(keys: Any) -> None:
    check_physics(dataclasses.asdict(keys))


MachineKeys: Any = dataclasses.make_dataclass(
    "MachineKeys",
    [_of_machine(name) for name in (*PHYSICS, *HOST_SPEED, *UPKEEP)],
    kw_only=True,
    namespace={"__post_init__": _check_machine},
)
MachineKeys.__module__ = __name__  # so that workers can unpickle it
MachineKeys.__doc__ = """How the machine starts work, and what it takes to run it.

launch_latency: delay before every kernel or collective. min_kernel_time: minimum duration of a kernel.
comm_compute_fraction: share of the accelerator's compute that running collectives take away, in [0, 1). null takes one
multiprocessor for each channel of the collective on links with a class, and none on ideal links. host_launch: time that
the host takes to launch one kernel; null takes the measured time of the program's hosts. host_slowdown: factor by which
this machine's hosts are slower than the measured ones. watts: maximum power of the whole machine, for the energy of a
run; null if unknown. usd: price of the machine without its network; null if unknown. accelerator_watts: power limit of
each accelerator, as set by nvidia-smi -pl; null takes the data sheet's.
"""


def _engines() -> Iterable[str]:
    from rostam_py.simulation.engines import engines

    return engines()


def _controllers() -> Iterable[str]:
    from rostam_py.simulation.controllers import controllers

    return controllers()


def _allocations() -> Iterable[str]:
    from rostam_py.fleet.allocators import ALLOCATORS

    return ALLOCATORS.names()


def check_count(key: str, value: Any) -> int:
    """Return a number of samples as an int; unlike parts of a fabric they may be any number.

    Raises: ConfigError unless it is an integer >= 1.
    """
    if not is_integer(value) or int(value) < 1:
        raise ConfigError(f"{key} is {value!r}; it must be an integer >= 1")
    return int(value)


@dataclass(kw_only=True)
class SearchOptions:
    """What a search considers.

    num_simulated: number of candidates to simulate, those with the best estimates. batches: global batches to try; null
    takes the powers of two within the curve's measured range. placers: placers to try (see strategy.placer); null takes
    all. max_circuit_degree: maximum number of peers of an accelerator; null takes the fabric's limit. axes: axes to
    vary: null (tp, pp and dp), all, a list of axes such as [tp,pp,cp,shard], or values such as
    {tp:[1,2,4,8],shard:[0,1],cp:null} (null: the default values of the axis). The search also chooses micro-batch and
    recomputation, so that candidates fit in memory; everything else is taken from strategy. budget: wall-clock time
    after which the search ends, returns the best candidate so far and lists what it has not tried; null means no limit.
    """

    num_simulated: int = 8
    batches: list[int] | None = None
    placers: list[str] | None = field(default=None, metadata={"choices": PLACERS})
    max_circuit_degree: int | None = None
    axes: Any = None
    budget: Any = field(default=None, metadata={"unit": "time"})

    def __post_init__(self) -> None:
        if self.budget is not None:
            from rostam_py.searching.watch import check_budget

            check_budget(self.budget, "search.budget")
        check_axes(self.axes, "search.axes")
        self.num_simulated = check_integer("search.num_simulated", self.num_simulated, 0)
        if self.placers is not None:
            from rostam_py.searching.candidates import check_placers

            self.placers = list(check_placers(self.placers, "search.placers"))
        if isinstance(self.batches, str) or not isinstance(self.batches or (), Sequence):
            raise ConfigError(f"search.batches is {self.batches!r}; it must be a list such as [256,512]")
        for batch in self.batches or ():
            check_count("search.batches", batch)


@dataclass(kw_only=True)
class JobKeys:
    """One job of a mix.

    name: by default the model's name and its index. global_batch: null takes 8 samples per replica. start: arrival
    time.
    """

    name: str | None = None
    model: str = field(default=DEFAULT_MODEL, metadata={"choices": MODELS})
    global_batch: int | None = None
    strategy: JobStrategyKeys = field(default_factory=JobStrategyKeys)
    start: Any = field(default="0 s", metadata={"unit": "time"})


@dataclass(kw_only=True)
class MixOptions:
    """How jobs of a mix share the machine.

    num_jobs: number of jobs to draw from jobs; null takes each of them once. allocation: how jobs are given hosts or
    boards (rostam list allocators). allocation_options: settings of the allocator, such as {largest_first: true}.
    host_size: accelerators per host. arrival_window: period over which the drawn jobs arrive. num_iterations:
    iterations of each job. seed: seed of the draw and of random hosts.
    """

    num_jobs: int | None = None
    allocation: str = field(default="linear", metadata={"choices": _allocations})
    allocation_options: Any = None
    host_size: int = 8
    arrival_window: Any = field(default="0 s", metadata={"unit": "time"})
    num_iterations: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        from rostam_py.fleet.allocators import allocator_config

        if self.num_jobs is not None:
            check_integer("mix.num_jobs", self.num_jobs, 1)
        for key in ("host_size", "num_iterations"):
            setattr(self, key, check_integer(f"mix.{key}", getattr(self, key), 1))
        self.seed = check_seed("mix.seed", self.seed)
        allocator_config(self.allocation, self.allocation_options)
        parse_time(self.arrival_window, "mix.arrival_window")


@dataclass(kw_only=True)
class TrainingKeys:
    """The training of one model.

    model: a registered model (rostam list models), your own path/to/file.py:Class, a Hugging Face path/to/config.json,
    its folder or hf:ORGANISATION/NAME from the local cache, or a saved path/to/graph.json.gz.
    convergence: a convergence curve (rostam list convergence), or your own path/to/file.csv. target: an amount of
    training data in place of a curve: '1 T tokens', '300 M samples', '3 epochs of 1281167 samples'. extrapolate: allow
    batches outside the curve's measured range. fidelity: the simulation engine (rostam list fidelities).
    """

    model: str = field(default=DEFAULT_MODEL, metadata={"choices": MODELS, "inner": KEY_WORDS})
    strategy: StrategyKeys = field(default_factory=StrategyKeys)
    convergence: str | None = field(default=None, metadata={"choices": CURVES})
    target: str | None = None
    extrapolate: bool = False
    fidelity: str = field(default="flow", metadata={"choices": _engines})


@dataclass(kw_only=True)
class FabricKeys:
    """A fabric and its failed parts.

    num_accelerators: number of accelerators of the fabric, for any fabric except custom.
    """

    fabric: Any = field(
        default=MISSING,
        metadata={
            "schemas": lambda: [FABRICS.get(name) for name in FABRICS],
            "default": {"name": "fat_tree", "num_accelerators": 64},
        },
    )
    num_accelerators: int | None = None
    failures: RandomFailures = field(default_factory=RandomFailures)


@dataclass(kw_only=True)
class NetworkKeys(FabricKeys):
    """The network of messages.

    routing: how messages choose their paths (rostam list routings). seed: seed of all random draws except failures.
    """

    routing: str = field(default="spray", metadata={"choices": routings})
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)


@dataclass(kw_only=True)
class SiteKeys(NetworkKeys):
    """Where it runs: the keys of every mode.

    accelerator: name of an accelerator's data sheet (rostam list accelerators). software: the training program (rostam
    list software), whose flags are software.KEY; auto takes the program that such a job most likely runs, ideal is an
    upper bound on performance. controllers: controllers that change or observe the network during the run (rostam list
    controllers): names, or mappings of a name and its parameters, for example [{name: link_bandwidth, time_ps:
    [1000000], link: [0], bytes_per_s: [1e9]}].
    """

    accelerator: str = field(default="a100_80gb", metadata={"choices": ACCELERATORS})
    machine: MachineKeys = field(default_factory=MachineKeys)
    cost: Any = field(
        default=MISSING,
        metadata={
            "schemas": lambda: [COST_MODELS.get(name).Config for name in COST_MODELS],
            "default": {"name": DEFAULT_COST},
        },
    )
    software: Any = field(
        default=MISSING,
        metadata={"schemas": lambda: [STACKS.get(name) for name in STACKS], "default": {"name": DEFAULT_SOFTWARE}},
    )
    controllers: list[Any] = field(default_factory=list, metadata={"choices": _controllers})

    def __post_init__(self) -> None:
        from rostam_py.simulation.controllers import check_controllers

        NetworkKeys.__post_init__(self)
        check_controllers(self.controllers)


def _distributions() -> Iterable[str]:
    from rostam_py.simulation.variation import distributions

    return distributions()


@dataclass(kw_only=True)
class VariabilityKeys(Variability):
    """Variation between identical parts of the machine; if any is set, p50 and p95 of a step are computed as well.

    devices: relative standard deviation of the accelerators' compute times, such as 5%; an accelerator keeps its factor
    for all of a sampled step. links: relative standard deviation of each cable's time per byte. kernels: relative
    standard deviation of the time of a kernel, drawn anew for each run of it. distribution: distribution of the
    factors, whose mean is 1. samples: number of machines drawn from seed, each simulated for one step without folding.
    max_cpu: refuse runs whose predicted CPU time is longer.
    """

    distribution: str = field(default=Variability.distribution, metadata={"choices": _distributions})

    def __post_init__(self) -> None:
        Variability.__post_init__(self)
        if self.distribution != Variability.distribution:  # help and completion do without the simulation
            from rostam_py.simulation.variation import check_distribution

            check_distribution(self.distribution, "variability.distribution")


@dataclass(kw_only=True)
class OutageKeys(Outages):
    """Failures during a run; if any are set, it is also simulated with them, and the lost time is reported by cause.

    events: failures at given times, such as [{time: 2 ms, kind: links, number: 17, repair: 1 s}], or a CSV file with
    these columns; kinds are links (cables), switches, accelerators, boards, planes, wavelengths and micro_rings.
    mtbf_links, mtbf_switches, mtbf_accelerators, mtbf_boards, mtbf_planes, mtbf_wavelengths, mtbf_micro_rings: mean
    time between failures of one part of this kind, for drawing random failures; null draws none. repair: time from a
    drawn failure to its repair; null means never. iterations: number of iterations to simulate. seed: seed of the
    random failures. detection: time to detect a failure; for messages also the time to detect a repair. reroute: time
    from detection until messages take new routes. restart: time until the job resumes, from the detection of a lost
    accelerator, or from its repair where the job has no spares and waits for it. checkpoint_iterations: iterations
    between checkpoints; 0 means none. spares: accelerators that replace failed ones. shrink: resume with the data-
    parallel replicas that are still complete: keep keeps the global batch, shrink reduces it; null resumes with all
    replicas, on spares or after repairs.
    """


@dataclass(kw_only=True)
class PacketKeys(PacketOptions):
    """Packets and switches of fidelity=packet; by default those of HammingMesh's appendix F.

    packet_bytes: packet size. flit_bytes: bytes of a packet that a switch receives before it starts to forward the
    packet; 0 B for none, packet_bytes for store-and-forward. buffer_bytes: buffer of every port, for all virtual
    channels of its link. num_vcs: number of virtual channels of a link; null takes as many as the routing needs, 1 puts
    all packets in one. spare_vcs: which packets take virtual channels beyond those that the routing needs: output keeps
    them by the next output, destination by the destination, idle leaves them unused. buffer_parts: equal divides a
    buffer equally among virtual channels, shared gives each the room of one packet and shares the rest; null shares
    under turns_adaptive only. crossbar_speedup: number of outputs that the buffer of one port can feed at once.
    buffer_latency: latency from the input of a switch to its output; null takes the fabric's. skip: replay messages
    that meet as messages before did, instead of walking their packets.
    """


@dataclass(kw_only=True)
class IterationKeys(SiteKeys, TrainingKeys):
    """An iteration that is simulated.

    global_batch: samples per iteration; null takes 8 per replica (8 micro-batches of 1 with a pipeline). fold: simulate
    only one of several symmetric devices. tolerance: how late, as a share of a message's duration, rates may react when
    other messages start or end; 0 is exact.
    """

    global_batch: int | None = None
    fold: bool = True
    tolerance: float = 0.0
    packets: PacketKeys = field(default_factory=PacketKeys)


@dataclass(kw_only=True)
class RunKeys(IterationKeys):
    """Simulate one training iteration of a model on a machine."""

    WORDS: ClassVar[str] = "simulations"

    variability: VariabilityKeys = field(default_factory=VariabilityKeys)
    outages: OutageKeys = field(default_factory=OutageKeys)


@dataclass(kw_only=True)
class SearchKeys(SiteKeys, TrainingKeys):
    """Search for the strategy and the global batch with the least time-to-accuracy.

    convergence: a convergence curve (rostam list convergence), or your own path/to/file.csv; null takes the model's
    own, none minimises the time per sample over search.batches. target: an amount of training data in place of a curve,
    with search.batches. strategy: precision, optimizer, algorithms and other settings of all candidates; the search
    chooses the degrees.
    """

    WORDS: ClassVar[str] = "searches for the best strategy"

    search: SearchOptions = field(default_factory=SearchOptions)


@dataclass(kw_only=True)
class MixKeys(SiteKeys):
    """Jobs that share the fabric.

    jobs: the jobs of a mix, [{model: gpt_125m, strategy: {tp: 8}, start: 5 s}, ...].
    """

    WORDS: ClassVar[str] = "mixes of jobs"

    jobs: list[Any] = field(default_factory=list, metadata={"schemas": lambda: [JobKeys]})
    mix: MixOptions = field(default_factory=MixOptions)


# Modes of a point; the first is the default.
MODES: dict[str, type] = {"run": RunKeys, "search": SearchKeys, "mix": MixKeys}


@dataclass(kw_only=True)
class PointKeys:
    """Further keys of runs, searches and the points of a sweep.

    accelerator_usd_per_hour: price of one accelerator-hour in USD, for the cost of training to the target.
    """

    accelerator_usd_per_hour: float | None = None


def keys_of(mode: str) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields that points of a mode have, by key."""
    return {entry.name: entry for schema in (MODES[mode], PointKeys) for entry in dataclasses.fields(schema)}


def all_keys() -> dict[str, dataclasses.Field[Any]]:
    """Return the fields that points of some mode have, by key."""
    return {name: entry for mode in MODES for name, entry in keys_of(mode).items()}
