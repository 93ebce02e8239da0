"""Compose a command's configuration from overrides, and turn what can go wrong into clear messages."""

import contextlib
import copy
import dataclasses
import difflib
import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rostam_py.checks import TRUE_OR_FALSE
from rostam_py.cli.bare_numbers import check_bare_numbers
from rostam_py.cli.choices import (
    GROUPS,
    check_choice,
    experiment_command,
    group_choices,
    registered,
    schema_in,
    user_folders,
)
from rostam_py.cli.kept_composition import composition, keep
from rostam_py.cli.launched import launched
from rostam_py.cli.model_keys import with_model_keys
from rostam_py.cli.named_machine import written_out
from rostam_py.documents import undamaged
from rostam_py.errors import ConfigError, RostamError, UnknownNameError
from rostam_py.field_words import hint as meaning_of
from rostam_py.field_words import value_hint, written
from rostam_py.spec.lookup import choices_of, is_key, is_sequence

CONFIG_MODULE = "rostam_py.configs"
# Mappings whose keys the user makes up: Hydra wants "++" before a new key, which users should not have to know.
_MAPPINGS = (
    "strategy.algorithms",
    "software.rules",
    "cost.compute_efficiency",
    "cost.memory_efficiency",
    "cost.modules",
    "cost.op_types",
    "sweep.grid",
)


def compose_config(command: str, overrides: list[str]) -> Any:
    """Return the typed configuration of a command ("run", "search", "sweep", "profile", "demo").

    Raises: ConfigError for an unknown key or choice, a wrong type, a missing value, a number without its unit, or
        several values where one is meant.
    """
    overrides = plain_overrides(command, overrides)
    kept = composition(command, overrides)
    if kept is not None:
        return kept.config
    from omegaconf import OmegaConf

    from rostam_py.cli.schema import command_schema

    check_overrides(command, overrides, allow_lists=False)
    with explaining(command, overrides):
        config = _open(command, _sized(command, composed(command, tuple(overrides))))
        check_units(config, command_schema(command))
        made = OmegaConf.to_object(config)
    keep(command, overrides, composed, made)
    return made


def _open(command: str, config: Any) -> Any:
    """Return a configuration whose strategy is checked as the command's mode checks it."""
    from omegaconf import OmegaConf

    from rostam_py.spec.keys import strategy_class

    schema = strategy_class(command)
    if "strategy" not in config or OmegaConf.get_type(config.strategy) is schema:
        return config
    changed = copy.deepcopy(config)
    changed.strategy = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.to_container(config.strategy))
    return changed


def plain_overrides(command: str, overrides: list[str], *, allow_lists: bool = False) -> list[str]:
    """Return overrides with what the schemas do not know written out: launch files, machines by name, keys of models.

    Args: allow_lists: as ``with_model_keys``.
    """
    written = written_out(command, launched(command, overrides))
    chosen = tuple(one for one in written if one.partition("=")[0].lstrip("+") == "experiment")

    def default_model() -> str:
        with explaining(command, list(chosen)):
            return str(composed(command, chosen).model)

    return with_model_keys(command, written, default_model, allow_lists=allow_lists)


def _sized(command: str, config: Any) -> Any:
    """Return a configuration whose fabric has num_accelerators, where that is given, a job's in whole servers."""
    from omegaconf import OmegaConf

    from rostam_py.cli.schema import name_of_schema
    from rostam_py.fabrics.config import check_integer
    from rostam_py.fabrics.sizes import first_of_whole, resize_parameters

    if "fabric" not in config or config.get("num_accelerators") is None:
        return config
    changed = copy.deepcopy(config)
    written: Any = OmegaConf.to_container(config.fabric, resolve=True)
    schema: Any = OmegaConf.get_type(config.fabric)
    given = {key: value for key, value in written.items() if value != "???"}
    size = check_integer("num_accelerators", config.num_accelerators, 1)
    if command == "run":  # other commands use all of a fabric
        size, first = first_of_whole(name_of_schema("fabric", schema), size)
        if first is not None and changed.strategy.accelerators is None:
            changed.strategy.accelerators = first
    for key, value in resize_parameters(name_of_schema("fabric", schema), given, size).items():
        changed.fabric[key] = value
    return changed


