"""``model.sequence_length=N`` and other keys below the model: written into its name before anything is composed.

Example:
    with_model_keys("run", ["model=llama3_8b", "model.sequence_length=32768"], lambda: "resnet50")
    # ["model=llama3_8b@32768"]

The configuration of a run holds that name, so that it says by itself what was traced. In a sweep several values, or
one value for several models, are settings of its points (``of_points``), which the sweep reads itself.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from rostam_py.cli.named_machine import values_of
from rostam_py.cli.schema import command_schema
from rostam_py.errors import ConfigError
from rostam_py.spec.model_names import model_text

_MODEL = "model"
_SWEEP = "sweep"
_PLAIN = re.compile(r"[\w@./:-]+")  # what Hydra reads without quotes


def with_model_keys(
    command: str, overrides: Sequence[str], default_model: Callable[[], str], *, allow_lists: bool = False
) -> list[str]:
    """Return overrides with the keys below the model in its name.

    Args:
        default_model: returns the model of overrides that name none.
        allow_lists: several models or values make every combination of them.
    Raises: ConfigError for a model and a value that do not go together, or several where one is meant.
    """
    keys = list(dict.fromkeys(_key(one) for one in overrides if _is_below(_key(one))))
    if not keys or not _has_model(command):
        return list(overrides)
    rest = [one for one in overrides if not _is_below(_key(one))]
    if command == _SWEEP and of_points(overrides):
        return rest
    models = _given(rest, _MODEL) or [default_model()]
    values = [_given(overrides, key) for key in keys]
    combinations = list(itertools.product(models, *values))
    if not allow_lists and len(combinations) > 1:
        what = "pairs" if len(keys) == 1 else "combinations"
        raise ConfigError(
            f"{', '.join(keys)} and model name {len(combinations)} {what}, and rostam {command} takes one: rostam sweep"
            " runs each"
        )
    inner = [key.removeprefix(f"{_MODEL}.") for key in keys]
    names = [model_text({"name": model, **dict(zip(inner, given, strict=True))}) for model, *given in combinations]
    return [*(one for one in rest if _key(one) != _MODEL), f"{_MODEL}={','.join(map(_quoted, names))}"]


def of_points(overrides: Sequence[str]) -> list[str]:
    """Return a sweep's overrides of keys below the model, where its points differ in them or in the model."""
    own = [one for one in overrides if _is_below(_key(one))]
    is_varied = any(len(_given(overrides, _key(one))) > 1 for one in own) or len(_given(overrides, _MODEL)) > 1
    others = ("sweep", "experiment", "jobs")  # of which any may set the model of a point
    return own if is_varied or any(_key(one).partition(".")[0] in others for one in overrides) else []


def _is_below(key: str) -> bool:
    return key.startswith(f"{_MODEL}.")


def _quoted(name: str) -> str:
    """Return a name as Hydra reads it as one value."""
    return name if _PLAIN.fullmatch(name) else "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _given(overrides: Sequence[str], key: str) -> list[Any]:
    """Return the values of a key, those of its last override."""
    found = [one for one in overrides if _key(one) == key]
    return values_of(found[-1].partition("=")[2]) if found else []


def _has_model(command: str) -> bool:
    schema = command_schema(command)
    return schema is not None and _MODEL in {entry.name for entry in dataclasses.fields(schema)}


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+")
