"""Names of models, and the keys below ``model.``: length of sequences, number of layers, arguments.

Example:
    model_text({"name": "llama3_8b", "sequence_length": 32768})     # "llama3_8b@32768"
    model_text({"name": "mlp.py:Mlp", "args.depth": 4})             # "mlp.py:Mlp@args.depth=4"
    with_part("gpt_125m", "sequence_length", 4096)                  # what model_text takes
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.field_words import in_brackets
from rostam_py.graph.naming import ARGUMENT, LAYERS, LENGTH, ModelName, check_sizes
from rostam_py.models import AT_LENGTH, FAMILIES, MAX_LENGTH, MODELS, misnamed

GIVEN = "graph:"  # before the name of a graph that the caller brings
# Other names of a model.
OWN_MODELS = (
    "path/to/file.py:Class, a Hugging Face configuration's path/to/config.json, its folder or hf:ORGANISATION/NAME of"
    " the local cache, or a saved graph's path/to/graph.json.gz"
)
LENGTH_KEY = f"model.{LENGTH}"
_SIZED = ("registered", "family", "hugging_face")
KEY_WORDS = {
    LENGTH: (
        "tokens of one sample, for a registered model with sequences or a Hugging Face configuration, in place of the"
        " model's own length (rostam list models); a table of learned positions gets a row for each token. model="
        "NAME@LENGTH is the same."
    ),
    LAYERS: "number of layers of a registered model or a Hugging Face configuration, in place of its own.",
    f"{ARGUMENT}NAME": "argument that a model's class in path/to/file.py is built with, or a size of model=decoder.",
}


def is_own_model(model: str) -> bool:
    """Say whether a model's name is of the form of OWN_MODELS, or a member of a family."""
    return ModelName.parse(model).kind not in ("", "registered")


def is_model(name: str) -> bool:
    """Say whether a name is that of a registered model, at its own length or another.

    Raises: ConfigError for a length that the model cannot have.
    """
    if wrong := _misnamed(name):
        raise ConfigError(wrong)
    parts = ModelName.parse(name)
    check_sizes(parts)
    return parts.kind == "registered" and not parts.arguments


def _misnamed(name: str) -> str:
    """Say what is wrong with a registered model's length; "" if nothing is. Its other parts are left out."""
    parts = ModelName.parse(name)
    if parts.kind != "registered":
        return misnamed(name)
    return misnamed(f"{parts.base}{AT_LENGTH}{parts.parts[LENGTH]}") if LENGTH in parts.parts else ""


def check_model(model: Any) -> None:
    """Raise unless the model is registered, or names an existing file: "file.py:Class", or a saved graph's."""
    if not isinstance(model, str) or not model:
        raise ConfigError(f"model is {model!r}; it must be a registered name or {OWN_MODELS}")
    if model.startswith(GIVEN):
        return  # whoever brings the graphs says which there are
    name = ModelName.parse(model)
    if name.kind in ("", "registered"):
        if not is_model(model):
            raise UnknownNameError(f"unknown model {model!r}; registered: {', '.join(sorted(MODELS))}; or {OWN_MODELS}")
        return
    _check_parts(name, model)
    if name.kind == "hugging_face":
        from rostam_py.tracing.hugging_face_config import find_config, read_config

        read_config(find_config(name.base))
    elif name.kind != "family":
        path = Path(name.base if name.kind == "graph" else name.base.rpartition(":")[0])
        try:
            is_there = path.is_file()
        except (OSError, ValueError):
            is_there = False
        if not is_there:
            raise ConfigError(f"model is {model!r}, but there is no file {str(path)!r}")


def _check_parts(name: ModelName, model: str) -> None:
    """Raise ConfigError for a part of a name that models of its kind have not."""
    check_sizes(name)
    sizes = [key for key in name.parts if key in (LENGTH, LAYERS)]
    wrong = [key for key in sizes if name.kind not in _SIZED] + [key for key in name.parts if name.kind == "graph"]
    wrong += [key for key in name.parts if key == LAYERS and name.kind == "family"]
    wrong += [f"{ARGUMENT}{key}" for key in name.arguments if name.kind == "hugging_face"]
    if wrong:
        raise _has_none(name, wrong[0], repr(model))


