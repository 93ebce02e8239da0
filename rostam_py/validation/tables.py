"""Tables: the published rows that are shipped (``data/*.yaml``), a choice of them, and a user's own from a CSV file."""

import csv
import difflib
import fnmatch
import functools
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from rostam_py.documents import undamaged
from rostam_py.errors import ConfigError, RostamError, UnknownNameError
from rostam_py.field_words import in_brackets
from rostam_py.models import registered
from rostam_py.spec.model_names import model_text
from rostam_py.spec.settings import is_setting
from rostam_py.validation.held_out import STATED
from rostam_py.validation.names import table_files, table_names
from rostam_py.validation.quantities import OF_RUNS, QUANTITIES
from rostam_py.validation.rows import CALIBRATED, HELD_OUT, PREDICTED, Keys, Row, Table, Variant, merged, run_settings

_ROW_KEYS = ("name", "measured", "shape", "why_not", "assumed", "line", "against")


@functools.cache
def shipped(name: str) -> Table:
    """Return a shipped table."""
    file = table_files()[name]
    return read_table(file.read_text(encoding="utf-8"), name, file.name)


def read_table(text: str, name: str, where: str) -> Table:
    """Return the table of a YAML text.

    Model: "common" holds what all rows share; a row's own settings go on top. "held_out" names what states the rows.
    Raises: ConfigError naming file and key.
    """
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is no YAML: {str(error).splitlines()[0]}") from error
    with undamaged(where):
        return _table(data, name, where)


def _table(data: Any, name: str, where: str) -> Table:
    known = {
        "title", "calibrated", "held_out", "source", "rule", "common", "first_that_fits", "alternatives", "bounds",
        "rows",
    }  # fmt: skip
    for key in data:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; a table has: {', '.join(sorted(known))}")
    common = data.get("common") or {}
    stated = STATED[data["held_out"]]() if "held_out" in data else ()
    rows = tuple(_row(entry, common) for entry in data.get("rows") or ())
    rows += tuple(Row(name, {}, held_out=errors) for name, errors in stated)
    title, source, rule = (" ".join(str(data.get(key, "")).split()) for key in ("title", "source", "rule"))
    tries, others = (
        tuple(Variant(**one) for one in data.get(key) or ()) for key in ("first_that_fits", "alternatives")
    )
    kind = HELD_OUT if "held_out" in data else CALIBRATED if data.get("calibrated") else PREDICTED
    return Table(name, title, source, rule, rows, tries, others, kind, data.get("bounds") or {})


def _row(entry: Mapping[str, Any], common: Mapping[str, Any]) -> Row:
    own = {key: entry[key] for key in _ROW_KEYS if key in entry}
    keys = merged(common, {key: value for key, value in entry.items() if key not in _ROW_KEYS})
    own["shape"] = merged(keys.pop("shape", {}), own.get("shape") or {})
    row = Row(**own | {"name": str(own["name"])}, keys=keys)
    model = str(keys.get("model", ""))
    if not row.why_not and row.subject != "collective" and registered(model) is None:
        return replace(row, why_not=f"no model {model!r}")
    return row


def select(names: Iterable[str] | None = None, rows: Iterable[str] | None = None) -> list[Table]:
    """Return tables by name, with those of their rows that match one of the patterns ("*70B*", "V1/*").

    Raises: UnknownNameError for an unknown table; ConfigError for patterns that match nothing.
    """
    known = table_names()
    wanted = list(known) if names is None else list(names)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise UnknownNameError(f"unknown table {name!r}{hint}; tables: {', '.join(known)}")
    found = [shipped(name) for name in wanted]
    if rows is None:
        return found
    patterns = [str(one).lower() for one in rows]
    kept = [replace(one, rows=tuple(row for row in one.rows if _matches(one, row, patterns))) for one in found]
    kept = [one for one in kept if one.rows]
    if not kept:
        some = ", ".join(row.name for one in found for row in one.rows[:2])
        raise ConfigError(f"rows is {[str(one) for one in rows]}, which matches no row; rows are, for example: {some}")
    return kept


def _matches(table: Table, row: Row, patterns: Iterable[str]) -> bool:
    names = (row.name.lower(), f"{table.name}/{row.name}".lower())
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


