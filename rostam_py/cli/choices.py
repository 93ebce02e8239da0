"""What may stand behind a key: registered names and YAML presets; wrong ones are refused before any work.

Loads neither hydra nor torch, so that help and completion stay quick.
"""

import difflib
import importlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.registry import Registry

# Hydra groups: a choice is a whole set of keys, of which single ones can be overridden.
GROUPS = ("fabric", "cost", "software", "strategy", "experiment")
WITH_SCHEMAS = ("fabric", "cost", "software")  # those whose choice has a schema of its own
LIST_KINDS = {
    "models": "PyTorch models", "machines": "servers and pods as they are sold",
    "fabrics": "fabrics with their keys", "presets": "fabrics and strategies with settings, by name",
    "experiments": "complete configurations, by name", "accelerators": "data sheets of accelerators",
    "costs": "cost models with their keys", "software": "training programs with their flags",
    "collectives": "algorithms of each collective", "routings": "how messages choose their paths",
    "fidelities": "simulation engines, and closed forms without one",
    "controllers": "what changes or observes the network during a run", "hosts": "how kernels are launched",
    "assigners": "ways to give messages single paths (controller path_assignment)",
    "circuit_controls": "when circuits of optical fabrics are set", "estimators": "their estimates of the traffic",
    "allocators": "which accelerators of a shared machine a job gets",
    "strategies": "axes of parallelism, what each splits; all other keys of a strategy",
    "policies": "answers of a job to faults of its servers (rostam fleet)",
    "orders": "which job of a queue starts next (rostam fleet fleet.jobs=...)",
    "job_places": "how jobs of a queue share servers; or else an allocator gives them accelerators",
    "job_sources": "where drawn jobs of a queue come from",
    "rules": "habits of training programs that can be set by hand (software.rules.KEY)",
    "placers": "ways to split a model over accelerators", "groups": "kinds of process groups in results",
    "kernels": "ops of program files that have a price (rostam run program=FILE)",
    "convergence": "curves of iterations to accuracy over batch size",
}  # fmt: skip
_SINGULAR = {
    "fidelities": "fidelity",
    "strategies": "strategy",
    "convergence": "convergence",
    "policies": "policy",
}  # others without "s"
CACHE_ACTIONS = {"list": "list entries, with those out of date", "clear": "delete all entries"}
DEFAULT_FABRIC = "tree_64"
DEFAULT_STRATEGY = "default"
CONFIGS_VARIABLE = "ROSTAM_CONFIGS"  # folders with presets of one's own


def list_kind(word: str) -> str:
    """Return the kind of ``rostam list`` that a word names, singular or plural.

    Raises: UnknownNameError with the nearest one and all of them.
    """
    from rostam_py.field_words import meanings_of, plain

    names = {_SINGULAR.get(kind, kind.removesuffix("s")): kind for kind in LIST_KINDS}
    names |= {kind: kind for kind in LIST_KINDS}
    text = plain(word)
    if text in names:
        return names[text]
    meant = [one.key for key in (text, text.removesuffix("s")) for one in meanings_of(key) if one.key in names]
    near = meant or difflib.get_close_matches(text, names, n=1)
    hint = f" (did you mean {names[near[0]]!r}?)" if near else ""
    raise UnknownNameError(f"unknown kind {word!r}{hint}; kinds: {', '.join(LIST_KINDS)}")


def default_choices() -> dict[str, str]:
    """Return what a command takes of each group where nothing is given."""
    from rostam_py.costs import DEFAULT_COST
    from rostam_py.software.names import DEFAULT_SOFTWARE

    return {
        "fabric": DEFAULT_FABRIC, "strategy": DEFAULT_STRATEGY, "cost": DEFAULT_COST, "software": DEFAULT_SOFTWARE,
    }  # fmt: skip


def registered(group: str) -> Registry:
    """Return the registry of a group whose choices have schemas of their own."""
    module, name = {
        "fabric": ("rostam_py.fabrics", "FABRICS"), "cost": ("rostam_py.costs", "COST_MODELS"),
        "software": ("rostam_py.software.names", "STACKS"),
    }[group]  # fmt: skip
    found: Registry = getattr(importlib.import_module(module), name)
    return found


def schema_in(group: str, name: str) -> Any:
    """Return the schema of a choice of such a group."""
    found = registered(group).get(name)
    return found.Config if group == "cost" else found


def group_choices(group: str) -> list[str]:
    """Return what ``group=`` may be: registered names and presets."""
    return sorted({*_registered(group), *presets(group)})


def presets(group: str) -> list[str]:
    """Return the YAML presets of a group."""
    return sorted({path.stem for folder in config_folders(group) for path in folder.glob("*.yaml")})


def describe_preset(group: str, name: str) -> str:
    """Return what a preset's first comment says it is."""
    lines = _preset_text(group, name).splitlines()
    comments = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    return next((text for text in comments if not text.startswith("@")), "")


