"""The schema of every command's configuration: dataclasses, stored in Hydra's ConfigStore.

Fabrics and cost models bring their own Config; each is stored as group = kind, name = registered name. Strategy's
fields are the schema of the group ``strategy``, whose choice "default" they are.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from rostam_py.checks import check_seed
from rostam_py.cli.choices import DEFAULT_STRATEGY
from rostam_py.costs import COST_MODELS
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.failures import RandomFailures
from rostam_py.plan.machine import PHYSICS, Machine
from rostam_py.plan.strategy import Strategy
from rostam_py.report.sinks.wandb_sink import WandbOptions

# Fields that carry a unit on the command line; a fabric's Config marks its own in field metadata.
STRATEGY_UNITS = {"bucket_size": "size", "quantum": "time"}
MACHINE_UNITS = {"launch_latency": "time", "min_kernel_time": "time"}
COST_UNITS = {"ramp_time": "time", "min_kernel_time": "time"}


def _machine_schema() -> type:
    """Return a schema of the machine's settings that are neither its fabric nor its accelerators."""
    known = {entry.name: entry for entry in dataclasses.fields(Machine)}
    entries: list[Any] = [
        (key, float if key not in MACHINE_UNITS else Any, field(default=known[key].default)) for key in PHYSICS
    ]
    schema = dataclasses.make_dataclass("MachineConfig", entries, kw_only=True)
    schema.__doc__ = (
        "How the machine starts work.\n\nlaunch_latency: before every kernel or collective. min_kernel_time: least"
        " duration of one. comm_compute_fraction: share of compute that a running collective takes away."
    )
    schema.__module__ = __name__  # so that workers can unpickle it
    return schema


MachineConfig = _machine_schema()


def _strategy_schema() -> type:
    """Return Strategy's fields as a schema in which dp may be left open (then it fills the machine)."""
    entries: list[Any] = []
    for entry in dataclasses.fields(Strategy):
        kind = int | None if entry.name == "dp" else entry.type
        default = None if entry.name == "dp" else entry.default
        if default is dataclasses.MISSING:
            entries.append((entry.name, kind, field(default_factory=entry.default_factory)))
        else:
            entries.append((entry.name, kind, field(default=default)))
    schema = dataclasses.make_dataclass("StrategyConfig", entries, kw_only=True)
    schema.__module__ = __name__  # so that workers can unpickle it
    return schema


StrategyConfig = _strategy_schema()


@dataclass(kw_only=True)
class RunConfig:
    """One simulation.

    model: a registered model (rostam list models) or path/to/file.py:ClassName. global_batch: samples an iteration;
    null takes 8 a replica (8 micro-batches of 1 with a pipeline). num_accelerators: sizes any fabric.
    accelerator: a data sheet (rostam list accelerators).
    fidelity: the engine (rostam list fidelities). routing: how paths are chosen (rostam list routings). seed: of
    everything drawn at random but failures. fold: simulate devices that must behave alike once. timeline: also write
    timeline.json. convergence: a curve (rostam list convergence) whose time-to-accuracy is printed as well.
    extrapolate: also outside the curve's measured batches. report: also write report.html; rostam report FOLDER does so
    later. wandb.enable: send it to Weights & Biases too. out: run folder; null takes runs/<model>-<fabric>-<hash of the
    configuration>. save_plan: also write plan.json.gz. plan: simulate a saved plan instead of placing a model.
    """

    model: str = "resnet50"
    global_batch: int | None = None
    fabric: Any = MISSING
    num_accelerators: int | None = None
    accelerator: str = "a100_80gb"
    machine: MachineConfig = field(default_factory=MachineConfig)  # type: ignore[valid-type]
    strategy: StrategyConfig = field(default_factory=StrategyConfig)  # type: ignore[valid-type]
    cost: Any = MISSING
    failures: RandomFailures = field(default_factory=RandomFailures)
    fidelity: str = "flow"
    routing: str = "spray"
    seed: int = 0
    fold: bool = True
    timeline: bool = False
    convergence: str | None = None
    extrapolate: bool = False
    report: bool = False
    plan: str | None = None
    save_plan: bool = False
    wandb: WandbOptions = field(default_factory=WandbOptions)
    out: str | None = None

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)


@dataclass(kw_only=True)
class SearchOptions:
    """What a search considers and shows.

    num_simulated: candidates that are simulated, those with the best estimates. batches: global batches; null takes
    the powers of two that the curve measured. placers: of those that strategy.placer may be; null takes all.
    max_circuit_degree: most peers an accelerator may have; null takes the fabric's limit. show: rows of the table.
    """

    num_simulated: int = 8
    batches: list[int] | None = None
    placers: list[str] | None = None
    max_circuit_degree: int | None = None
    show: int = 16


