"""Axes of ``rostam sweep``: Hydra's sweep grammar and sweep.grid, sweep.rows turned into axes of resolved values."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from rostam_py.cli.bare_numbers import check_bare_numbers
from rostam_py.cli.choices import GROUPS, WITH_SCHEMAS, check_choice, group_choices
from rostam_py.cli.compose import (
    as_hydra_wants,
    axis_values,
    check_overrides,
    check_units,
    chosen,
    composed,
    explaining,
    plain_overrides,
)
from rostam_py.cli.model_keys import of_points
from rostam_py.cli.named_machine import without_machine
from rostam_py.cli.schema import SweepSection, name_of_schema
from rostam_py.errors import ConfigError
from rostam_py.plan.strategy_names import MOVED, moved_to
from rostam_py.report.sinks.wandb_options import WandbOptions
from rostam_py.spec.keys import JobKeys
from rostam_py.spec.settings import complete_jobs, with_key
from rostam_py.sweep.axes import Axis, Value, grid_axes, row_axis
from rostam_py.sweep.axis_checks import check_clashes
from rostam_py.sweep.machine_rows import is_own_key, with_machines

_COMMAND = "sweep"
_RESOLVED = (*WITH_SCHEMAS, "strategy")  # groups that an axis may run over
# Keys of the configuration that say how a sweep runs, not what a point is.
_NOT_SETTINGS = ("sweep", "report", "wandb", "out")
_GRID = "sweep.grid"
_HERE = "the command line"
_MODE = "sweep.mode"  # a point's "mode"


@dataclass(frozen=True, slots=True)
class SweepCommand:
    """A sweep's command line. settings: of every point, axes aside; the rest as in SweepConfig."""

    settings: dict[str, Any]
    axes: list[Axis]
    section: SweepSection
    wandb: WandbOptions
    report: bool
    out: str | None


def read_command(overrides: list[str]) -> SweepCommand:
    """Return what the overrides ask for; axes in the order: command line, rows, grid.

    Model: a key of an experiment's sweep.grid that the command line gives, with one value or several, is the command
        line's. Every other key has one place: command line, rows or grid.
    Raises: ConfigError for bad keys, names, types and units, and for a key in two places, before any work.
    """
    lengths = of_points(overrides)
    given, overrides = overrides, plain_overrides(_COMMAND, overrides)
    plain, config, section = _composed(overrides)
    if _names_machines(section):
        machine, rest = without_machine(given)
        if all(len(values) == 1 for values in machine.values()):  # several are rows by now
            overrides = plain_overrides(_COMMAND, rest)
            plain, config, section = _composed(overrides)
        elif any(map(is_own_key, section.grid)):
            several = ", ".join(f"{key}={','.join(map(str, values))}" for key, values in machine.items())
            raise ConfigError(f"{several} gives several machines, and so does sweep.grid; give one of them")
        else:
            machine = {}
        _write_machines_out(section, {key: values[0] for key, values in machine.items()}, overrides)
    with explaining(_COMMAND, plain):
        wandb: Any = OmegaConf.to_object(config.wandb)
    settings = _settings(config, plain)
    _check_jobs(settings["jobs"])
    axes = _read_axes([*overrides, *lengths], plain, section)
    for one in lengths:
        if not is_axis(one):
            settings = with_key(settings, _key_of(one), _value_of(one))
    for axis in axes:
        if axis.key.partition(".")[0] in _NOT_SETTINGS:
            raise ConfigError(f"{axis.key} cannot be an axis: it sets how the sweep runs, not its points")
    return SweepCommand(settings, axes, section, wandb, bool(config.report), config.out)


def _composed(overrides: list[str]) -> tuple[list[str], Any, SweepSection]:
    """Return the overrides with one value, the configuration that they make, and its section "sweep"."""
    check_overrides(_COMMAND, overrides, allow_lists=True)
    plain = [one for one in overrides if not is_axis(one)]
    with explaining(_COMMAND, plain):
        config = composed(_COMMAND, tuple(plain))
        check_units(config)
        section: Any = OmegaConf.to_object(config.sweep)
    return plain, config, section


def _names_machines(section: SweepSection) -> bool:
    """Say whether rows or grid name machines, or keys of machines by name."""
    rows = [key for row in section.rows if isinstance(row, Mapping) for key in row]
    return any(is_own_key(key) for key in (*rows, *section.grid))


def _write_machines_out(section: SweepSection, machine: dict[str, Any], overrides: list[str]) -> None:
    """Replace machines in a section's rows and grid by what they stand for; keys of the command line go before."""
    fixed = {_key_of(one): _value_of(one) for one in overrides if not is_axis(one) and "=" in one}
    varied = [_key_of(one) for one in overrides if is_axis(one)]
    fixed = {key: value for key, value in fixed.items() if key.partition(".")[0] not in _NOT_SETTINGS}
    grid = {key: values for key, values in section.grid.items() if key not in machine}
    section.rows, section.grid = with_machines(section.rows, grid, base=machine, fixed=fixed, varied=varied)


