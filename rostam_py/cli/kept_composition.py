"""Compositions kept between runs: what Hydra made of the chosen groups, to which plain ``key=value`` are applied here.

Loading Hydra and composing take longer than most simulations. A composition of the groups alone is kept in the user's
cache directory until a preset or a schema changes. Overrides that are plain, a number, a word, a quantity or a list of
those behind a key of such a type, are applied to it as Hydra would; whatever else is given, and whatever is wrong,
Hydra composes and explains. What is kept was compared with what Hydra composed when it was kept.

Example:
    kept = composition("run", ["fabric=torus_8x8", "strategy.tp=8"])      # None: ask Hydra
    kept.config, kept.yaml
"""

import dataclasses
import hashlib
import json
import re
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostam_py.cli.bare_numbers import check_bare_numbers
from rostam_py.cli.choices import GROUPS, WITH_SCHEMAS, check_choice, schema_in, user_folders
from rostam_py.cli.schema import command_schema, name_of_schema
from rostam_py.documents import cache_folder, write_whole
from rostam_py.errors import RostamError
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.sizes import first_of_whole, resize_parameters
from rostam_py.spec.keys import strategy_class

_KEY = re.compile(r"[a-z]\w*(\.[a-z]\w*)*")
_INTEGER = re.compile(r"0|-?[1-9]\d{0,15}")
_DECIMAL = re.compile(r"-?\d{1,15}\.\d{1,15}")
_WORD = re.compile(r"[A-Za-z_/][\w/.\-]*(:[A-Za-z_]\w*|@\d+)?")
_QUANTITY = re.compile(r"\d+(\.\d+)? [A-Za-z]+(/s)?")
_RESERVED = ("null", "true", "false", "inf", "nan")  # in any case
_FLAGS = {"true": True, "false": False}  # in any case
_MISSING = "???"
_SCHEMAS_IN = (
    "cli",
    "collectives",
    "configs",
    "convergence",
    "costs",
    "fabrics",
    "plan",
    "report/sinks",
    "software",
    "spec",
)


class _NotPlainError(Exception):
    """An override, or a composition, that is left to Hydra."""


@dataclass(frozen=True)
class Composition:
    """A command's typed configuration, and what it was made of."""

    config: Any
    container: dict[str, Any]

    @property
    def yaml(self) -> str:
        """Text of the configuration, as it is kept with a result."""
        return _yaml(self.container)


def composition(command: str, overrides: Sequence[str]) -> Composition | None:
    """Return what Hydra would compose, None where it must be asked."""
    try:
        choices, values = _sorted(overrides)
        text = _path(command, choices).read_text(encoding="utf-8")
        return _composition(command, json.loads(text), values)
    except (_NotPlainError, RostamError, OSError, ValueError, KeyError, TypeError):
        return None


def keep(command: str, overrides: Sequence[str], compose: Any, config: Any) -> None:
    """Keep the composition of the groups that overrides choose, if it gives what Hydra has made of all of them.

    Args:
        compose: returns Hydra's composition of a command and overrides.
        config: the typed configuration of the overrides.
    """
    from omegaconf import OmegaConf

    try:
        choices, values = _sorted(overrides)
        composed = compose(command, tuple(choices))
        record = {
            "values": OmegaConf.to_container(composed),
            "schemas": {
                group: _name(group, OmegaConf.get_type(composed[group])) for group in WITH_SCHEMAS if group in composed
            },
        }
        text = json.dumps(record)
        made = _composition(command, json.loads(text), values)
        if made.config != config or made.yaml != OmegaConf.to_yaml(compose(command, tuple(overrides))):
            return
        path = _path(command, choices)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    except (_NotPlainError, RostamError, OSError, ValueError, KeyError, TypeError):
        return


def clear() -> None:
    """Delete the kept compositions."""
    for path in cache_folder("compositions").glob("*.json"):
        path.unlink(missing_ok=True)


