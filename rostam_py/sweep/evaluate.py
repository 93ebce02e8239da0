"""Evaluator: complete settings in, one row out; keeps graphs, fabrics, plans and searchers between points.

What is kept changes the time a point takes, never its row: rows are equal whatever was evaluated before.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rostam_py.errors import DeadlockError, InternalError, RostamError
from rostam_py.graph import OperatorGraph
from rostam_py.plan import PLACERS, Machine, Plan, Strategy
from rostam_py.plan.failures import Outages
from rostam_py.plan.open_strategy import OpenStrategy
from rostam_py.plan.program_rules import RULE_NAMES
from rostam_py.searching import Searcher, SearchResult
from rostam_py.simulation import RunResult, simulate
from rostam_py.software.program import Program
from rostam_py.spec.build import (
    build_machine,
    build_strategy,
    cost_arguments,
    default_batch,
    place_settings,
    simulation_options,
)
from rostam_py.spec.keys import NO_CURVE
from rostam_py.spec.settings import Settings, complete_settings, goal_of_settings
from rostam_py.spread import outages, variability
from rostam_py.sweep.columns import (
    failed_columns,
    mix_row,
    outage_row,
    plan_row,
    result_row,
    settings_row,
    variability_row,
)
from rostam_py.units import parse_time

GraphLoader = Callable[[str], OperatorGraph]
_NUM_MACHINES, _NUM_PLANS, _NUM_SEARCHERS = 16, 16, 2


def shared_work(settings: Settings) -> str:
    """Return what names the costly work that points of an evaluator share, "" for none: that of one Searcher."""
    if settings["mode"] != "search":
        return ""
    keys = ("model", "strategy", "cost", "software", "routing", "fidelity", "seed", "controllers")
    return json.dumps([*(settings[name] for name in keys), settings["search"]["placers"]], sort_keys=True)


class _Recent:
    """The most recently used objects that are costly to build."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, build: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = build()
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


@dataclass(frozen=True, slots=True)
class _Site:
    """A machine and the known facts of its fabric."""

    machine: Machine
    bandwidth_bytes_per_s: float
    network_usd: float | None


