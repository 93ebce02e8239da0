"""Machines by name in the rows and the grid of a sweep, written out as the fabric, accelerators, power and price.

Example:
    rows, grid = with_machines([{"machine": "dgx_h100", "accelerator_usd_per_hour": 3.0}, {"machine": "dgx_a100"}], {})
    rows, grid = with_machines([], {"machine": ["dgx_a100", "dgx_h100"], "machine.servers": [2, 4]})   # four rows
"""

import dataclasses
import difflib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.machines import MACHINES
from rostam_py.machines.config import Site, make_machine
from rostam_py.spec.keys import MachineKeys
from rostam_py.sweep.axes import Value

MACHINE = "machine"
_SETTINGS = {entry.name for entry in dataclasses.fields(MachineKeys)}  # machine.KEY of any machine, named or not
_BANDWIDTHS = {"link_bandwidth", "accelerator_bandwidth"}  # the one that is given goes before the machine's
_WHOLE = ("fabric", "num_accelerators")  # what a machine decides by itself

Row = Mapping[str, Any]


def with_machines(
    rows: Sequence[Row],
    grid: Mapping[str, Sequence[Any]],
    *,
    base: Row | None = None,
    fixed: Row | None = None,
    varied: Collection[str] = (),
) -> tuple[list[Row], dict[str, Sequence[Any]]]:
    """Return rows and grid with machines' names, and their own keys, replaced by what they stand for.

    Model: keys set with the machine, in its row or for all points, go before its own; its size is its own. Machines of
        the grid are rows: each row has each of them.
    Args:
        base: a machine that rows and grid only vary: {"machine": "dgx_h100", "machine.servers": 2}.
        fixed: {dotted key: value} of what is set for every point.
        varied: keys of other axes.
    Raises: UnknownNameError for a machine that is none; ConfigError for a key that it does not have, that contradicts
        it, or that row and grid both set.
    """
    own = {key: values for key, values in grid.items() if is_own_key(key)}
    if not own and not any(is_own_key(key) for row in rows if isinstance(row, Mapping) for key in row):
        return list(rows), dict(grid)
    for key, values in own.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ConfigError(f"axis {key} is {values!r}; it must be a list of values")
    rest = {key: values for key, values in grid.items() if key not in own}
    choices = [dict(zip(own, values, strict=True)) for values in itertools.product(*own.values())]
    given = _Given(fixed or {}, {*varied, *rest})
    found: list[Row] = []
    for number, row in enumerate(rows or [{}]):
        where = f"sweep.rows[{number}]" if rows else "sweep.grid"
        if not isinstance(row, Mapping):
            raise ConfigError(f"{where} is {row!r}; it must be a mapping of keys to values")
        if twice := [key for key in own if key in row]:
            raise ConfigError(f"{twice[0]} is set by {where} and by sweep.grid: drop one of them")
        found += [_written_out({**(base or {}), **choice, **row}, choice, where, given) for choice in choices]
    return found, rest


def is_own_key(key: str) -> bool:
    """Say whether a key is a machine's name or one of its own keys, such as ``machine.servers``."""
    section, _, inner = key.partition(".")
    return section == MACHINE and inner not in _SETTINGS


def machine_words(name: str, own: Row) -> str:
    """Return a machine in words: "dgx_h100 servers 4"."""
    return " ".join([name, *(f"{key} {value}" for key, value in own.items())])


def check_machine(name: Any) -> str:
    """Return the name of a registered machine. Raises: UnknownNameError with those there are."""
    if not isinstance(name, str) or name not in MACHINES:
        near = difflib.get_close_matches(str(name), MACHINES.names(), n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UnknownNameError(f"unknown machine {name!r}{hint}; choices: {', '.join(MACHINES)}")
    return name


def figures_of(site: Site) -> dict[str, Any]:
    """Return what a machine sets besides its fabric."""
    return {"accelerator": site.accelerator, "machine.watts": site.watts, "machine.usd": site.usd}


@dataclass(frozen=True, slots=True)
class _Given:
    """What is set besides a row: fixed values for all points, and keys that other axes vary."""

    fixed: Row
    varied: set[str]

    def __contains__(self, key: str) -> bool:
        return key in self.fixed or key in self.varied

    def of_fabric(self) -> dict[str, Any]:
        """Return the fixed parameters of fabrics."""
        return {_inner(key): value for key, value in self.fixed.items() if key.startswith("fabric.")}


def _inner(key: str) -> str:
    return key.partition(".")[2]


def _written_out(row: Row, choice: Row, where: str, given: _Given) -> dict[str, Any]:
    """Return a row with its machine as the fabric and figures that it stands for. Args: choice: of the grid's."""
    own = {_inner(key): row[key] for key in row if is_own_key(key) and key != MACHINE}
    others = {key: value for key, value in row.items() if not is_own_key(key) and key != "label"}
    if MACHINE not in row:
        if not own:
            return dict(row)
        raise ConfigError(f"{where} sets machine.{next(iter(own))}, which goes with a machine by name: machine=NAME")
    name = check_machine(row[MACHINE])
    config = make_machine(name, MACHINES.get(name), own)
    for key in (*_WHOLE, *(f"fabric.{size}" for size in config.sizes)):
        if key in others or key in given:
            raise ConfigError(f"{where} names the machine {name}, which decides {key}: drop {key}")
    site, words = config.site(), machine_words(name, own)
    set_inside = {_inner(key) for key in (*others, *given.fixed, *given.varied) if key.startswith("fabric.")}
    set_inside |= _BANDWIDTHS if set_inside & _BANDWIDTHS else set()
    parameters = {key: value for key, value in site.parameters.items() if key not in set_inside}
    fabric = Value(words, {"name": site.fabric, **parameters, **given.of_fabric()}, is_preset=True)
    figures = {key: value for key, value in figures_of(site).items() if key not in given}
    label = (
        [row["label"], *(f"{_inner(key) or key} {value}" for key, value in choice.items())] if "label" in row else []
    )
    said = " ".join(map(str, label)) or ", ".join([words, *(f"{key}={value}" for key, value in others.items())])
    return {"label": said, "fabric": fabric, **figures, **others}