def _sorted(overrides: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the overrides that choose of groups, and the other (key, value)."""
    pairs = [(key, value) for key, _, value in (one.partition("=") for one in overrides)]
    keys = [key for key, _ in pairs]
    is_hydras = any(key.partition(".")[0] == "hydra" for key in keys)
    if is_hydras or len(set(keys)) < len(keys) or not all(map(_KEY.fullmatch, keys)):
        raise _NotPlainError
    choices = sorted(f"{key}={value}" for key, value in pairs if key in GROUPS)
    if not all(re.fullmatch(r"\w+", one.partition("=")[2]) for one in choices):
        raise _NotPlainError
    return choices, [(key, value) for key, value in pairs if key not in GROUPS]


def _path(command: str, choices: list[str]) -> Path:
    text = json.dumps([command, choices, _sources()])
    return cache_folder("compositions") / f"{command}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _sources() -> str:
    """Return a digest of the names, times and sizes of the files that schemas and presets stand in."""
    import rostam_py.configs

    package = Path(__file__).parents[1]
    own = [package / name for name in _SCHEMAS_IN if name != "configs"]
    folders = [*own, Path(next(iter(rostam_py.configs.__path__))), *user_folders()]
    files = sorted(path for folder in folders for kind in ("*.py", "*.yaml") for path in folder.rglob(kind))
    stamps = [(str(path), one.st_mtime_ns, one.st_size) for path in files for one in (path.stat(),)]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


def _name(group: str, schema: Any) -> str:
    if not schema.__module__.startswith("rostam_py."):
        raise _NotPlainError  # a plug-in's, whose file is not among the sources
    return name_of_schema(group, schema)


def _composition(command: str, record: dict[str, Any], values: list[tuple[str, str]]) -> Composition:
    """Return a kept composition with values set.

    Raises: _NotPlainError, or what the schemas raise, where Hydra has to explain.
    """
    schema = command_schema(command)
    schemas = {group: schema_in(group, name) for group, name in record["schemas"].items()}
    container: dict[str, Any] = record["values"]
    if "${" in json.dumps(container):
        raise _NotPlainError
    for key, value in values:
        check_choice(key, [value], schema)
        _set(container, schema, schemas, key.split("."), value)
    for key, value in container.items():
        check_bare_numbers(key, value, schema)
    checked = schemas | {"strategy": strategy_class(command)}
    return Composition(_made(schema, _sized(container, record["schemas"]["fabric"]), checked), container)


def _sized(container: dict[str, Any], fabric: str) -> dict[str, Any]:
    """Return a configuration whose fabric has num_accelerators, where that is given."""
    size = container.get("num_accelerators")
    if size is None:
        return container
    if first_of_whole(fabric, check_integer("num_accelerators", size, 1))[1] is not None:
        raise _NotPlainError
    given = {key: value for key, value in container["fabric"].items() if value != _MISSING}
    changed = resize_parameters(fabric, given, size)
    return {**container, "fabric": {**container["fabric"], **changed}}


def _set(inside: dict[str, Any], schema: Any, schemas: dict[str, Any], path: list[str], text: str) -> None:
    """Set the value behind a path of keys."""
    name, *rest = path
    kind = schemas.get(name) or typing.get_type_hints(schema)[name]
    if name not in inside:
        raise _NotPlainError
    if not rest:
        inside[name] = _value(kind, text)
    elif dataclasses.is_dataclass(kind) and isinstance(inside[name], dict):
        _set(inside[name], kind, {}, rest, text)
    else:
        raise _NotPlainError


def _value(kind: Any, text: str) -> Any:
    """Return the value that Hydra would read for a key of a type."""
    if isinstance(kind, types.UnionType):
        if text == "null":
            return None
        kind, *others = (one for one in typing.get_args(kind) if one is not types.NoneType)
        if others:
            raise _NotPlainError
    if typing.get_origin(kind) is list or (kind is Any and text[:1] == "["):
        if text[:1] != "[" or text[-1:] != "]":
            raise _NotPlainError
        (inner,) = typing.get_args(kind) or (Any,)
        return [_value(inner, one) for one in text[1:-1].split(",")]
    is_text = bool(_WORD.fullmatch(text)) and text.lower() not in _RESERVED
    for type_, matches, read in (
        (int, _INTEGER.fullmatch(text), int),
        (float, _DECIMAL.fullmatch(text), float),
        (bool, text.lower() in _FLAGS, lambda text: _FLAGS[text.lower()]),
        (str, is_text or _QUANTITY.fullmatch(text), str),
    ):
        if matches and kind in (type_, Any):
            return read(text)
    raise _NotPlainError


def _made(schema: Any, container: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return a dataclass of a mapping, and of those inside."""
    hints = typing.get_type_hints(schema)
    given = {}
    for name, value in container.items():
        kind = schemas.get(name) or hints[name]
        if isinstance(value, str) and value == _MISSING:
            raise _NotPlainError
        given[name] = _made(kind, value, {}) if dataclasses.is_dataclass(kind) and isinstance(value, dict) else value
    return schema(**given)


def _yaml(container: dict[str, Any]) -> str:
    """Return a configuration as OmegaConf writes it."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes texts that would be read as something else, as OmegaConf's does."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "'" if text in _YAML_FLAGS or _is_number(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    return yaml.dump(container, default_flow_style=False, allow_unicode=True, sort_keys=False, Dumper=Dumper)


_FLAG_WORDS = ("y", "yes", "n", "no", "true", "false", "on", "off")
_YAML_FLAGS = frozenset(case(word) for word in _FLAG_WORDS for case in (str, str.capitalize, str.upper))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