# A user's own measurements


def user_table(path: str | Path) -> Table:
    """Return the table of a user's CSV file: one measurement on each line.

    Args: path: of a file whose first line names columns: "name" (optional), dotted settings of a run ("model",
        "machine", "machine.servers", "strategy.tp", "global_batch", ...), and at least one quantity of QUANTITIES.
        Empty cells leave a setting at its default; lines that begin with # are comments.
    Raises: ConfigError naming line, column, value and the allowed values.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"file is {str(path)!r}, which cannot be read: {error}") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    if len(lines) < 2:
        raise ConfigError(f"{path} has no rows; its first line names the columns, each further one is a measurement")
    try:
        table = list(csv.reader(io.StringIO("\n".join(line for _, line in lines))))
    except csv.Error as error:
        raise ConfigError(f"{path} is no CSV file: {error}") from error
    if len(table) != len(lines):
        raise ConfigError(f"{path}: a cell goes over several lines; quotes are not closed, or not needed")
    columns = [column.strip() for column in table[0]]
    _check_columns(columns, f"{path}, line {lines[0][0]}")
    rows = []
    for (number, _), cells in zip(lines[1:], table[1:], strict=True):
        where = f"{path}, line {number}"
        if len(cells) != len(columns):
            raise ConfigError(f"{where} has {len(cells)} cells; there are {len(columns)} columns: {', '.join(columns)}")
        rows.append(_user_row(dict(zip(columns, map(str.strip, cells), strict=True)), number, where))
    return Table(Path(path).stem, f"measurements of {Path(path).name}", str(path), rows=tuple(rows))


def _check_columns(columns: list[str], where: str) -> None:
    twice = [column for column in columns if columns.count(column) > 1]
    if twice:
        raise ConfigError(f"{where}: column {twice[0]!r} is there twice; give it once")
    for column in columns:
        if column not in OF_RUNS and column != "name" and not is_setting(column):
            near = difflib.get_close_matches(column, [*OF_RUNS, "model", "machine", "global_batch"], n=1)
            hint = in_brackets(column) or (f" (did you mean {near[0]!r}?)" if near else "")
            raise ConfigError(
                f"{where}: column {column!r} is neither a key of rostam run nor measured{hint}; measured are:"
                f" {', '.join(OF_RUNS)}"
            )
    if "model" not in columns:
        raise ConfigError(f"{where}: column 'model' is missing; columns: {', '.join(columns)}")
    if not any(column in OF_RUNS for column in columns):
        raise ConfigError(f"{where}: no column is measured; add one of: {', '.join(OF_RUNS)}")


def _user_row(cells: dict[str, str], number: int, where: str) -> Row:
    keys: Keys = {}
    measured: dict[str, float] = {}
    for column, cell in cells.items():
        if not cell or column == "name":
            continue
        if column in QUANTITIES:
            measured[column] = _positive(cell, f"{where}, column {column}")
        else:
            keys = merged(keys, _nested(column, _scalar(cell, f"{where}, column {column}")))
    if isinstance(keys.get("model"), Mapping):  # a name, or with the length of its sequences
        keys = keys | {"model": model_text(keys["model"])}
    if not measured:
        raise ConfigError(f"{where} measures nothing; fill one of: {', '.join(c for c in cells if c in QUANTITIES)}")
    try:
        run_settings(keys)
    except RostamError as error:
        column = max((c for c in cells if c in str(error) and cells[c]), key=len, default="")
        place = f", column {column}" if column else ""
        raise ConfigError(f"{where}{place}: {error}") from error
    return Row(cells.get("name") or f"line {number}", keys, measured, line=number)


def _positive(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{where} is {cell!r}; it must be a number > 0")
    return value


def _scalar(cell: str, where: str) -> Any:
    try:
        return yaml.safe_load(cell)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is {cell!r}, which cannot be read; check its brackets and quotes") from error


def _nested(column: str, value: Any) -> Keys:
    """Return {"strategy": {"tp": 4}} of "strategy.tp"; what is a name of a group becomes {"name": ...}."""
    head, _, rest = column.partition(".")
    if rest:
        return {head: _nested(rest, value)}
    return {head: {"name": value}} if head in ("machine", "fabric", "cost", "software", "model") else {head: value}
