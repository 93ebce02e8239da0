"""``model.sequence_length=N``: written into the name of the model, ``model=NAME@N``, before anything is composed.

Example:
    with_length("run", ["model=llama3_8b", "model.sequence_length=32768"], lambda: "resnet50")
    # ["model=llama3_8b@32768"]

The configuration of a run holds that name, so that it says by itself what was traced. In a sweep several lengths, or
one length of several models, are settings of its points (``of_points``), which the sweep reads itself.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from rostam_py.cli.named_machine import values_of
from rostam_py.cli.schema import command_schema
from rostam_py.errors import ConfigError
from rostam_py.spec.model_names import LENGTH_KEY, at_length

_MODEL = "model"
_SWEEP = "sweep"


def with_length(
    command: str, overrides: Sequence[str], default_model: Callable[[], str], *, allow_lists: bool = False
) -> list[str]:
    """Return overrides with the length of sequences in the name of the model.

    Args:
        default_model: returns the model of overrides that name none.
        allow_lists: several models or lengths make every pair of them.
    Raises: ConfigError for a model or a length that does not go with the other, or several where one is meant.
    """
    lengths = _given(overrides, LENGTH_KEY)
    if not lengths or not _has_model(command):
        return list(overrides)
    rest = [one for one in overrides if _key(one) != LENGTH_KEY]
    if command == _SWEEP and of_points(overrides):
        return rest
    models = _given(rest, _MODEL) or [default_model()]
    if not allow_lists and len(lengths) * len(models) > 1:
        raise ConfigError(
            f"{LENGTH_KEY} and model name {len(lengths) * len(models)} pairs, and rostam {command} takes one: rostam"
            " sweep runs each"
        )
    names = ",".join(at_length(model, length) for model in models for length in lengths)
    return [*(one for one in rest if _key(one) != _MODEL), f"{_MODEL}={names}"]


def of_points(overrides: Sequence[str]) -> list[str]:
    """Return a sweep's overrides of the length, where its points differ in it or in the model; none otherwise."""
    own = [one for one in overrides if _key(one) == LENGTH_KEY]
    is_varied = len(_given(overrides, LENGTH_KEY)) > 1 or len(_given(overrides, _MODEL)) > 1
    others = ("sweep", "experiment", "jobs")  # of which any may set the model of a point
    return own if is_varied or any(_key(one).partition(".")[0] in others for one in overrides) else []


def _given(overrides: Sequence[str], key: str) -> list[Any]:
    """Return the values of a key, those of its last override."""
    found = [one for one in overrides if _key(one) == key]
    return values_of(found[-1].partition("=")[2]) if found else []


def _has_model(command: str) -> bool:
    schema = command_schema(command)
    return schema is not None and _MODEL in {entry.name for entry in dataclasses.fields(schema)}


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+")