class Evaluator:
    """Evaluate points one after another.

    Args: load_graph: returns the traced graph of a model by the name that settings use.
    """

    def __init__(self, load_graph: GraphLoader) -> None:
        self._graphs: dict[str, OperatorGraph] = {}
        self._load = load_graph
        self._sites = _Recent(_NUM_MACHINES)
        self._plans = _Recent(_NUM_PLANS)
        self._searchers = _Recent(_NUM_SEARCHERS)
        self._placed: dict[Any, Any] = {}  # plans of jobs of mixes
        self._baselines: Any = None  # of jobs of mixes

    def row(self, key: str, settings: Settings) -> dict[str, Any]:
        """Return the row of a point; an error that the point raises becomes its row."""
        row = settings_row(key, settings)
        try:
            site = self._site(settings)
            row["accelerator_bandwidth_bytes_per_s"] = site.bandwidth_bytes_per_s
            row |= {"network_usd": site.network_usd, "num_accelerators": site.machine.num_accelerators}
            row |= failed_columns(settings, site.machine.fabric)
            evaluate = {"run": self._run_row, "search": self._search_row, "mix": self._mix_row}[settings["mode"]]
            return row | evaluate(site, settings) | {"status": "ok"}
        except MemoryError:
            raise  # says nothing about the point: another worker may have the room
        except (RostamError, DeadlockError, InternalError) as error:
            return row | {"status": "error", "error_type": type(error).__name__, "error": str(error)}
        except Exception as error:  # a fault of rostam's at one point must not end a sweep of thousands
            return row | {"status": "error", "error_type": type(error).__name__, "error": f"unexpected: {error}"}

    def results(self, settings: Settings, row: Mapping[str, Any]) -> list[RunResult]:
        """Return the simulated jobs of a point whose row is known, to look at them closely.

        A search is not repeated: its best strategy is simulated once more.
        Raises: InternalError if the time differs from the row's; whatever the point raises.
        """
        if settings["mode"] == "search":
            settings = best_of_search(settings, row)
        site = self._site(settings)
        if settings["mode"] == "mix":
            return list(self._mix(site, settings, baselines=False).results)
        result = self._simulate(site, settings)
        if result.iteration_time_s != row["iteration_time_s"] and row.get("estimate_s") != row["iteration_time_s"]:
            raise InternalError(
                f"point {row['key']} took {row['iteration_time_s']!r} s an iteration, and now"
                f" {result.iteration_time_s!r} s; equal settings must give equal results"
            )
        return [result]

    def _site(self, settings: Settings) -> _Site:
        key = json.dumps([settings[name] for name in ("fabric", "failures", "accelerator", "machine")], sort_keys=True)
        return self._sites.get(key, lambda: _build_site(settings))

    def _graph(self, model: str) -> OperatorGraph:
        if model not in self._graphs:
            self._graphs[model] = self._load(model)
        return self._graphs[model]

    def _simulate(self, site: _Site, settings: Settings) -> RunResult:
        return simulate(self._plan(site.machine, settings), options=simulation_options(settings))

    def _plan(self, machine: Machine, settings: Settings) -> Plan:
        """Return the plan on a machine; one whose placer does not read the fabric serves all that are alike to it."""
        strategy = build_strategy(settings, machine)
        batch = default_batch(settings["global_batch"], strategy)
        graph = self._graph(settings["model"])
        placer = PLACERS.get(strategy.placer)
        if placer.reads_fabric:
            return place_settings(graph, machine, settings)
        size = [machine.num_accelerators, machine.healthy_accelerators]
        parts = [settings["model"], settings["strategy"], batch, settings["cost"], settings["software"]]
        parts += [settings["accelerator"], settings["machine"], size]
        # What a program makes of the strategy may depend on servers where the strategy itself does not.
        program = Program.of(settings["software"], graph, cost=settings["cost"]["name"])
        run = program.on(strategy, machine)[0]
        parts.append(placer(run, settings["cost"]["name"], None).fabric_key(machine))
        plan: Plan = self._plans.get(
            json.dumps(parts, sort_keys=True), lambda: place_settings(graph, machine, settings)
        )
        return plan if plan.machine is machine else plan.on(machine)

    def _run_row(self, site: _Site, settings: Settings) -> dict[str, Any]:
        row = result_row(self._simulate(site, settings), settings, site.network_usd)
        if not {"variability", "outages"} & settings.keys():
            return row
        plan, options = self._plan(site.machine, settings), simulation_options(settings)
        if "variability" in settings:
            row |= variability_row(variability(plan, options=options, **settings["variability"]))
        if "outages" in settings:
            shrinks = settings["outages"]["shrink"] is not None
            graph = self._graph(settings["model"]) if shrinks else None
            config = cost_arguments(settings)["cost_config"]
            row |= outage_row(outages(plan, graph=graph, cost_config=config, options=options, **settings["outages"]))
            row["notes"] = [*row["notes"], *Outages(**settings["outages"]).unread_keys()]
        return row

    def _searcher(self, settings: Settings) -> Searcher:
        options = settings["search"]
        return self._searchers.get(
            shared_work(settings),
            lambda: Searcher(
                self._graph(settings["model"]), base=OpenStrategy(**settings["strategy"]), placers=options["placers"],
                routing=settings["routing"], fidelity=settings["fidelity"], seed=settings["seed"],
                controllers=settings["controllers"], **cost_arguments(settings),
            ),
        )  # fmt: skip

    def _search(self, site: _Site, settings: Settings) -> SearchResult:
        options = settings["search"]
        return self._searcher(settings).search(
            site.machine, convergence=goal_of_settings(settings), batches=options["batches"],
            axes=options["axes"], extrapolate=settings["extrapolate"], max_circuit_degree=options["max_circuit_degree"],
            num_simulated=options["num_simulated"], budget=options.get("budget"),
        )  # fmt: skip

    def _search_row(self, site: _Site, settings: Settings) -> dict[str, Any]:
        best = self._search(site, settings).best
        if best.result is not None:
            row = result_row(best.result, settings, site.network_usd)
        else:  # search.num_simulated=0: an estimate is all there is
            row = plan_row(best.plan) if best.plan is not None else {"strategy": best.describe()}
            row |= {"iteration_time_s": best.estimate_s, "global_batch": best.global_batch}
            row |= {"iterations": best.iterations, "time_to_accuracy_s": best.time_to_accuracy_s}
            watts, seconds = site.machine.most_watts, best.time_to_accuracy_s
            row["energy_to_target_j"] = None if watts is None or seconds is None else watts * seconds
        return row | {"estimate_s": best.estimate_s, "estimate_error": best.estimate_error}

    def _mix(self, site: _Site, settings: Settings, baselines: bool = True) -> Any:
        from rostam_py.fleet import Job, draw_jobs, place_mix, simulate_mix
        from rostam_py.fleet.mix import Baselines

        options = settings["mix"]
        jobs = []
        for one in settings["jobs"]:
            strategy = Strategy(**one["strategy"])
            batch = default_batch(one["global_batch"], strategy)
            start = parse_time(one["start"], "jobs.start")
            jobs.append(Job(one["name"], self._graph(one["model"]), strategy, batch, start_s=start))
        if options["num_jobs"] is not None:
            window = parse_time(options["arrival_window"], "mix.arrival_window")
            jobs = draw_jobs(
                jobs, options["num_jobs"], seed=options["seed"], arrival_window_s=window,
                num_accelerators=site.machine.num_accelerators,
            )  # fmt: skip
        plans = place_mix(
            jobs, site.machine, allocation=options["allocation"], allocation_options=options["allocation_options"],
            host_size=options["host_size"], seed=options["seed"], placed=self._placed, **cost_arguments(settings),
        )  # fmt: skip
        known = Baselines() if self._baselines is None else self._baselines
        self._baselines = known
        return simulate_mix(
            jobs, site.machine, plans=plans, routing=settings["routing"], seed=settings["seed"],
            num_iterations=options["num_iterations"], baselines=known if baselines else False,
            controllers=settings["controllers"],
        )  # fmt: skip

    def _mix_row(self, site: _Site, settings: Settings) -> dict[str, Any]:
        return mix_row(self._mix(site, settings).to_dict())