def _read_axes(overrides: list[str], plain: list[str], section: SweepSection) -> list[Axis]:
    given = {_key_of(one) for one in overrides}
    axes = [_command_line_axis(one, plain) for one in overrides if is_axis(one)]
    source = "sweep.rows" if "sweep.rows" in given else "the experiment's sweep.rows (sweep.rows=[] leaves them out)"
    if section.rows:
        rows = [_resolved_row(number, row, plain) for number, row in enumerate(section.rows)]
        axes.append(row_axis(rows, source))
    own = {key for one in plain if _key_of(one) == _GRID for key in _value_of(one) or ()}
    own |= {key.removeprefix(f"{_GRID}.") for key in given if key.startswith(f"{_GRID}.")}
    for key, values in section.grid.items():
        if key in given and key not in own:
            continue  # the command line goes before an experiment's grid
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ConfigError(f"{_GRID}.{key} is {values!r}; it must be a list of values")
        resolved = {_point_key(key): [_resolved(key, value, plain) for value in values]}
        axes.extend(grid_axes(resolved, _GRID if key in own else f"the experiment's {_GRID}"))
    check_clashes(axes, [axis for one in plain for axis in _fixed(one)])
    return axes


def _fixed(override: str) -> list[Axis]:
    """Return what an override with one value sets of a point: an axis of one value, or none."""
    key = _point_key(_key_of(override))
    if key.startswith("~") or key.partition(".")[0] in (*_NOT_SETTINGS, "experiment", "hydra"):
        return []
    data = _value_of(override)
    return [Axis(key, [Value("null" if data is None else str(data), data, is_preset=key in GROUPS)], _HERE)]


def _value_of(override: str) -> Any:
    """Return the one value of an override."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return _plain_data(OverridesParser.create().parse_override(as_hydra_wants([override])[0]).value())


def _plain_data(value: Any) -> Any:
    """Return a parsed value without the parser's own types."""
    from hydra.core.override_parser.types import QuotedString

    if isinstance(value, dict):
        return {str(_plain_data(key)): _plain_data(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain_data(one) for one in value]
    return value.text if isinstance(value, QuotedString) else value


def _check_jobs(jobs: list[Any]) -> None:
    """Refuse anything except a job, its place named: Hydra checks lists without saying where."""
    for number, job in enumerate(jobs):
        where = f"jobs[{number}]"
        if not isinstance(job, Mapping):
            continue  # complete_jobs says what it must be
        try:
            OmegaConf.merge(OmegaConf.structured(JobKeys), job)
        except ConfigKeyError as error:
            inner = ".".join([where, *str(error.full_key).split(".")[:-1]])
            schema: Any = error.object_type
            name = str(error.full_key).rpartition(".")[2]
            if inner == f"{where}.strategy" and name in MOVED:
                moved = moved_to(name, inner)
                raise ConfigError(f"{inner}.{name} is {moved} now") from error
            known = ", ".join(entry.name for entry in dataclasses.fields(schema))
            raise ConfigError(f"unknown key '{where}.{error.full_key}'; {inner} has: {known}") from error
        except OmegaConfBaseException as error:
            raise ConfigError(f"{where}.{error.full_key}: {str(error).splitlines()[0]}") from error
    complete_jobs(jobs)


def is_axis(override: str) -> bool:
    """Say whether an override names several values."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return bool(OverridesParser.create().parse_override(as_hydra_wants([override])[0]).is_sweep_override())


def _point_key(key: str) -> str:
    return "mode" if key == _MODE else key


def _key_of(override: str) -> str:
    return override.partition("=")[0].lstrip("+")


def _settings(config: Any, plain: Sequence[str]) -> dict[str, Any]:
    """Return a composed configuration as a point's settings."""
    settings = {key: _without_missing(config[key]) for key in config if key not in (*_NOT_SETTINGS, *WITH_SCHEMAS)}
    for group in WITH_SCHEMAS:
        settings[group] = _named(group, config[group])
    return settings | {"mode": config.sweep.mode, "fabric_label": chosen(_COMMAND, list(plain), "fabric")}


def _named(group: str, node: Any) -> dict[str, Any]:
    """Return the fields of a group's choice with its registered name; missing ones may yet come from an axis."""
    name = name_of_schema(group, OmegaConf.get_type(node))
    return {"name": name, **_without_missing(node)}


def _without_missing(node: Any) -> Any:
    if not OmegaConf.is_config(node):
        return node
    data = OmegaConf.to_container(node, resolve=True, throw_on_missing=False)
    return {key: value for key, value in data.items() if value != "???"} if isinstance(data, dict) else data


def _command_line_axis(override: str, plain: list[str]) -> Axis:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Glob

    parsed = OverridesParser.create().parse_override(as_hydra_wants([override])[0])
    key = parsed.key_or_group
    value = parsed.value()
    if isinstance(value, Glob):
        found: list[Any] = value.filter(group_choices(key) if key in GROUPS else [])
    else:
        found = axis_values(override, parsed)
    return grid_axes({_point_key(key): [_resolved(key, one, plain) for one in found]}, _HERE)[0]


def _resolved_row(number: int, row: Any, plain: list[str]) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise ConfigError(f"sweep.rows[{number}] is {row!r}; it must be a mapping of keys to values")
    return {_point_key(key): value if key == "label" else _resolved(key, value, plain) for key, value in row.items()}


def _resolved(key: str, value: Any, plain: list[str]) -> Any:
    """Return an axis value with names of presets replaced by what they stand for.

    What the command line says of a group's keys holds for each choice of it.
    """
    if isinstance(value, Value):  # of a machine, resolved already
        return value
    check_bare_numbers(key, value)
    if isinstance(value, str | int | float):
        check_choice(key, [str(value)])
    if key not in _RESOLVED or not isinstance(value, str):
        return value
    overrides = [*(one for one in plain if _key_of(one) != key), f"{key}={value}"]
    with explaining(_COMMAND, overrides):
        node = composed(_COMMAND, tuple(overrides))[key]
        data = _without_missing(node) if key == "strategy" else _named(key, node)
        return Value(value, data, is_preset=True)