def preset_base(group: str, name: str) -> str:
    """Return the registered name that a preset derives from; a registered name is its own."""
    match = re.search(r"^defaults: \[(\w+), _self_\]$", _preset_text(group, name), re.MULTILINE)
    return match.group(1) if match else name


def preset_values(group: str, name: str) -> dict[str, str]:
    """Return what a preset sets, as written."""
    pairs = re.findall(r"^(\w+): (.*)$", _preset_text(group, name), re.MULTILINE)
    return {key: value for key, value in pairs if key != "defaults"}


def experiment_command(name: str) -> str:
    """Return the command that runs an experiment: "sweep", "search", "fleet" or "run"."""
    sections = re.findall(r"^(\w+):", _preset_text("experiment", name), re.MULTILINE)
    return next((command for command in ("sweep", "search", "fleet") if command in sections), "run")


def config_folders(group: str) -> list[Path]:
    """Return the folders of a group's presets: rostam's own, which go first as in Hydra, then the user's."""
    import rostam_py.configs

    return [folder / group for folder in (Path(next(iter(rostam_py.configs.__path__))), *user_folders())]


def user_folders() -> list[Path]:
    """Return the folders that the environment variable ROSTAM_CONFIGS names, colons between them.

    Raises: ConfigError for one that is not there.
    """
    named = [Path(text).expanduser() for text in os.environ.get(CONFIGS_VARIABLE, "").split(os.pathsep) if text]
    for folder in named:
        if not folder.is_dir():
            raise ConfigError(
                f"{CONFIGS_VARIABLE} names {str(folder)!r}, which is no folder; it must hold fabric/, strategy/ or"
                " experiment/ with YAML presets"
            )
    return [folder.resolve() for folder in named]


def check_choice(key: str, values: Iterable[str], schema: Any = None) -> None:
    """Refuse a name that does not exist behind a group or a key of names, and what is neither true nor false behind a
    key that takes these, for Hydra reads 2 as true; other names that sections hold they check themselves.

    Args: schema: of the command; None takes the keys of all points.
    Raises: UnknownNameError with the nearest name and all choices; ConfigError.
    """
    from rostam_py.field_words import value_hint

    values = list(values)
    if key in GROUPS:
        choices = group_choices(key)
    else:
        from rostam_py.spec.lookup import choices_of, is_boolean, is_list

        if is_boolean(key, schema):
            _check_flags(key, values)
        choices = [] if "." in key or is_list(key, schema) else sorted(choices_of(key, schema) or ())
    for value in values:
        better = value_hint(key, value)
        if better and not choices and "." in key:  # what sections hold, other programs' names for it alone
            raise UnknownNameError(f"{key} is {value!r}; did you mean {key}={better}?")
        if not choices or value in choices or _passes(key, value):
            continue
        near = [better] if better else difflib.get_close_matches(value, choices, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        from rostam_py.spec.model_names import OWN_MODELS

        more = f", or {OWN_MODELS}" if key == "model" else ""
        raise UnknownNameError(f"unknown {key} {value!r}{hint}; choices: {', '.join(choices)}{more}")


def _check_flags(key: str, values: Iterable[str]) -> None:
    from rostam_py.checks import TRUE_OR_FALSE

    for value in values:
        if value.lower() not in ("true", "false", "null"):
            raise ConfigError(f"{key} is {value!r}; it must be {TRUE_OR_FALSE}")


def _preset_text(group: str, name: str) -> str:
    """Return a preset's YAML; nothing for a registered name."""
    paths = [folder / f"{name}.yaml" for folder in config_folders(group)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{group}={name}: {path} cannot be read: {error}") from error


def _registered(group: str) -> list[str]:
    if group in WITH_SCHEMAS:
        return registered(group).names()
    return [DEFAULT_STRATEGY] if group == "strategy" else []


def _passes(key: str, value: str) -> bool:
    """Say whether a value that is no name is legal all the same: a user's model, no curve, layers:8, h100.

    Raises: ConfigError for a routing with a number that it does not take.
    """
    if key == "accelerator":
        from rostam_py.costs.accelerators import FAMILIES, accelerator_name

        return accelerator_name(value) in FAMILIES.values() or accelerator_name(value) != value
    if key == "routing" and ":" in value:
        from rostam_py.fabrics.routings import check_routing

        check_routing(value)
        return True
    if key == "model":
        from rostam_py.spec.model_names import is_model, is_own_model

        return is_own_model(value) or is_model(value)
    if key == "convergence":
        from rostam_py.convergence.points_file import is_curve_file

        if is_curve_file(value):
            return True
        from rostam_py.spec.keys import NO_CURVE

        return value in (NO_CURVE, "null")
    return key == "experiment" and value == "null"
