"""Compose a command's configuration from overrides, and turn what can go wrong into clear messages."""

import difflib
import re
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError, RostamError, UnitError, UnknownNameError

# Mappings whose keys the user makes up: Hydra wants "++" before a new key, which nobody should have to know.
_MAPPINGS = (
    "strategy.algorithms",
    "cost.compute_efficiency",
    "cost.memory_efficiency",
    "cost.modules",
    "cost.op_types",
)


def compose_config(command: str, overrides: list[str]) -> Any:
    """Return the typed configuration of a command ("run", "search", "profile", "demo").

    Raises: ConfigError for an unknown key or choice, a wrong type, a missing value, a number without its unit.
    """
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from rostam_py.cli.schema import store_schemas

    store_schemas()
    for override in overrides:
        _check_override(override)
    try:
        with initialize_config_module("rostam_py.configs", version_base="1.3"):
            composed = compose(config_name=command, overrides=_as_hydra_wants(overrides))
        _check_units(composed)
        return OmegaConf.to_object(composed)
    except (HydraException, OmegaConfBaseException) as error:
        raise _explain(error, command, overrides) from error


def resolved_yaml(command: str, overrides: list[str]) -> str:
    """Return the composed configuration as YAML, to be kept beside the result."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("rostam_py.configs", version_base="1.3"):
        return OmegaConf.to_yaml(compose(config_name=command, overrides=_as_hydra_wants(overrides)))


def _as_hydra_wants(overrides: list[str]) -> list[str]:
    opens = tuple(f"{key}{sign}" for key in _MAPPINGS for sign in ".=")
    return [f"++{one}" if one.startswith(opens) else one for one in overrides]


def group_choices(group: str) -> list[str]:
    """Return what ``group=`` may be: registered names and presets."""
    from rostam_py.costs import COST_MODELS
    from rostam_py.fabrics import FABRICS

    registry = {"fabric": FABRICS, "cost": COST_MODELS}[group]
    return sorted({*registry.names(), *presets(group)})


def presets(group: str) -> list[str]:
    """Return the YAML presets of a group."""
    import rostam_py.configs

    folder = Path(next(iter(rostam_py.configs.__path__))) / group
    return sorted(path.stem for path in folder.glob("*.yaml"))


def _check_override(override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} is not an override; write key=value, for example model=resnet50")
    if key in ("fabric", "cost"):
        choices = group_choices(key)
        if value not in choices:
            near = difflib.get_close_matches(value, choices, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise UnknownNameError(f"unknown {key} {value!r}{hint}; choices: {', '.join(choices)}")


def _check_units(composed: Any) -> None:
    """Refuse bare numbers where a unit is needed (MODEL A6)."""
    import dataclasses

    from omegaconf import OmegaConf

    from rostam_py.cli.schema import STRATEGY_UNITS

    if "fabric" not in composed:
        return
    schema: Any = OmegaConf.get_type(composed.fabric)
    units = {e.name: e.metadata["unit"] for e in dataclasses.fields(schema) if e.metadata.get("unit")}
    for node, keys in (("fabric", units), ("strategy", STRATEGY_UNITS)):
        for key, unit in keys.items():
            value = None if OmegaConf.is_missing(composed[node], key) else composed[node][key]
            if isinstance(value, int | float) and value != 0:
                example = {"bandwidth": "400 Gb/s", "time": "5 us", "size": "25 MB"}[unit]
                raise UnitError(f"{node}.{key} is {value}, a number without a unit; write for example '{example}'")


def _explain(error: Exception, command: str, overrides: list[str]) -> ConfigError:
    """Return a ConfigError with the key, the value and what is allowed, in place of Hydra's own wording."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)  # type: ignore[arg-type]
    for one in chain:
        if isinstance(one, RostamError):
            return one if isinstance(one, ConfigError) else ConfigError(str(one))
    text = " ".join(str(one) for one in chain)
    unknown = re.search(r"[Cc]ould not override '([^']+)'", text)
    bad_key = re.search(r"Key '([^']+)' (?:is )?not in(?: struct|)|Key '([^']+)' not in '([^']+)'", text)
    if bad_key:
        path = unknown.group(1) if unknown else bad_key.group(1) or bad_key.group(2)
        return ConfigError(_unknown_key(path, command, overrides))
    full_key = next((e.full_key for e in chain if getattr(e, "full_key", None)), "")  # type: ignore[attr-defined]
    if re.search(r"[Mm]issing mandatory value", text):
        return ConfigError(f"{full_key} is missing; give it as {full_key}=VALUE")
    first = str(chain[-1]).strip().splitlines()[0]
    return ConfigError(f"{full_key + ': ' if full_key else ''}{first}")


def _unknown_key(path: str, command: str, overrides: list[str]) -> str:
    """Say which keys there are on the level where ``path`` goes wrong."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("rostam_py.configs", version_base="1.3"):
        choices = [one for one in overrides if one.partition("=")[0] in ("fabric", "cost")]
        node: Any = compose(config_name=command, overrides=choices)
    where: list[str] = []
    for part in path.split("."):
        known = list(node.keys()) if hasattr(node, "keys") else []
        if part not in known:
            near = difflib.get_close_matches(part, known, n=1)
            hint = f" (did you mean {'.'.join([*where, near[0]])!r}?)" if near else ""
            level = f"{'.'.join(where)} has" if where else "keys are"
            return f"unknown key {path!r}{hint}; {level}: {', '.join(map(str, known))}"
        where.append(part)
        node = node[part]
    return f"key {path!r} does not exist for this choice of its group; see: rostam {command} --help"
