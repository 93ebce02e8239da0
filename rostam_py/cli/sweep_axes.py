"""Axes of ``rostam sweep``: Hydra's sweep grammar and sweep.grid, sweep.rows turned into axes of resolved values."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from rostam_py.cli.choices import GROUPS, check_choice, group_choices
from rostam_py.cli.compose import as_hydra_wants, check_overrides, check_units, chosen, composed, explaining
from rostam_py.cli.schema import STRATEGY_UNITS
from rostam_py.cli.sweep_schema import SweepSection
from rostam_py.costs import COST_MODELS
from rostam_py.errors import ConfigError, UnitError
from rostam_py.fabrics import FABRICS
from rostam_py.report.wandb_sink import WandbOptions
from rostam_py.sweep.points import Axis, Value, grid_axes, row_axis

_COMMAND = "sweep"
_RESOLVED = ("fabric", "cost", "strategy")  # groups that an axis may run over
# Keys of the configuration that say how a sweep runs, not what a point is.
_NOT_SETTINGS = ("sweep", "report", "wandb", "out")
_MODE = "sweep.mode"  # a point's "mode"
_EXAMPLES = {"bandwidth": "400 Gb/s", "time": "5 us", "size": "25 MB"}


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

    A key of sweep.grid that the command line gives, with one value or several, is the command line's.

    Raises: ConfigError for bad keys, names, types and units, before any work.
    """
    check_overrides(_COMMAND, overrides, allow_lists=True)
    plain = [one for one in overrides if not is_axis(one)]
    with explaining(_COMMAND, plain):
        config = composed(_COMMAND, tuple(plain))
        check_units(config)
        section: Any = OmegaConf.to_object(config.sweep)
        wandb: Any = OmegaConf.to_object(config.wandb)
    axes = [_command_line_axis(one, plain) for one in overrides if is_axis(one)]
    if section.rows:
        axes.append(row_axis([_resolved_row(number, row, plain) for number, row in enumerate(section.rows)]))
    given = {_key_of(one) for one in overrides}
    for key, values in section.grid.items():
        if key in given:
            continue  # the command line goes before an experiment's grid
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ConfigError(f"sweep.grid.{key} is {values!r}; it must be a list of values")
        axes.extend(grid_axes({_point_key(key): [_resolved(key, value, plain) for value in values]}))
    for axis in axes:
        if axis.key.partition(".")[0] in _NOT_SETTINGS:
            raise ConfigError(f"{axis.key} cannot be an axis: it says how the sweep runs, not what a point is")
    settings = _settings(config, plain)
    return SweepCommand(settings, axes, section, wandb, bool(config.report), config.out)


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
    settings = {key: _without_missing(config[key]) for key in config if key not in (*_NOT_SETTINGS, "fabric", "cost")}
    for group in ("fabric", "cost"):
        settings[group] = _named(group, config[group])
    del settings["search"]["show"]
    return settings | {"mode": config.sweep.mode, "fabric_label": chosen(_COMMAND, list(plain), "fabric")}


def _named(group: str, node: Any) -> dict[str, Any]:
    """Return the fields of a group's choice with its registered name; what is missing may yet come from an axis."""
    registry = {"fabric": FABRICS, "cost": COST_MODELS}[group]
    schema = OmegaConf.get_type(node)
    name = next(
        one for one in registry if (registry.get(one) if group == "fabric" else registry.get(one).Config) is schema
    )
    return {"name": name, **_without_missing(node)}


def _without_missing(node: Any) -> Any:
    if not OmegaConf.is_config(node):
        return node
    data = OmegaConf.to_container(node, resolve=True, throw_on_missing=False)
    return {key: value for key, value in data.items() if value != "???"} if isinstance(data, dict) else data


def _command_line_axis(override: str, plain: list[str]) -> Axis:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Glob, QuotedString, Transformer

    parsed = OverridesParser.create().parse_override(as_hydra_wants([override])[0])
    key = parsed.key_or_group
    value = parsed.value()
    if isinstance(value, Glob):
        found: list[Any] = value.filter(group_choices(key) if key in GROUPS else [])
    else:
        found = list(parsed.sweep_iterator(transformer=Transformer.identity))
    texts = [one.text if isinstance(one, QuotedString) else one for one in found]
    return grid_axes({_point_key(key): [_resolved(key, one, plain) for one in texts]})[0]


def _resolved_row(number: int, row: Any, plain: list[str]) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise ConfigError(f"sweep.rows[{number}] is {row!r}; it must be a mapping of keys to values")
    return {_point_key(key): value if key == "label" else _resolved(key, value, plain) for key, value in row.items()}


def _resolved(key: str, value: Any, plain: list[str]) -> Any:
    """Return an axis value with names of presets replaced by what they stand for."""
    _check_unit(key, value)
    if isinstance(value, str):
        check_choice(key, [value])
    if key not in _RESOLVED or not isinstance(value, str):
        return value
    overrides = [*(one for one in plain if not one.startswith((f"{key}=", f"{key}."))), f"{key}={value}"]
    if key != "strategy":  # what the command line says of a group holds for each choice of it that has the key
        overrides += [one for one in plain if one.startswith(f"{key}.")]
    with explaining(_COMMAND, overrides):
        node = composed(_COMMAND, tuple(overrides))[key]
        return Value(value, _without_missing(node) if key == "strategy" else _named(key, node))


def _check_unit(key: str, value: Any) -> None:
    """Refuse bare numbers where a unit is needed (MODEL A6)."""
    head, _, rest = key.partition(".")
    if isinstance(value, bool) or not isinstance(value, int | float) or value == 0:
        return
    unit = {"fabric": _fabric_units(), "strategy": STRATEGY_UNITS}.get(head, {}).get(rest)
    if unit is not None:
        raise UnitError(f"{key} is {value}, a number without a unit; write for example '{_EXAMPLES[unit]}'")


def _fabric_units() -> dict[str, str]:
    schemas = [FABRICS.get(name) for name in FABRICS]
    entries = [entry for schema in schemas for entry in dataclasses.fields(schema)]
    return {entry.name: entry.metadata["unit"] for entry in entries if entry.metadata.get("unit")}
