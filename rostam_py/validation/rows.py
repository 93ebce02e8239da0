"""Rows and tables: what was measured, as data, and the settings of the run that predicts it.

Example:
    table = Table("V1", rows=(Row("1.7B", {"model": "megatron_1_7b", "machine": {"name": "dgx_a100", "servers": 4}},
                                  {"time_s": 6.1}),))
    run_settings(table.rows[0].keys)["strategy"]["tp"]     # complete settings, as a point of a sweep has them
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.machines import MACHINES
from rostam_py.machines.config import make_machine
from rostam_py.spec.keys import MachineKeys
from rostam_py.spec.settings import Settings, complete_settings
from rostam_py.validation.held_out import HeldOutErrors
from rostam_py.validation.quantities import QUANTITIES, SPEEDUP

Keys = dict[str, Any]  # nested settings of a run, as a row gives them
_MACHINE = "machine"
# What a table's errors are: of what constants were fitted on, of what was held out of that, of whole steps.
CALIBRATED, HELD_OUT, PREDICTED = ("calibrated on", "held out", "predicted")


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    keys: settings of the run; "machine" holds a machine's name and own keys, and the physics of any. measured: quantity
    -> value as printed. shape: what formulas of a quantity need (layers, width, ...). why_not: what the run would need
    that is not modelled, "" for rows that are predicted. assumed: what fills the row beyond its table's rule. line: in
    the source's table or the user's file, 0 where there is none. held_out: errors that a calibration states, of a row
    that is not predicted here. against: settings that make the run into the
    one whose time the quantity "speedup" divides.
    """

    name: str
    keys: Keys
    measured: dict[str, float] = field(default_factory=dict)
    shape: dict[str, Any] = field(default_factory=dict)
    why_not: str = ""
    assumed: str = ""
    line: int = 0
    held_out: HeldOutErrors | None = None
    against: Keys = field(default_factory=dict)

    def __post_init__(self) -> None:
        if SPEEDUP in self.measured and not self.against:
            raise ConfigError(
                f"row {self.name!r} measures {SPEEDUP}; give the settings of the slower run as its against"
            )
        for name in self.measured:
            if name not in QUANTITIES:
                raise UnknownNameError(f"row {self.name!r} measures {name!r}; quantities: {', '.join(QUANTITIES)}")
        if not self.measured and not self.why_not and self.held_out is None:
            raise ConfigError(f"row {self.name!r} measures nothing; give one of: {', '.join(QUANTITIES)}")
        if len({QUANTITIES[name].subject for name in self.measured}) > 1:
            raise ConfigError(f"row {self.name!r} measures {', '.join(self.measured)}; they are not of one subject")

    @property
    def subject(self) -> str:
        """What was measured: a "run", a "collective" or the "layers" of a run's first stage."""
        return next((QUANTITIES[name].subject for name in self.measured), "run")


@dataclass(frozen=True, slots=True)
class Variant:
    """Another way to fill what a table leaves open. keys: settings that replace the row's."""

    label: str
    keys: Keys


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one source.

    rule: how what the source leaves open is filled, the same for all rows. first_that_fits: the rule's choices where it
    depends on memory, tried in order. alternatives: what the source leaves open as well; the spread of a row is over
    those that are feasible. kind: CALIBRATED, HELD_OUT or PREDICTED. bounds: largest mean and worst absolute error [%],
    by what errors are of (MEASURES).
    """

    name: str
    title: str = ""
    source: str = ""
    rule: str = ""
    rows: tuple[Row, ...] = ()
    first_that_fits: tuple[Variant, ...] = ()
    alternatives: tuple[Variant, ...] = ()
    kind: str = PREDICTED
    bounds: dict[str, dict[str, float]] = field(default_factory=dict)


def merged(keys: Mapping[str, Any], more: Mapping[str, Any]) -> Keys:
    """Return settings with others on top, sections key by key."""
    found: Keys = copy.deepcopy(dict(keys))
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else copy.deepcopy(value)
    return found


def run_settings(keys: Mapping[str, Any]) -> Settings:
    """Return the complete settings of a row's run, its machine written out.

    Raises: ConfigError naming key, value and the allowed values.
    """
    given = {key: value for key, value in keys.items() if key != _MACHINE}
    written, physics = _written_out(dict(keys.get(_MACHINE) or {}))
    return complete_settings({"mode": "run", **merged(written, given), "machine": physics})


def _written_out(named: Keys) -> tuple[Keys, Keys]:
    """Return the fabric and the accelerator that a row's machine stands for, and the physics of any."""
    physics = {key: named.pop(key) for key in list(named) if key in MachineKeys.__dataclass_fields__}
    if not named:
        return {}, physics
    if "name" not in named:
        raise ConfigError(f"machine.name is missing; choices: {', '.join(MACHINES)}")
    name = named.pop("name")
    site = make_machine(name, MACHINES.get(name), named).site()
    written = {"fabric": {"name": site.fabric, **site.parameters}, "accelerator": site.accelerator}
    return written, {"watts": site.watts, "usd": site.usd} | physics


def overrides_of(keys: Mapping[str, Any]) -> list[str]:
    """Return a row's settings as overrides of ``rostam run``.

    A machine of whose size a row takes a part, which its name does not allow, is written out.
    """
    named = dict(keys.get(_MACHINE) or {})
    if "name" not in named or not set(MACHINES.get(named["name"]).sizes).intersection(keys.get("fabric") or ()):
        return _overrides(keys)
    site, physics = _written_out(named)
    return _overrides(merged(site, {**keys, _MACHINE: {k: v for k, v in physics.items() if v is not None}}))


def _overrides(keys: Mapping[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key, value in keys.items():
        where = f"{prefix}{key}"
        if isinstance(value, Mapping):
            name = [f"{where}={value['name']}"] if "name" in value else []
            found += name + _overrides({k: v for k, v in value.items() if k != "name"}, f"{where}.")
        else:
            found.append(f"{where}={_text(value)}")
    return found


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    return f"'{text}'" if " " in text or "," in text else text
