"""Names of models, and the key model.sequence_length: a registered model at another length of its sequences.

Example:
    model_text({"name": "llama3_8b", "sequence_length": 32768})     # "llama3_8b@32768"
    with_part("gpt_125m", "sequence_length", 4096)                  # what model_text takes
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.field_words import in_brackets
from rostam_py.graph.storage import is_graph_file
from rostam_py.models import AT_LENGTH, MAX_LENGTH, MODELS, misnamed, registered

GIVEN = "graph:"  # before the name of a graph that the caller brings
OWN_MODELS = "path/to/file.py:Class, or a saved graph's path/to/graph.json.gz"  # other names of a model
LENGTH = "sequence_length"
LENGTH_KEY = f"model.{LENGTH}"
LENGTH_WORDS = (
    "tokens of one sample, for a registered model with sequences, in place of the model's own length (rostam list"
    " models); a table of learned positions gets a row for each token. model=NAME@LENGTH is the same."
)


def is_own_model(model: str) -> bool:
    """Say whether a model's name is of the form of OWN_MODELS."""
    return ".py:" in model or is_graph_file(model)


def is_model(name: str) -> bool:
    """Say whether a name is that of a registered model, at its own length or another.

    Raises: ConfigError for a length that the model cannot have.
    """
    if wrong := misnamed(name):
        raise ConfigError(wrong)
    return registered(name) is not None


def check_model(model: Any) -> None:
    """Raise unless the model is registered, or names an existing file: "file.py:Class", or a saved graph's."""
    if not isinstance(model, str) or not model:
        raise ConfigError(f"model is {model!r}; it must be a registered name or {OWN_MODELS}")
    if model.startswith(GIVEN):
        return  # whoever brings the graphs says which there are
    if is_own_model(model):
        path = Path(model if is_graph_file(model) else model.rpartition(":")[0])
        try:
            is_there = path.is_file()
        except (OSError, ValueError):
            is_there = False
        if not is_there:
            raise ConfigError(f"model is {model!r}, but there is no file {str(path)!r}")
    elif not is_model(model):
        raise UnknownNameError(f"unknown model {model!r}; registered: {', '.join(sorted(MODELS))}; or {OWN_MODELS}")


def with_part(model: Any, part: str, value: Any) -> Any:
    """Return a model with a key below it set, or with its name ("name") replaced, as ``model_text`` takes it."""
    if part == "name" and not isinstance(model, Mapping):
        return value
    return {**(model if isinstance(model, Mapping) else {"name": model}), part: value}


def model_text(given: Any, where: str = "model") -> Any:
    """Return the name of a model that is given with the length of its sequences; a name as it is.

    Raises: ConfigError for other keys, for a length of what is not registered, or has one already.
    """
    if not isinstance(given, Mapping):
        return given
    for key in given:
        if key not in ("name", LENGTH):
            hint = in_brackets(str(key), given[key])
            raise ConfigError(f"unknown key '{where}.{key}'{hint}; {where} has: name, {LENGTH}")
    name, length = given.get("name"), given.get(LENGTH)
    if length is None:
        return name
    return at_length(name, length, where)


def at_length(name: Any, length: Any, where: str = "model") -> str:
    """Return the name of a registered model at another length.

    Raises: ConfigError for a model that has none, and for a length that is none.
    """
    said = f"{where}.{LENGTH} is {_short(length)}"
    if not isinstance(name, str) or str(name).partition(AT_LENGTH)[0] not in MODELS:
        raise ConfigError(
            f"{said}, but {where} is {name!r}: registered models alone can be made at another length (rostam list"
            " models); those of a file have that of their example inputs, saved graphs that of their trace"
        )
    if AT_LENGTH in name:
        raise ConfigError(f"{said}, but {where} is {name!r}, which has a length; give one of them")
    if not MODELS[name].tokens:
        raise ConfigError(f"{said}, but the samples of model {name} are {MODELS[name].samples}: they have no sequence")
    try:
        found = int(str(length)) if not isinstance(length, bool | float) else 0
    except ValueError:
        found = 0
    if not 1 <= found <= MAX_LENGTH:
        raise ConfigError(f"{said}; it must be an integer from 1 to {MAX_LENGTH:,}")
    return f"{name}{AT_LENGTH}{found}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