def best_of_search(settings: Settings, row: Mapping[str, Any]) -> Settings:
    """Return the settings of a run of the strategy and batch that a search found."""
    kept = {key: value for key, value in settings.items() if key != "search"}
    found = json.loads(row["strategy_settings"])
    curve = {"convergence": None if settings["convergence"] == NO_CURVE else settings["convergence"]}
    best = Strategy(**found)
    rules = settings["software"].get("rules", {})
    held = {"rules": {key: value for key, value in rules.items() if _has(best, key, value)}} if rules else {}
    took = {**settings["software"], "name": row["software"], **held}
    found = {"mode": "run", "strategy": found, "software": took, "global_batch": row["global_batch"]}
    return complete_settings(kept | curve | found)


def _has(strategy: Strategy, rule: str, value: Any) -> bool:
    """Tell whether a rule by hand holds for a strategy that was searched; those of hosts and kernels always do."""
    return rule not in RULE_NAMES or bool(strategy.value(rule) == value)


def _build_site(settings: Settings) -> _Site:
    machine = build_machine(settings)
    fabric = machine.fabric
    return _Site(machine, float(fabric.config.injection_bandwidth_bytes_per_s), fabric.network_usd)


def graph_loader(graphs: Mapping[str, OperatorGraph]) -> GraphLoader:
    """Return a loader that takes graphs from a mapping."""
    return lambda model: graphs[model]
