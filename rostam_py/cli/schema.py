"""The schema of every command's configuration: dataclasses, which schema_store hands to Hydra.

What is simulated, searched or swept has its keys in ``rostam_py.spec``; here stands what a command does with the
result. Fabrics and cost models bring their own Config; each is stored as group = kind, name = registered name. Strategy
is the schema of the group ``strategy``, whose choice "default" it is.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rostam_py.cli.choices import GROUPS, registered
from rostam_py.collectives.sizes import ELEMENT_BYTES
from rostam_py.costs import ACCELERATORS, COST_MODELS, PRECISIONS
from rostam_py.costs.optimizers import OPTIMIZERS
from rostam_py.models import MODELS
from rostam_py.report.sinks.static import FORMATS
from rostam_py.report.sinks.wandb_options import WandbOptions
from rostam_py.spec.fleet_options import FleetOptions
from rostam_py.spec.keys import (
    DEFAULT_MODEL,
    MODES,
    FabricKeys,
    IterationKeys,
    MixKeys,
    NetworkKeys,
    PacketKeys,
    PointKeys,
    RunKeys,
    SearchKeys,
    SearchOptions,
)
from rostam_py.spec.sweep_options import SweepOptions
from rostam_py.validation.names import table_names


@dataclass(kw_only=True)
class RunConfig(RunKeys, PointKeys):
    """Simulate one training iteration of a model on a machine.

    convergence: a convergence curve (rostam list convergence), or your own path/to/file.csv; the time-to-accuracy is
    then printed as well. timeline: also write timeline.json. report: also write report.html; rostam report FOLDER does
    so later. sensitivity: also simulate with every input of the machine 10% better and 10% worse, two simulations for
    each of about 20 inputs; the plan stays the same. out: run folder; null takes runs/<model>-<fabric>-<hash of the
    configuration>. save_plan: also write plan.json.gz. plan: simulate a saved plan instead of placing a model.
    save_task_graph: also write task_graph.json.gz. task_graph: simulate a saved task graph, which has neither model nor
    strategy. program: simulate a program file on the fabric and the accelerators that are given: what the ranks of each
    role run, written by hand or saved by rostam.Program (docs/how-to/my_program.md). save_program: also write the plan
    as program.json. trace_cache: take the model's graph from the trace cache (rostam cache) if its sources are
    unchanged.
    """

    timeline: bool = False
    report: bool = False
    plan: str | None = None
    save_plan: bool = False
    task_graph: str | None = None
    save_task_graph: bool = False
    program: str | None = None
    save_program: bool = False
    wandb: WandbOptions = field(default_factory=WandbOptions)
    trace_cache: bool = True
    sensitivity: bool = False
    out: str | None = None


@dataclass(kw_only=True)
class ShownSearch(SearchOptions):
    """Options of a search, and its table.

    show: number of rows of the table.
    """

    show: int = 16


@dataclass(kw_only=True)
class FleetConfig(IterationKeys, PointKeys):
    """Replay weeks of one job whose servers fail: how much of the time, and how many tokens, each policy leaves. With
    fleet.jobs many jobs wait for the accelerators of one cluster instead: how long, and what their owners get of it.

    fleet: faults, policies, checkpoints; jobs and their queue. report: write report.html. out: folder for
    result.json, tables and the report; null takes runs/fleet-<model>-<fabric>-<hash of the configuration>. trace_cache:
    take the model's graph from the trace cache (rostam cache) if its sources are unchanged.
    """

    fleet: FleetOptions = field(default_factory=FleetOptions)
    report: bool = True
    trace_cache: bool = True
    out: str | None = None


@dataclass(kw_only=True)
class SearchConfig(SearchKeys, PointKeys):
    """Search for the strategy and the global batch with the least time-to-accuracy.

    out: folder for search.json; null takes runs/search-<model>-<fabric>-<hash of the configuration>. trace_cache: take
    the model's graph from the trace cache (rostam cache) if its sources are unchanged.
    """

    search: ShownSearch = field(default_factory=ShownSearch)
    trace_cache: bool = True
    out: str | None = None


def _collectives() -> Iterable[str]:
    from rostam_py.collectives.rank_groups import collectives

    return collectives()


def _algorithms() -> Iterable[str]:
    from rostam_py.simulation import collective_names

    return dict.fromkeys(["auto", *(algorithm for _, algorithm in collective_names())])


def _fidelities() -> Iterable[str]:
    from rostam_py.simulation import fidelities

    return fidelities()


@dataclass(kw_only=True)
class SizeOptions:
    """Sizes of the buffer, as -b, -e and -f of nccl-tests.

    begin: the first size. end: upper limit of the sizes. factor: ratio of consecutive sizes. list: explicit sizes, in
    place of begin, end and factor.
    """

    begin: Any = field(default="8 B", metadata={"unit": "size"})
    end: Any = field(default="1 GiB", metadata={"unit": "size"})
    factor: int = 2
    list: Any = field(default=None, metadata={"unit": "size"})


@dataclass(kw_only=True)
class CollectiveConfig(NetworkKeys):
    """Time one collective over a range of sizes, in the network alone, and print the algorithm bandwidth and the bus
    bandwidth as nccl-tests define them. The size is that of the whole buffer of a rank (for all_gather, the gathered
    buffer). The algorithm bandwidth is size / time. The bus bandwidth is the algorithm bandwidth times a factor, with p
    ranks: 2 (p-1)/p for all_reduce, (p-1)/p for reduce_scatter, all_gather and all_to_all, 1 for all others.

    collective: the collective (rostam list collectives). algorithm: one of its algorithms. auto takes the one with the
    least predicted time for each size, or, inside a server, the choice of NCCL's tuning model where that agrees better
    with the measurements of the links (nvlink3, nvlink5); the table names the choice. protocol: LL, LL128 or Simple, on
    links with a class (start-up costs); null chooses for each size, as algorithm=auto does. ranks: list of accelerators
    in rank order, such as [0,8,16], or a number n for the first n; null takes all working ones. type: element type, as
    NCCL names it; sizes are rounded down to whole elements. group: ranks per server, for algorithm=hierarchical; null
    takes the fabric's. fidelity: the simulation engine, or analytic (rostam list fidelities). fold: simulate only one
    of several symmetric ranks. tolerance: how late, as a share of a message's duration, rates may react when other
    messages start or end; 0 is exact. out: also write the rows to FILE.csv or FILE.json.
    """

    collective: str = field(default="all_reduce", metadata={"choices": _collectives})
    algorithm: str = field(default="auto", metadata={"choices": _algorithms})
    protocol: str | None = None
    ranks: Any = None
    sizes: SizeOptions = field(default_factory=SizeOptions)
    type: str = field(default="float", metadata={"choices": ELEMENT_BYTES})
    group: int | None = None
    fidelity: str = field(default="flow", metadata={"choices": _fidelities})
    fold: bool = True
    tolerance: float = 0.0
    packets: PacketKeys = field(default_factory=PacketKeys)
    out: str | None = None


@dataclass(kw_only=True)
class FlowsConfig(NetworkKeys):
    """Run the flows of a file on a fabric and print when they are through: rostam flows FILE.

    connections: the file, where it is not named by itself: a connection matrix as htsim reads it (FILE.cm), or FILE.csv
    with the columns src, dst, num_bytes and start_s. fidelity: the simulation engine, or a list of engines to compare,
    such as [flow,packet]: the table says by how much each differs from the first. routing: as for other commands; hash,
    one path for each flow, by default. tolerance: of the flow engine, how late, as a share of a message's duration,
    rates may react when other messages start or end; 0 is exact. controllers: as for rostam run. out: also write each
    flow's times to FILE.csv, or all figures to FILE.json.
    """

    connections: str | None = None
    fidelity: Any = field(default="flow", metadata={"choices": _fidelities})
    routing: str = field(default="hash", metadata={"choices": lambda: _routings()})
    tolerance: float = 0.0
    packets: PacketKeys = field(default_factory=PacketKeys)
    controllers: list[Any] = field(default_factory=list)
    out: str | None = None


def _routings() -> Iterable[str]:
    from rostam_py.fabrics.routings import routings

    return routings()


def _channel_schemes() -> Iterable[str]:
    from rostam_py.fabrics.dependencies import channel_schemes

    return channel_schemes()


@dataclass(kw_only=True)
class CheckConfig(FabricKeys):
    """Prove that a routing cannot deadlock on a fabric, failures included, or print the cycle of links that wait for
    each other (Dally and Seitz 1987). With cables=FILE, list missing, extra and wrongly joined cables instead. The exit
    status is 1 if anything is found. Time grows with the number of pairs of accelerators: seconds for some hundreds of
    accelerators.

    routing: the routing to prove (rostam list routings); turns is the fabric's own turn model. virtual_channels: which
    virtual channel a packet takes on a link: routing, the routing's choice; one, always the first; hops, the k-th
    channel on the k-th link of its path. cables: a CSV file with columns src and dst, which hold names of one plane's
    vertices, such as switch 0 and accelerator 3. It is compared with the fabric, and nothing else is checked.
    write_cables: write the fabric's cables to FILE.csv in the format that cables reads.
    """

    routing: str = field(default="turns", metadata={"choices": _routings})
    virtual_channels: str = field(default="routing", metadata={"choices": _channel_schemes})
    cables: str | None = None
    write_cables: str | None = None


@dataclass(kw_only=True)
class SweepSection(SweepOptions):
    """Axes and execution.

    mode: what each point is: run (simulate the strategy), search (find the best one) or mix (jobs that share the
    fabric). grid: axes as {key: [values]}. rows: one axis whose points set several keys at once, [{label: A, fabric:
    tree_64}, ...].
    """

    mode: str = field(default=next(iter(MODES)), metadata={"choices": MODES})
    grid: dict[str, Any] = field(default_factory=dict)
    rows: list[Any] = field(default_factory=list)


@dataclass(kw_only=True)
class SweepConfig(RunKeys, SearchKeys, MixKeys, PointKeys):
    """Simulate every combination of the axes, in parallel, and write one table and a report. An axis is any key with
    several values: model=a,b 'seed=range(0,8)' fabric=tree_64,torus_8x8. Each combination is a point. Finished points
    are stored, so the same command resumes an interrupted sweep. --dry-run counts the points and estimates the time.

    report: write report.html. out: folder; null takes runs/sweep-<models>-<hash>.
    """

    sweep: SweepSection = field(default_factory=SweepSection)
    report: bool = True
    wandb: WandbOptions = field(default_factory=WandbOptions)
    out: str | None = None


@dataclass(kw_only=True)
class ProfileConfig:
    """Time a model's ops on this machine and save a cost table.

    model: a registered model (rostam list models), your own path/to/file.py:Class, or a saved path/to/graph.json.gz.
    batches: numbers of samples to time, at least one; with two or more the table can interpolate. device: auto, cpu or
    cuda. threads: number of CPU threads; 0 keeps torch's setting. optimizer: null takes the model's own. precision:
    fp32, tf32, bf16_mixed or fp16_mixed. date: date to record in the table. out: file for the table; null takes
    <model>.costs.json. kernels: also write the ops to this file, as a kernel table in the format of the shipped ones,
    for cost=calibrated cost.table=FILE and any model.
    """

    model: str = field(default=DEFAULT_MODEL, metadata={"choices": MODELS})
    batches: list[int] = field(default_factory=lambda: [2, 8])
    device: str = "auto"
    threads: int = 0
    optimizer: str | None = field(default=None, metadata={"choices": OPTIMIZERS})
    precision: str = field(default="fp32", metadata={"choices": PRECISIONS})
    date: str = ""
    out: str | None = None
    kernels: str | None = None


@dataclass(kw_only=True)
class DemoConfig:
    """The demonstration: two models, six fabrics; the best strategy for time-to-accuracy at every bandwidth.

    short: simulate one bandwidth (3,200 Gb/s) only. bandwidths: bandwidths per accelerator. num_accelerators: number of
    accelerators, a multiple of 16. accelerator: name of an accelerator's data sheet (rostam list accelerators).
    precision: precision of training; null takes each model's own. num_simulated: number of candidates simulated at
    every point. out: folder for tables, report and timeline.
    """

    short: bool = False
    num_accelerators: int = 256
    accelerator: str = field(default="v100_32gb", metadata={"choices": ACCELERATORS})
    precision: str | None = field(default=None, metadata={"choices": PRECISIONS})
    bandwidths: list[str] = field(
        default_factory=lambda: ["400 Gb/s", "800 Gb/s", "1600 Gb/s", "3200 Gb/s", "8000 Gb/s"]
    )
    num_simulated: int = 3
    out: str = "out/demo"


@dataclass(kw_only=True)
class ReportConfig:
    """Draw what a sweep or a run left in its folder: one HTML page that works offline, and figures for papers.

    formats: pdf, svg or both: also write figures/NAME.FORMAT next to the page. out: file for the page; null takes
    report.html in DIR.
    """

    formats: list[str] = field(default_factory=list, metadata={"choices": FORMATS})
    out: str | None = None


@dataclass(kw_only=True)
class ValidateConfig:
    """Compare published measurements of training steps with rostam's predictions, which use only model, machine and
    strategy. Prints signed errors of times and memories, the breakdown of every iteration, and the rows that are not
    modelled.

    tables: shipped tables to compare with, for example tables=V1,V2; null takes all. rows: patterns of the names of
    rows to compare, for example rows=*70B*,V1/*. file: a CSV file of your own measurements to use in place of the
    shipped tables. Its first line names the columns: model, machine, any other key of rostam run (machine.servers,
    strategy.tp, global_batch, ...), name, and the measurement (time_s, samples_per_s, tokens_per_s_per_gpu,
    model_tflops_per_gpu, memory_gib). The exit status is 1 if one of its rows fails. cost_model: the cost model (rostam
    list costs); null takes the default one. alternatives: where a source omits details, also run the other possible
    readings, and print the spread. save_ratios: also write the ratio of measured to simulated time of every run to
    FILE.json. With software.ratios=FILE.json rostam run then derives the expected time from your own jobs. bounds: exit
    status 1 if the errors of a table exceed its stated bounds, or a row fails. The bounds hold for whole tables at the
    default costs, so rows, file and cost_model are refused with it. report: also write report.html; rostam report
    FOLDER does so later. out: result folder; null takes runs/validate-<hash>.
    """

    tables: list[str] | None = field(default=None, metadata={"choices": table_names})
    rows: list[str] | None = None
    file: str | None = None
    cost_model: str | None = field(default=None, metadata={"choices": COST_MODELS})
    alternatives: bool = False
    save_ratios: str | None = None
    bounds: bool = False
    report: bool = False
    out: str | None = None


@dataclass(kw_only=True)
class ReproduceConfig:
    """Compare published figures with rostam's, experiment by experiment, and write one ledger (Markdown and HTML). Each
    row has the figure, the published value, rostam's value, the signed difference, and a verdict: "reproduced",
    "deviates because" (with the change that was tried), or "cannot be derived because". Give names of experiments, or
    --all. The exit status is 1 if an experiment fails or a deviation is unexplained.

    folder: folder that holds the experiments, one subfolder each; null takes experiments/ of rostam's checkout. rerun:
    run the searches and mixes again whose results an experiment ships as points.json: about 50 CPU minutes and 4 GB of
    memory for all. Points are stored as they finish. out: folder for the ledger, which lists all experiments finished
    there. They are not run again until their files or rostam's code change.
    """

    folder: str | None = None
    rerun: bool = False
    out: str = "runs/reproduce"


COMMAND_SCHEMAS: dict[str, type] = {
    "run": RunConfig, "search": SearchConfig, "fleet": FleetConfig, "sweep": SweepConfig,
    "collective": CollectiveConfig,
    "flows": FlowsConfig,
    "check": CheckConfig,
    "profile": ProfileConfig, "demo": DemoConfig, "report": ReportConfig, "validate": ValidateConfig,
    "reproduce": ReproduceConfig,
}  # fmt: skip


def command_schema(command: str) -> type | None:
    """Return the schema of a command's configuration, None for a command without one."""
    return COMMAND_SCHEMAS.get(command)


def groups_of(schema: Any) -> list[str]:
    """Return the groups that a command with a schema chooses of; experiments go with strategies."""
    names = {entry.name for entry in dataclasses.fields(schema)} if schema is not None else set()
    return [group for group in GROUPS if group in names or (group == "experiment" and "strategy" in names)]


def name_of(kind: str, config: Any) -> str:
    """Return the registered name of a composed choice of a group with schemas."""
    return name_of_schema(kind, type(config))


def name_of_schema(kind: str, schema: Any) -> str:
    """Return the name under which the schema of a fabric, a cost model or software is registered."""
    is_it = (lambda found: found.Config is schema) if kind == "cost" else (lambda found: found is schema)
    return registered(kind).name_of(is_it, schema.__module__)