def resolved_yaml(command: str, overrides: list[str]) -> str:
    """Return the composed configuration as YAML, to be kept with the result: ``${oc.env:NAME}`` as it was found."""
    overrides = plain_overrides(command, overrides)
    kept = composition(command, overrides)
    if kept is not None:
        return kept.yaml
    from omegaconf import OmegaConf

    with explaining(command, overrides):
        return OmegaConf.to_yaml(composed(command, tuple(overrides)), resolve=True)


def check_overrides(command: str, overrides: list[str], *, allow_lists: bool) -> None:
    """Refuse non-overrides, names that do not exist, and another command's experiment, before any work.

    Args: allow_lists: whether several values of one key, such as model=a,b, are meant.
    Raises: ConfigError; UnknownNameError with the choices, for a name inside a list too.
    """
    from rostam_py.cli.schema import command_schema

    for override in overrides:
        key, equals, _ = override.partition("=")
        key = key.lstrip("+")
        if not equals or not key or key.startswith("~"):
            raise ConfigError(f"{override!r} is not a setting; write key=value, for example model=resnet50")
        with explaining(command, overrides):
            values, is_list = _values(override)
        if key in GROUPS and not values and not is_list:
            raise ConfigError(
                f"{override!r} is no name; {key} takes one of: {', '.join(group_choices(key))}"
                + ("" if key == "experiment" else f"; single settings are {key}.KEY=VALUE")
            )
        check_choice(key, values, command_schema(command))
        if is_list and not allow_lists:
            raise ConfigError(
                f"{override!r} gives several values, but rostam {command} takes one.{_swept(key, override)} To give a"
                f" list: {key}=[...]"
            )
        if key == "experiment":
            _check_experiments(command, values)


def _swept(key: str, override: str) -> str:
    """Return how to run each of several values, of a key that points have."""
    return f" To run each of them: rostam sweep {override}." if is_key(key) else ""


def as_hydra_wants(overrides: Iterable[str]) -> list[str]:
    """Return the overrides with Hydra's "++" before keys that the user makes up, and before no others, orders quoted.

    Hydra adds whatever key has a "++", so that a misspelt key would stand in the configuration without doing anything.
    """
    opens = tuple(f"{key}{sign}" for key in _MAPPINGS for sign in ".=")
    bare = [one if one.lstrip("+").startswith("hydra") else one.lstrip("+") for one in overrides]
    return [f"++{one}" if one.startswith(opens) else _as_one_value(one) for one in bare]


def _as_one_value(override: str) -> str:
    """Return an override whose names in an order, a,b,c, are one value: quoted, unless they are already or a list."""
    key, _, value = override.partition("=")
    return f"{key}='{value}'" if re.fullmatch(r"\w+(,\w+)+", value) and is_sequence(key) else override


@contextlib.contextmanager
def explaining(command: str, overrides: list[str]) -> Iterator[None]:
    """Turn what Hydra raises inside into a ConfigError with the key, the value and the allowed values."""
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    with undamaged(_presets_in_words(overrides), AssertionError, yaml.YAMLError, OSError):
        try:
            yield
        except (HydraException, OmegaConfBaseException) as error:
            raise _explain(error, command, overrides) from error


def _presets_in_words(overrides: Iterable[str]) -> str:
    """Name the choices whose YAML is read."""
    given = [one for one in overrides if one.partition("=")[0].lstrip("+") in GROUPS]
    return f"a preset of {', '.join(given)}" if given else "a preset"


def chosen(command: str, overrides: list[str], group: str) -> str:
    """Return the choice of a group that a configuration ends with, an experiment's or a default too."""
    return str(_composed(command, tuple(overrides), True).hydra.runtime.choices[group])


def composed(command: str, overrides: tuple[str, ...]) -> Any:
    """Return a command's configuration as Hydra composes it; not to be changed."""
    return _composed(command, overrides, False)


@functools.lru_cache(maxsize=256)
def _composed(command: str, overrides: tuple[str, ...], with_hydra: bool) -> Any:
    from hydra import compose, initialize_config_module
    from hydra.core.global_hydra import GlobalHydra

    from rostam_py.cli.schema_store import store_schemas

    store_schemas()
    outer = GlobalHydra.instance().hydra  # a hydra.main application that we run in, a multirun for example
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
            given = [*user_searchpath(), *as_hydra_wants(overrides)]
            return compose(config_name=command, overrides=given, return_hydra_config=with_hydra)
    finally:
        GlobalHydra.instance().hydra = outer


