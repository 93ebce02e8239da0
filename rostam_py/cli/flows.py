"""``rostam flows FILE``: the flows of a file on a fabric, by one engine or several side by side."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rostam_py.cli.compose import compose_config
from rostam_py.cli.schema import FlowsConfig, name_of
from rostam_py.documents import write_whole
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.simulation import engines, run_flows
from rostam_py.simulation.connections import Connections, read_connections
from rostam_py.units import format_bandwidth, format_number_of, format_size, format_time

_FORMATS = (".csv", ".json")
_QUANTILES = {"median": 0.5, "p99": 0.99}


@dataclass(frozen=True)
class _Engine:
    """What one engine gives. finish_s, took_s: of each flow, from the run's start and from its own [s]."""

    name: str
    finish_s: np.ndarray
    took_s: np.ndarray
    rates: np.ndarray
    notes: tuple[str, ...]

    def figures(self) -> dict[str, float]:
        """Return what the table shows [s, bytes/s]."""
        quantiles = {key: float(np.quantile(self.took_s, share)) for key, share in _QUANTILES.items()}
        return {
            "last_finish_s": float(self.finish_s.max()), "mean_s": float(self.took_s.mean()),
            **{f"{key}_s": value for key, value in quantiles.items()},
            "longest_s": float(self.took_s.max()), "mean_bytes_per_s": float(self.rates.mean()),
            "least_bytes_per_s": float(self.rates.min()),
        }  # fmt: skip


def flows(arguments: list[str], as_json: bool) -> int:
    """Run the flows, print when they are through, and write the file asked for. Returns the exit status."""
    file, overrides = _split(arguments)
    config: FlowsConfig = compose_config("flows", overrides)
    if file is not None and config.connections is not None:
        raise ConfigError(f"flows are given twice, by {file} and connections={config.connections}; leave one out")
    path = file if file is not None else config.connections
    if path is None:
        raise ConfigError("connections is null; give a file: rostam flows FILE.cm, or FILE.csv")
    if config.out is not None and Path(config.out).suffix not in _FORMATS:
        raise ConfigError(f"out is {config.out!r}; it must end in one of: {', '.join(_FORMATS)}")
    names = [config.fidelity] if isinstance(config.fidelity, str) else list(config.fidelity)
    for name in names:
        if name not in engines():
            raise UnknownNameError(f"unknown fidelity {name!r}; engines: {', '.join(engines())}")
    found = read_connections(path)
    fabric = config.failures.applied_to(Fabric(name_of("fabric", config.fabric), config.fabric))
    if found.num_nodes > fabric.num_accelerators:
        raise ConfigError(f"{path} has Nodes {found.num_nodes}; the fabric has {fabric.num_accelerators} accelerators")
    runs = [_run(name, fabric, found, config) for name in names]
    document = _document(str(path), fabric, found, config, runs)
    text = json.dumps(document, indent=2) + "\n"
    if config.out is not None:
        out = Path(config.out)
        write_whole(out, (text if out.suffix == ".json" else _csv(found, runs)).encode())
    if as_json:
        print(text, end="")
        return 0
    _print(str(path), fabric, found, config, runs)
    return 0


def _split(arguments: list[str]) -> tuple[str | None, list[str]]:
    files = [one for one in arguments if "=" not in one or Path(one).is_file()]
    if len(files) > 1:
        raise ConfigError(f"files given: {', '.join(files)}; give one: rostam flows FILE [key=value ...]")
    return (files[0] if files else None), [one for one in arguments if one not in files]


def _run(name: str, fabric: Fabric, found: Connections, config: FlowsConfig) -> _Engine:
    result = run_flows(
        fabric, connections=found, fidelity=name, routing=config.routing, seed=config.seed,
        tolerance=config.tolerance if name == "flow" else 0.0,
        packets=None if config.packets.is_none or name != "packet" else config.packets,
        controllers=config.controllers,
    )  # fmt: skip
    took = result.finish_s - np.array(found.start_s)
    rates = np.divide(found.num_bytes, took, out=np.full(len(took), np.inf), where=took > 0)
    return _Engine(name, result.finish_s, took, rates, result.notes)


def _differences(runs: list[_Engine]) -> list[dict[str, float]]:
    """Return, of each engine, by how much its flows take longer than by the first one, as shares."""
    first = np.where(runs[0].took_s > 0, runs[0].took_s, np.nan)
    return [
        {
            "last_finish": float(one.finish_s.max() / runs[0].finish_s.max() - 1),
            "mean": float(one.took_s.mean() / runs[0].took_s.mean() - 1),
            "least_of_a_flow": float(np.nanmin(one.took_s / first) - 1),
            "most_of_a_flow": float(np.nanmax(one.took_s / first) - 1),
        }
        for one in runs
    ]


def _document(path: str, fabric: Fabric, found: Connections, config: FlowsConfig, runs: list[_Engine]) -> Any:
    engines_said = [
        {"fidelity": one.name, **one.figures(), "over_first": over, "notes": list(one.notes)}
        for one, over in zip(runs, _differences(runs), strict=True)
    ]
    return {
        "connections": path, "fabric": fabric.describe(), "routing": config.routing, "seed": config.seed,
        "num_flows": len(found.src), "num_bytes": found.total_bytes, "engines": engines_said,
    }  # fmt: skip


def _csv(found: Connections, runs: list[_Engine]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["src", "dst", "num_bytes", "start_s", *(f"{one.name}_finish_s" for one in runs)])
    columns = (found.src, found.dst, found.num_bytes, found.start_s, *(one.finish_s.tolist() for one in runs))
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _print(path: str, fabric: Fabric, found: Connections, config: FlowsConfig, runs: list[_Engine]) -> None:
    what = f"{format_number_of(len(found.src), 'flow')} of {path}, {format_size(found.total_bytes)} in all"
    console = Console()
    for line in (what, f"on {fabric.describe()}, routing {config.routing}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    table = Table()
    table.add_column("")
    for one in runs:
        table.add_column(one.name, justify="right")
    shown = [one.figures() for one in runs]
    for key, words in _WORDS.items():
        form = format_bandwidth if key.endswith("bytes_per_s") else format_time
        table.add_row(words, *(form(figures[key]) for figures in shown))
    if len(runs) > 1:
        for key, words in _OVER.items():
            table.add_row(f"{words}, over {runs[0].name}", *(f"{over[key]:+.1%}" for over in _differences(runs)))
    console.print(table)
    for note in dict.fromkeys(note for one in runs for note in one.notes):
        console.print(f"note: {note}", style="dim", highlight=False, markup=False)
    if config.out is not None:
        console.print(f"written to {config.out}", style="dim", highlight=False, markup=False)


_WORDS = {
    "last_finish_s": "last flow through at", "mean_s": "mean time of a flow", "median_s": "median", "p99_s": "p99",
    "longest_s": "longest", "mean_bytes_per_s": "mean rate of a flow", "least_bytes_per_s": "least",
}  # fmt: skip
_OVER = {
    "last_finish": "last flow",
    "mean": "mean time",
    "least_of_a_flow": "a flow, least",
    "most_of_a_flow": "a flow, most",
}