@dataclass(kw_only=True)
class SearchConfig:
    """A search for the strategy and global batch with the least time-to-accuracy.

    model: a registered model (rostam list models) or path/to/file.py:ClassName. num_accelerators: sizes any fabric.
    accelerator: a data sheet (rostam list accelerators). convergence: a curve (rostam list convergence); null takes the
    model's own, none minimises time a sample over search.batches. extrapolate: also outside the curve's measured
    batches. strategy: precision, optimizer, algorithms and so on of all candidates; its degrees are searched.
    fidelity: the engine (rostam list fidelities). routing: how paths are chosen (rostam list routings). seed: of
    everything drawn at random but failures.
    out: folder for search.json; null takes runs/search-<model>-<fabric>-<hash of the configuration>.
    """

    model: str = "resnet50"
    fabric: Any = MISSING
    num_accelerators: int | None = None
    accelerator: str = "a100_80gb"
    machine: MachineConfig = field(default_factory=MachineConfig)  # type: ignore[valid-type]
    convergence: str | None = None
    extrapolate: bool = False
    search: SearchOptions = field(default_factory=SearchOptions)
    strategy: StrategyConfig = field(default_factory=StrategyConfig)  # type: ignore[valid-type]
    cost: Any = MISSING
    failures: RandomFailures = field(default_factory=RandomFailures)
    fidelity: str = "flow"
    routing: str = "spray"
    seed: int = 0
    out: str | None = None

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)


@dataclass(kw_only=True)
class ProfileConfig:
    """Time a model's ops on this machine and save a cost table.

    model: a registered model (rostam list models) or path/to/file.py:ClassName. batches: at least one; two or more let
    the table interpolate. device: auto, cpu or cuda. threads: CPU threads, 0 = as torch is set. optimizer: null takes
    the model's own. precision: fp32, tf32, bf16_mixed or fp16_mixed. date: noted in the table. out: the table; null
    takes <model>.costs.json.
    """

    model: str = "resnet50"
    batches: list[int] = field(default_factory=lambda: [2, 8])
    device: str = "auto"
    threads: int = 0
    optimizer: str | None = None
    precision: str = "fp32"
    date: str = ""
    out: str | None = None


@dataclass(kw_only=True)
class DemoConfig:
    """The demonstration: two models, six fabrics; the best strategy for time-to-accuracy at every bandwidth.

    short: one bandwidth (3,200 Gb/s) only. bandwidths: per accelerator. num_accelerators: a multiple of 16.
    accelerator: a data sheet (rostam list accelerators).
    precision: of training; null takes each model's own. num_simulated: estimates simulated at every point.
    out: folder for tables, report and timeline.
    """

    short: bool = False
    num_accelerators: int = 256
    accelerator: str = "v100_32gb"
    precision: str | None = None
    bandwidths: list[str] = field(
        default_factory=lambda: ["400 Gb/s", "800 Gb/s", "1600 Gb/s", "3200 Gb/s", "8000 Gb/s"]
    )
    num_simulated: int = 3
    out: str = "out/demo"


@dataclass(kw_only=True)
class ReportConfig:
    """Draw what a sweep or a run left in its folder: one HTML page that works offline, and figures for papers.

    formats: pdf, svg: also write figures/NAME.FORMAT beside the page. out: the page; null takes report.html in DIR.
    """

    formats: list[str] = field(default_factory=list)
    out: str | None = None


COMMAND_SCHEMAS = {
    "run": RunConfig, "search": SearchConfig, "profile": ProfileConfig, "demo": DemoConfig, "report": ReportConfig,
}  # fmt: skip


def command_schema(command: str) -> type | None:
    """Return the schema of a command's configuration, None for a command without one."""
    if command == "sweep":  # it builds on this file
        from rostam_py.cli.sweep_schema import SweepConfig

        return SweepConfig
    return COMMAND_SCHEMAS.get(command)


def store_schemas() -> None:
    """Fill Hydra's ConfigStore from the registries."""
    from hydra.core.config_store import ConfigStore

    from rostam_py.cli.sweep_schema import SweepConfig

    store = ConfigStore.instance()
    names = {group: {one.removesuffix(".yaml") for one in store.repo.get(group, ())} for group in ("fabric", "cost")}
    if names["fabric"].issuperset(FABRICS) and names["cost"].issuperset(COST_MODELS) and "strategy" in store.repo:
        return  # storing again takes a fifth of composing
    store.store(name="run_schema", node=RunConfig)
    store.store(name="sweep_schema", node=SweepConfig)
    store.store(name="search_schema", node=SearchConfig)
    store.store(name="profile", node=ProfileConfig)
    store.store(name="demo", node=DemoConfig)
    store.store(name="report", node=ReportConfig)
    for name in FABRICS:
        store.store(group="fabric", name=name, node=FABRICS.get(name))
    for name in COST_MODELS:
        store.store(group="cost", name=name, node=COST_MODELS.get(name).Config)
    store.store(group="strategy", name=DEFAULT_STRATEGY, node=StrategyConfig)


def name_of(kind: str, config: Any) -> str:
    """Return the registered name of a composed fabric or cost Config."""
    if kind == "fabric":
        return name_of_schema(type(config))
    return next(name for name in COST_MODELS if COST_MODELS.get(name).Config is type(config))


def name_of_schema(schema: type) -> str:
    """Return the name under which a fabric's Config is registered."""
    return next(name for name in FABRICS if FABRICS.get(name) is schema)