def user_searchpath() -> list[str]:
    """Return the override that lets Hydra find presets of the user's own."""
    found = ",".join(f"'file://{folder}'" for folder in user_folders())
    return [f"hydra.searchpath=[{found}]"] if found else []


def _values(override: str) -> tuple[list[str], bool]:
    """Return the values that an override names, as text, and whether there may be several."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Glob
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(as_hydra_wants([override])[0])
    except (HydraException, ValueError) as error:  # numbers of more than 4,300 digits
        raise ConfigError(f"{override!r} cannot be read; check its brackets, quotes and commas") from error
    if not parsed.is_sweep_override():
        value = parsed.value()
        return ([] if isinstance(value, list | dict) else ["null" if value is None else written(value)]), False
    if isinstance(parsed.value(), Glob):
        return [], True  # hydra expands it to what there is
    return [str(one) for one in axis_values(override, parsed)], True


def axis_values(override: str, parsed: Any) -> list[Any]:
    """Return the values that a parsed override runs over, texts without quotes.

    Raises: ConfigError for more than a sweep has points.
    """
    from hydra.core.override_parser.types import QuotedString, Transformer

    from rostam_py.sweep.points import MAX_POINTS

    found = list(itertools.islice(parsed.sweep_iterator(transformer=Transformer.identity), MAX_POINTS + 1))
    if len(found) > MAX_POINTS:
        raise ConfigError(f"{override!r} has more than {MAX_POINTS:,} values, the most points that a sweep can have")
    return [_interpolated(one.text if isinstance(one, QuotedString) else one) for one in found]


def _interpolated(value: Any) -> Any:
    """Return a value with ``${oc.env:NAME}`` and the like in it replaced, numbers and flags as such."""
    import yaml
    from omegaconf import OmegaConf

    if not isinstance(value, str) or "${" not in value:
        return value
    made = OmegaConf.create({"value": value}).value
    return yaml.safe_load(made) if isinstance(made, str) else made


def _check_experiments(command: str, names: list[str]) -> None:
    for name in names:
        needed = "run" if name == "null" else experiment_command(name)
        if needed not in ("run", command):
            raise ConfigError(f"experiment {name!r} is a {needed}; run it with: rostam {needed} experiment={name}")


def check_units(config: Any, schema: Any = None) -> None:
    """Refuse bare numbers where a unit is needed (MODEL A6). Args: schema: as ``check_bare_numbers``."""
    from omegaconf import OmegaConf

    written: Any = OmegaConf.to_container(config, resolve=True)
    for key, value in written.items():
        check_bare_numbers(str(key), value, schema)


def _explain(error: Exception, command: str, overrides: list[str]) -> ConfigError:
    """Return a ConfigError with the key, the value and the allowed values, in place of Hydra's own wording."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)  # type: ignore[arg-type]
    for one in chain:
        if isinstance(one, RostamError):
            return one if isinstance(one, ConfigError) else ConfigError(str(one))
    text = " ".join(str(one) for one in chain)
    not_set = re.search(r"Environment variable '([^']+)' not found", text)
    if not_set:
        key = next((e.full_key for e in chain if getattr(e, "full_key", None)), "a key")  # type: ignore[attr-defined]
        return ConfigError(f"{key} takes the environment variable {not_set[1]!r}, which is not set")
    unknown = re.search(r"[Cc]ould not override '([^']+)'", text)
    bad_key = re.search(r"Key '([^']+)' (?:is )?not in(?: struct|)|Key '([^']+)' not in '([^']+)'", text)
    if bad_key:
        path = unknown.group(1) if unknown else bad_key.group(1) or bad_key.group(2)
        return ConfigError(_unknown_key(path, command, overrides))
    full_key = next((e.full_key for e in chain if getattr(e, "full_key", None)), "")  # type: ignore[attr-defined]
    if re.search(r"[Mm]issing mandatory value", text):
        return ConfigError(f"{full_key} is missing; give it as {full_key}=VALUE")
    no_choice = re.search(r"Could not find '(.+)/([^/']+)'\s+Available options in '[^']+':\n((?:\t.*\n?)*)", text)
    if no_choice:
        group, value, options = no_choice.groups()
        return UnknownNameError(f"unknown {group} {value!r}; choices: {', '.join(options.split())}")
    wanted = _wanted(command, full_key)
    if wanted:
        given = next(
            (one.partition("=")[2] for one in reversed(overrides) if one.lstrip("+").startswith(f"{full_key}=")), None
        )
        keys = [one.lstrip("+").partition("=")[0] for one in overrides]
        inner = next((key for key in keys if key.startswith(f"{full_key}.")), None)
        if given is None and inner is not None:
            hint = _field_word(inner, command, overrides)
            return ConfigError(f"unknown key {inner!r}{hint}: {full_key} has no keys, it must be {wanted}")
        value = f"is {given!r}" if given is not None else "has another type in a preset or experiment"
        return ConfigError(f"{full_key} {value}; it must be {wanted}")
    said = [str(one).strip().splitlines()[0] for one in reversed(chain) if str(one).strip() not in ("", "None")]
    first = said[0] if said else type(error).__name__
    return ConfigError(f"{full_key + ': ' if full_key else ''}{first}")