def _has_none(name: ModelName, key: str, shown: str, where: str = "model") -> ConfigError:
    said = f"{where}.{key} is {_short(name.parts[key])}, but {where} is {shown}"
    if key.startswith(ARGUMENT):
        return ConfigError(
            f"{said}: arguments are those of a class in a file, FILE.py:CLASS, or of: {', '.join(FAMILIES)}"
        )
    return ConfigError(
        f"{said}: registered models alone and Hugging Face configurations can be made at another length or depth"
        " (rostam list models); those of a file have that of their example inputs and arguments, saved graphs that of"
        " their trace"
    )


def with_part(model: Any, part: str, value: Any) -> Any:
    """Return a model with a key below it set, or with its name ("name") replaced, as ``model_text`` takes it."""
    if part == "name" and not isinstance(model, Mapping):
        return value
    return {**(model if isinstance(model, Mapping) else {"name": model}), part: value}


def model_text(given: Any, where: str = "model") -> Any:
    """Return the name of a model that is given with the keys below it; a name as it is.

    Raises: ConfigError for other keys, for one that the model has not, or has already.
    """
    if not isinstance(given, Mapping):
        return given
    parts: dict[str, Any] = {}
    for key, value in given.items():
        if key == "args" and isinstance(value, Mapping):
            parts |= {f"{ARGUMENT}{inner}": one for inner, one in value.items()}
        elif key in (LENGTH, LAYERS) or str(key).startswith(ARGUMENT):
            parts[str(key)] = value
        elif key != "name":
            hint = in_brackets(str(key), given[key])
            known = f"name, {LENGTH}, {LAYERS}, {ARGUMENT}NAME"
            raise ConfigError(f"unknown key '{where}.{key}'{hint}; {where} has: {known}")
    name = given.get("name")
    for key in (LENGTH, LAYERS):
        if parts.get(key, 0) is None:
            del parts[key]
    if not parts:
        return name
    return _with_parts(name, parts, where)


def _with_parts(name: Any, parts: dict[str, Any], where: str) -> str:
    base = ModelName.parse(name) if isinstance(name, str) else ModelName("", {})
    whole = ModelName(base.base, parts)
    for key in parts:
        if base.kind not in _SIZED and not (key.startswith(ARGUMENT) and base.kind == "file"):
            raise _has_none(whole, key, repr(name), where)
        if base.kind == "registered" and key.startswith(ARGUMENT):
            raise _has_none(whole, key, repr(name), where)
    if LENGTH in parts:
        parts = {**parts, LENGTH: _checked_length(base, parts[LENGTH], where)}
    if LENGTH in parts and LENGTH in base.parts:
        raise ConfigError(
            f"{where}.{LENGTH} is {_short(parts[LENGTH])}, but {where} is {name!r}, which has a length; give one of"
            " them"
        )
    check_sizes(ModelName(base.base, parts), where)
    return ModelName.of(str(name), parts).text


def _checked_length(name: ModelName, length: Any, where: str) -> int:
    """Return the length of sequences as a number. Raises: ConfigError for one that is none, and for images."""
    said = f"{where}.{LENGTH} is {_short(length)}"
    if name.kind == "registered" and not MODELS[name.base].tokens:
        raise ConfigError(f"{said}, but the samples of model {name.base} are {MODELS[name.base].samples}: they have no"
                          " sequence")  # fmt: skip
    try:
        found = int(str(length)) if not isinstance(length, bool | float) else 0
    except ValueError:
        found = 0
    if not 1 <= found <= MAX_LENGTH:
        raise ConfigError(f"{said}; it must be an integer from 1 to {MAX_LENGTH:,}")
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
