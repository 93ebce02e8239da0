"""Document: a launch file as words: arguments of a command, or dotted keys of YAML, JSON or TOML. Nothing is run.

Example:
    document = read_document("train.sh", {})
    document.words["tensor_model_parallel_size"]    # "2"
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.software.launches.ledger import plain
from rostam_py.software.launches.shell import read_script

_MOST_BYTES = 2**20
_MOST_WORDS = 20_000
_MOST_DEPTH = 30
_NUMBER = re.compile(r"-?\.?\d")
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
SHELL, MAPPING = "shell", "mapping"


@dataclass(frozen=True)
class Document:
    """A file's words.

    kind: SHELL or MAPPING; program: what the command runs; variables: of a script; files: that it writes.
    """

    path: Path
    kind: str
    words: Mapping[str, Any]
    program: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def has(self, *words: str) -> bool:
        """Say whether all of some words are there."""
        return all(word in self.words for word in words)

    def below(self, *sections: str) -> bool:
        """Say whether all of some sections have a key."""
        return all(any(word.startswith(f"{section}.") for word in self.words) for section in sections)


def read_document(path: Path, variables: Mapping[str, str]) -> Document:
    """Return a launch file's words.

    Args: variables: in place of those that a script or a mapping does not set.
    Raises: ConfigError for a file that cannot be read, and for text that is no launch configuration.
    """
    said = f"launch file {str(path)!r}"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{said} has {path.stat().st_size:,} bytes; the most that is read is {_MOST_BYTES:,}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{said} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{said} is no text: {error}") from error
    try:
        mapping = _mapping(path, text)
        if mapping is not None:
            return Document(path, MAPPING, _resolved(flattened(mapping), variables), variables=variables)
        script = read_script(text, variables)
        program, words = arguments(script.words)
        return Document(path, SHELL, words, program, script.variables, script.files)
    except ConfigError as error:
        raise ConfigError(f"{said}: {error}") from error


def _mapping(path: Path, text: str) -> Mapping[str, Any] | None:
    """Return the mapping that a file holds, None for a script or a list of arguments."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".json":
            value = json.loads(text)
        elif suffix == ".toml":
            value = tomllib.loads(text)
        elif suffix in (".yaml", ".yml"):
            import yaml

            value = yaml.safe_load(text)
        else:
            return None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is no {suffix[1:].upper()}: {str(error).splitlines()[0]}") from error
    except Exception as error:  # PyYAML's own
        raise ConfigError(f"it is no {suffix[1:].upper()}: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(f"it holds a {type(value).__name__}; it must be a mapping of keys")
    return value


def flattened(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a nested mapping as dotted keys. Raises: ConfigError for one that is too large or too deep."""
    found: dict[str, Any] = {}
    left: list[tuple[str, Any, int]] = [("", value, 0)]
    while left:
        prefix, one, depth = left.pop(0)
        if depth > _MOST_DEPTH:
            raise ConfigError(f"{prefix[:60]!r} is nested more than {_MOST_DEPTH} times")
        for key, inner in one.items():
            word = f"{prefix}{plain(str(key))}"
            if isinstance(inner, Mapping) and inner:
                left.append((f"{word}.", inner, depth + 1))
            else:
                found[word] = "" if isinstance(inner, Mapping) else inner
            if len(found) + len(left) > _MOST_WORDS:
                raise ConfigError(f"it has more than {_MOST_WORDS:,} keys")
    return found


def _resolved(words: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return words whose ${other.word} is that word's value."""

    def value_of(name: str, depth: int) -> Any:
        value = variables.get(name, words.get(plain(name), words.get(f"variables.{name}")))
        return _with_references(value, depth + 1)

    def _with_references(value: Any, depth: int) -> Any:
        if not isinstance(value, str) or "${" not in value:
            return value
        if depth > _MOST_DEPTH:
            raise ConfigError(f"{value[:60]!r} refers to itself")
        if whole := _REFERENCE.fullmatch(value):
            found = value_of(whole[1], depth)
            return value if found is None else found
        made = _REFERENCE.sub(lambda one: str(one[0] if (v := value_of(one[1], depth)) is None else v), value)
        return made[:10_000]

    return {word: _with_references(value, 0) for word, value in words.items()}


def arguments(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the program that a command runs, and its options: a flag's value is "true", several are a list.

    Options of the launcher are among them; ``key=value`` is an option, too.
    """
    program, found = "", dict[str, Any]()
    name, takes_more = "", False
    values: list[str] = []

    def close() -> None:
        if name:
            found[name] = "true" if not values else values[0] if len(values) == 1 else list(values)

    left = iter(words)
    for word in left:
        if word == "-m" and not program:
            close()
            name, values, program = "", [], next(left, "")
        elif word.startswith("-") and not _NUMBER.match(word):
            close()
            name, equals, value = plain(word).partition("=")
            values, takes_more = [value] if equals else [], True
        elif re.match(r"[+~]*[A-Za-z_][\w.]*=", word):
            close()
            key, _, value = word.lstrip("+~").partition("=")
            name, values, takes_more = plain(key), [value], False
        elif re.search(r"\.py$|\.sh$|^torchtitan\.", word) and (not program or word.endswith(".py")):
            close()
            name, values, program = "", [], word
        elif name and takes_more:
            values.append(word)
        elif program:  # of no option: a file of configuration, or a slip of the pen
            close()
            name, found[word] = "", "true"
    close()
    if len(found) > _MOST_WORDS:
        raise ConfigError(f"it has more than {_MOST_WORDS:,} options")
    return program, found