_MOST_NAMES = 20  # that an error lists
_EXPECTED = {int: "an integer", float: "a number", bool: TRUE_OR_FALSE, str: "a text"}


def _wanted(command: str, key: str) -> str:
    """Return in words what the schema of a command wants behind a key, "" where it does not say."""
    import dataclasses
    from typing import get_args, get_origin, get_type_hints

    from rostam_py.cli.schema import command_schema

    kind: Any = command_schema(command)
    named = choices_of(key, kind)
    for part in key.split("."):
        hints = get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        if part not in hints:
            return f"one of: {', '.join(named)}" if named else ""
        kind = hints[part]
    is_optional = type(None) in get_args(kind)
    if is_optional:
        kind = next(one for one in get_args(kind) if one is not type(None))
    text = _EXPECTED.get(kind, "")
    if kind is str and named and len(named) <= _MOST_NAMES:
        text = f"one of: {', '.join(named)}"
    if dataclasses.is_dataclass(kind):
        text = f"given key by key: {', '.join(f'{key}.{entry.name}' for entry in dataclasses.fields(kind))}"
    elif get_origin(kind) is list:
        names = choices_of(key, command_schema(command)) or ["a", "b"]
        inner = {int: "1,2"}.get(get_args(kind)[0], ",".join(names[:2]))
        text = f"a list, for example {key}=[{inner}]"
    elif get_origin(kind) is dict:
        text = f"a mapping, whose entries are {key}.NAME=VALUE"
    return f"{text} or null" if text and is_optional else text


def _keys_inside(node: Any, key: str) -> list[str]:
    """Return the keys of a section, none of a single value or of a missing one."""
    from omegaconf import OmegaConf

    inner = None if OmegaConf.is_missing(node, key) else node[key]
    return [str(one) for one in inner] if inner is not None and OmegaConf.is_dict(inner) else []


def _choices_with(group: str, key: str) -> list[str]:
    """Return the choices of a group that have a setting of this name."""
    names = registered(group).names()
    return [name for name in names if key in {one.name for one in dataclasses.fields(schema_in(group, name))}]


_SEARCHED = ("strategy.dp", "strategy.tp", "strategy.pp")  # by a search, whatever they are set to
_NEAR = 0.75  # of a key that is taken for a misspelt one; at difflib's 0.6 "gpu" is near "mode"


def _field_word(path: str, command: str, overrides: list[str]) -> str:
    """Return what a word of another program is here, in brackets; "" for a word that is not known."""
    from rostam_py.cli.schema import command_schema

    schema: Any = command_schema(command)

    def has(key: str) -> bool:
        of_named = key in ("machine.servers", "machine.taper") and is_key("fabric", schema)
        return of_named or is_key(key, schema)

    found = _as_axes(meaning_of(path, _value_at(path, overrides), has), command)
    return f" ({found})" if found else ""


def _as_axes(text: str, command: str) -> str:
    """Return a hint with the degrees that a search tries as its axes."""
    if command == "search":
        for key in _SEARCHED:
            text = re.sub(rf"{key}=(\d+)", rf"search.axes={{{key.rpartition('.')[2]}:[\1]}}", text)
    return text


