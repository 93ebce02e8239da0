"""Lookup: what the schemas say of a dotted key, such as "software.rules.bucket_size", "jobs.0.start" or "fabric.radix".

Example:
    unit_of("software.rules.bucket_size")         # "size"
    choices_of("routing")                   # ["hash", "spray", ...]
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

from rostam_py.spec.keys import all_keys


def is_key(key: str, schema: Any = None) -> bool:
    """Say whether there is a dotted key, below what is given by name for any of its choices. Args: as ``unit_of``."""
    entry, rest = _entry_at(key, schema)
    known = all_keys() if schema is None else {one.name: one for one in dataclasses.fields(schema)}
    if key in known or entry is None:
        return key in known
    return not rest or "keys" in entry.metadata or _is_inner(rest, entry.metadata.get("inner", ()))


def _is_inner(rest: str, inner: Iterable[str]) -> bool:
    """Say whether a key is one of those below a name, of which "args.NAME" stands for any name."""
    return any(rest == one or (one.endswith(".NAME") and rest.startswith(one.removesuffix("NAME"))) for one in inner)


def unit_of(key: str, schema: Any = None) -> str | None:
    """Return what a dotted key is measured in: "bandwidth", "time" or "size"; None for one without a unit.

    Args: schema: the dataclass that the key is of; None takes the keys of all points.
    """
    entry, rest = _entry_at(key, schema)
    if entry is None:
        return None
    units: Callable[[str], str | None] | None = entry.metadata.get("units")
    return units(rest) if rest and units is not None else None if rest else entry.metadata.get("unit")


def choices_of(key: str, schema: Any = None) -> list[str] | None:
    """Return the names that are known for a dotted key, None where it takes none. Args: as ``unit_of``."""
    entry, rest = _entry_at(key, schema)
    if entry is None or "choices" not in entry.metadata:
        return None
    choices: Callable[..., Iterable[str]] | Iterable[str] = entry.metadata["choices"]
    if "keys" in entry.metadata:
        return list(choices(rest)) if callable(choices) and rest in entry.metadata["keys"]() else None
    return None if rest else list(choices() if callable(choices) else choices)


def is_list(key: str, schema: Any = None) -> bool:
    """Say whether a dotted key takes a list."""
    entry, rest = _entry_at(key, schema)
    return entry is not None and not rest and "list[" in str(entry.type)


def is_boolean(key: str, schema: Any = None) -> bool:
    """Say whether a dotted key takes true or false."""
    entry, rest = _entry_at(key, schema)
    return entry is not None and not rest and entry.type in (bool, bool | None)


def is_sequence(key: str, schema: Any = None) -> bool:
    """Say whether a dotted key takes names in an order, "tp,cp,pp,dp", as one value."""
    entry, rest = _entry_at(key, schema)
    return entry is not None and not rest and bool(entry.metadata.get("is_sequence"))


def inner_keys(key: str, schema: Any = None) -> list[str]:
    """Return the keys that a mapping whose keys are names may have: of strategy.algorithms the collectives."""
    entry, _ = _entry_at(key, schema)
    return [] if entry is None or "keys" not in entry.metadata else list(entry.metadata["keys"]())


def _entry_at(key: str, schema: Any) -> tuple[dataclasses.Field[Any] | None, str]:
    """Return the field that a dotted key leads to or through ("jobs.0.start", "jobs[0].start"), and what is left."""
    parts = [part for part in re.split(r"[.\[\]]+", key) if part and not part.isdecimal()]
    entries = all_keys() if schema is None else {entry.name: entry for entry in dataclasses.fields(schema)}
    for number, part in enumerate(parts):
        if part not in entries:
            return None, ""
        entry = entries[part]
        schemas = _schemas_of(entry)
        if not schemas:
            return entry, ".".join(parts[number + 1 :])
        entries = {inner.name: inner for one in schemas for inner in dataclasses.fields(one)}
    return None, ""


def _schemas_of(entry: dataclasses.Field[Any]) -> list[Any]:
    """Return the dataclasses of what a field holds, none for a single value."""
    if "schemas" in entry.metadata:
        return list(entry.metadata["schemas"]())
    return [entry.default_factory] if dataclasses.is_dataclass(entry.default_factory) else []
