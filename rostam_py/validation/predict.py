"""Predict rows: each as ``rostam run`` would simulate it; equal runs of several rows are simulated once."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rostam_py.costs.precision import get_precision
from rostam_py.errors import ConfigError, MemoryCapacityError, RostamError
from rostam_py.graph import OperatorGraph
from rostam_py.plan import Plan
from rostam_py.simulation import CollectiveResult, RunResult, run_collective, simulate
from rostam_py.spec.build import build_machine, place_settings, simulation_options
from rostam_py.validation.layers import LayersHeld, layers_held
from rostam_py.validation.outcome import BUBBLE, HOST, Compared, Outcome
from rostam_py.validation.quantities import AGAINST_S, QUANTITIES
from rostam_py.validation.rows import Keys, Row, Table, Variant, merged, run_settings

Progress = Callable[[str], None]


def _silent(text: str) -> None:
    pass


class Predictor:
    """Simulate runs of rows, one after another.

    Args: changes: settings put on top of every row's, for example another cost model. progress: called with a line of
        text at each stage.
    """

    def __init__(self, changes: Keys | None = None, progress: Progress = _silent) -> None:
        self._changes = changes or {}
        self._progress = progress
        self._graphs: dict[str, OperatorGraph] = {}
        self._results: dict[str, RunResult | RostamError] = {}

    def outcome(self, table: Table, row: Row, *, with_alternatives: bool = True) -> Outcome:
        """Return a row's prediction; a run that is refused becomes its ``failed``."""
        if row.why_not or row.held_out is not None:
            return Outcome(row=row)
        try:
            if row.subject == "collective":
                return self._collective(row)
            if row.subject == "layers":
                return Outcome(row=row, compared=_compared(row, self._layers(row)))
            keys, chosen, result = self._first_that_fits(table, row)
            others = {AGAINST_S: self.run(merged(keys, row.against)).iteration_time_s} if row.against else {}
            compared = _compared(row, result, others)
        except RostamError as error:
            return Outcome(row=row, failed=str(error))
        exposed = {kind: seconds for kind, seconds in result.exposed.items() if seconds > 0}
        breakdown = result.breakdown
        return Outcome(
            row=row,
            compared=compared,
            mfu=result.mfu,
            mfu_causal=result.mfu_causal,
            hfu=result.hfu,
            families=result.compute_by_family,
            exposed=exposed,
            bubble=breakdown[BUBBLE],
            host=sum(breakdown.get(kind, 0.0) for kind in HOST),
            iteration_s=result.iteration_time_s,
            spread=self._spread(table, keys, compared) if with_alternatives else {},
            chosen=chosen,
            notes=tuple(result.notes),
            software=result.plan.software,
            accelerator=result.plan.machine.device.name,
            has_experts=result.plan.has_experts,
            peak=get_precision(result.plan.precision).matrix_peak,
        )

    def _collective(self, row: Row) -> Outcome:
        """Return the prediction of a row of one collective: its key "collective" and a machine."""
        about = dict(row.keys["collective"])
        machine = build_machine(run_settings({key: row.keys[key] for key in ("machine", "fabric") if key in row.keys}))
        self._progress(f"{about['name']} of {about['num_bytes']} on {about['ranks']} accelerators")
        result = run_collective(
            machine.fabric, about["name"], num_bytes=about["num_bytes"], ranks=list(range(about["ranks"])),
            algorithm=about["algorithm"],
        )  # fmt: skip
        return Outcome(row=row, compared=_compared(row, result), iteration_s=result.time_s, chosen=result.algorithm)

    def _layers(self, row: Row) -> LayersHeld:
        """Return what the layers of a run's first stage hold, placed as the run is and not simulated."""
        from rostam_py.tracing import trace

        settings = run_settings(merged(row.keys, self._changes))
        machine = build_machine(settings)

        def placed(num_layers: int | None) -> Plan:
            self._progress(f"placing {settings['model']} on {machine.fabric.describe()}")
            if num_layers is None:
                graph = self._graph(settings["model"])
            else:
                graph = trace(settings["model"], num_layers=num_layers)
            return place_settings(graph, machine, settings)

        return layers_held(placed, row.shape["layers"])

    def _first_that_fits(self, table: Table, row: Row) -> tuple[Keys, str, RunResult]:
        """Return the settings, the label and the result of the first of the rule's choices that fits.

        Raises: what the first raises that is no lack of memory; MemoryCapacityError if none fits. A later choice that
            the model does not know, such as recomputing activation functions that it has none of, is passed over.
        """
        said: RostamError | None = None
        for choice in table.first_that_fits or (Variant("", {}),):
            keys = merged(row.keys, choice.keys)
            try:
                return keys, choice.label, self.run(keys)
            except MemoryCapacityError as error:
                said = error
            except ConfigError:
                if said is None:
                    raise
        raise said or ConfigError(f"table {table.name!r} has no choices")

    def _spread(self, table: Table, keys: Keys, compared: dict[str, Compared]) -> dict[str, float]:
        """Return the errors of time [%] of the feasible alternatives, by label."""
        if "time" not in compared:
            return {}
        found = {}
        for one in table.alternatives:
            try:
                seconds = self.run(merged(keys, one.keys)).iteration_time_s
            except ConfigError:
                continue  # infeasible: it does not fit, or does not divide
            found[one.label] = 100 * (seconds / compared["time"].measured - 1)
        return found

    def run(self, keys: Keys) -> RunResult:
        """Return the result of a row's run, of what is kept if an equal one was simulated before.

        Raises: as ``complete_settings``, ``place`` and ``simulate``.
        """
        settings = run_settings(merged(keys, self._changes))
        key = json.dumps(settings, sort_keys=True, default=str)
        if key not in self._results:
            try:
                self._results[key] = self._simulated(settings)
            except RostamError as error:
                self._results[key] = error
        found = self._results[key]
        if isinstance(found, RostamError):
            raise found
        return found

    def _simulated(self, settings: dict[str, Any]) -> RunResult:
        graph = self._graph(settings["model"])
        machine = build_machine(settings)
        self._progress(f"placing {settings['model']} on {machine.fabric.describe()}")
        plan = place_settings(graph, machine, settings)
        self._progress(f"simulating {plan.num_devices:,} accelerators")
        result: RunResult = simulate(plan, options=simulation_options(settings))
        return result

    def _graph(self, model: str) -> OperatorGraph:
        """Return a model's graph, traced when it is first asked for."""
        if model not in self._graphs:
            from rostam_py.tracing import trace

            self._progress(f"tracing {model}")
            self._graphs[model] = trace(model)
        return self._graphs[model]


def _compared(
    row: Row, result: RunResult | CollectiveResult | LayersHeld, others: dict[str, float] | None = None
) -> dict[str, Compared]:
    found, shape = {}, row.shape | (others or {})
    for name, printed in row.measured.items():
        quantity = QUANTITIES[name]
        measured = quantity.of(result, printed, shape)
        found[quantity.measures] = Compared(name, printed, measured, quantity.predicted(result))
    return found


def validate(
    tables: Iterable[Table], *, changes: Keys | None = None, with_alternatives: bool = True,
    progress: Progress = _silent,
) -> Iterator[tuple[Table, Outcome]]:  # fmt: skip
    """Yield each row's prediction, in order.

    Args: changes: settings put on top of every row's. with_alternatives: also run what fills open settings otherwise.
        progress: called with a line of text at each stage.
    """
    predictor = Predictor(changes, progress)
    for table in tables:
        for row in table.rows:
            yield table, predictor.outcome(table, row, with_alternatives=with_alternatives)