def _value_at(path: str, overrides: list[str]) -> str | None:
    """Return the value that overrides give a key; None where a preset or an experiment does."""
    given = (one.partition("=") for one in reversed(overrides))
    return next((value for key, _, value in given if key.lstrip("+") == path), None)


def _with_value(key: str, path: str, overrides: list[str]) -> str:
    """Return a key as it may have been meant, with the value given to ``path``; the key alone where it is a section."""
    value = _value_at(path, overrides)
    is_plain = value is not None and not path.startswith(key) and key.rpartition(".")[2] == path.rpartition(".")[2]
    return f"{key}={value_hint(key, value) or value}" if is_plain and value and "algorithms" not in key else repr(key)


def _anywhere(name: str, root: Any) -> list[str]:
    """Return the keys of the top level and of its sections that have a name."""
    return [name] if name in root else [f"{one}.{name}" for one in root if name in _keys_inside(root, one)]


def _with_own_flag(word: str, path: str, root: Any, overrides: list[str]) -> str:
    """Return a hint with the flag of the chosen software that ends as the key does: software.stage for zero_stage."""
    name = path.rpartition(".")[2]
    own = _keys_inside(root, "software") if "software" in root else ()
    flag = next((one for one in own if name.endswith(f"_{one}")), None)
    if flag is None or not word.endswith("?)"):
        return word
    value = _value_at(path, overrides)
    return f"{word.removesuffix('?)')}, or software.{flag}{'' if value is None else f'={value}'}?)"


def _first_composed(command: str, choices: list[str]) -> Any:
    """Return a command's configuration with as many of its choices as compose: one may hold the unknown key itself."""
    from hydra.errors import HydraException

    for kept in (choices, [one for one in choices if not one.startswith("experiment=")]):
        with contextlib.suppress(HydraException):
            return composed(command, tuple(kept))
    return composed(command, ())


def _unknown_key(path: str, command: str, overrides: list[str]) -> str:
    """Say which keys there are on the level where ``path`` goes wrong, or that one has moved."""

    from rostam_py.plan.machine import HOST_RULES
    from rostam_py.plan.strategy_names import MOVED, instead

    section, _, name = path.rpartition(".")
    moved = MOVED if section in ("strategy", "strategy.rules") else {}
    if section == "machine":
        moved = {key: f"software.rules.{key}" for key in HOST_RULES}
    if name in moved:
        value = _value_at(path, overrides)
        return f"{path} is {moved[name]} now" + ("" if value is None else f": set {instead(moved[name], value)}")
    if path.startswith("strategy.rules"):
        return f"{path} is software.rules{path.removeprefix('strategy.rules')} (rostam list software)"

    choices = [one for one in overrides if one.partition("=")[0] in GROUPS]
    node: Any = _first_composed(command, choices)
    where: list[str] = []
    root = node
    for part in path.split("."):
        known = list(node.keys()) if hasattr(node, "keys") else []
        if part not in known:
            group = where[0] if len(where) == 1 else ""
            if group in ("cost", "software") and (found := _choices_with(group, part)):
                owners = ", ".join(f"{group}={one}" for one in found)
                return f"unknown key {path!r}: it is a setting of {owners}; {group} has: {', '.join(map(str, known))}"
            if word := _field_word(path, command, overrides):
                level = f"{'.'.join(where)} has" if where else "keys are"
                word = _with_own_flag(word, path, root, overrides)
                return f"unknown key {path!r}{word}; {level}: {', '.join(map(str, known))}"
            inside = [f"{one}.{part}" for one in known if part in _keys_inside(node, one)]
            elsewhere = [] if inside or not where else _anywhere(part, root)
            near = inside or difflib.get_close_matches(part, known, n=1, cutoff=_NEAR)
            meant = ".".join([*where, near[0]]) if near else next(iter(elsewhere), "")
            hint = f" (did you mean {_as_axes(_with_value(meant, path, overrides), command)}?)" if meant else ""
            level = f"{'.'.join(where)} has" if where else "keys are"
            return f"unknown key {path!r}{hint}; {level}: {', '.join(map(str, known))}"
        where.append(part)
        node = node[part]
    return f"key {path!r} does not exist for this choice of its group; see: rostam {command} --help"
