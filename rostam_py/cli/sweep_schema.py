"""The schema of ``rostam sweep``: what every point has, the axes, and how the sweep runs."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from rostam_py.cli.schema import MachineConfig, SearchOptions, StrategyConfig
from rostam_py.fabrics.failures import RandomFailures
from rostam_py.report.sinks.wandb_sink import WandbOptions
from rostam_py.sweep.options import SweepOptions


@dataclass(kw_only=True)
class JobConfig:
    """One job of a mix.

    name: by default the model's and its place. global_batch: null takes 8 samples a replica. start: when it arrives.
    """

    name: str | None = None
    model: str = "resnet50"
    global_batch: int | None = None
    strategy: StrategyConfig = field(default_factory=StrategyConfig)  # type: ignore[valid-type]
    start: Any = "0 s"


@dataclass(kw_only=True)
class MixOptions:
    """How jobs of a mix share the machine.

    num_jobs: draw so many of jobs; null takes each once. allocation: linear or random hosts. host_size: accelerators
    of a host. arrival_window: over which drawn jobs start. num_iterations: of each job. seed: of draw and hosts.
    """

    num_jobs: int | None = None
    allocation: str = "linear"
    host_size: int = 8
    arrival_window: Any = "0 s"
    num_iterations: int = 3
    seed: int = 0


@dataclass(kw_only=True)
class SweepSection(SweepOptions):
    """Axes and execution.

    mode: run (simulate the strategy), search (find the best one) or mix (jobs that share the fabric). grid: axes as
    {key: [values]}. rows: one axis of cases that set several keys at once, [{label: A, fabric: tree_64}, ...].
    """

    mode: str = "run"
    grid: dict[str, Any] = field(default_factory=dict)
    rows: list[Any] = field(default_factory=list)


@dataclass(kw_only=True)
class SweepConfig:
    """Many points: every combination of the axes, in parallel, into one table and a report. An axis is any key with
    several values: model=a,b 'seed=range(0,8)' fabric=tree_64,torus_8x8. Finished points are kept: the same command
    goes on after a kill. --dry-run counts points and estimates the time.

    model: a registered model or path/to/file.py:ClassName. global_batch: samples an iteration; null takes 8 a
    replica. num_accelerators: sizes any fabric. accelerator: a data sheet. fidelity: engine. routing: how paths are
    chosen (rostam list routings). seed: of hash and circuits.
    fold: simulate alike devices once. convergence: a curve; a search takes the model's own. extrapolate: also outside
    its measured batches. jobs: of mode mix, [{model: gpt_125m, strategy: {tp: 8}, start: 5 s}, ...].
    accelerator_usd_per_hour: for the cost of training. report: write report.html. out: folder; null takes
    runs/sweep-<models>-<hash>.
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
    convergence: str | None = None
    extrapolate: bool = False
    search: SearchOptions = field(default_factory=SearchOptions)
    jobs: list[Any] = field(default_factory=list)  # each a JobConfig, which the reader of axes checks by its place
    mix: MixOptions = field(default_factory=MixOptions)
    accelerator_usd_per_hour: float | None = None
    sweep: SweepSection = field(default_factory=SweepSection)
    report: bool = True
    wandb: WandbOptions = field(default_factory=WandbOptions)
    out: str | None = None
