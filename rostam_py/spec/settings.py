"""Settings: what one point simulates, as plain nested data that can be hashed, stored and sent to workers.

Example:
    settings = complete_settings({"model": "gpt_125m", "fabric": {"name": "torus", "dims": [4, 4]}})
    with_key(settings, "strategy.tp", 4)

``complete_settings`` fills every default in and checks every value, so that equal points have equal settings however
they were written down, and bad ones fail before any work.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rostam_py.checks import check_seed
from rostam_py.convergence import DEFAULT_CURVES, Curve, Target, get_curve, goal_of
from rostam_py.convergence.time_to_accuracy import check_usd_per_hour
from rostam_py.costs import COST_MODELS
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.config import check_integer, make_config
from rostam_py.fabrics.failures import RandomFailures
from rostam_py.fabrics.routings import check_routing, told_once
from rostam_py.fabrics.sizes import first_of_whole, resize_parameters
from rostam_py.field_words import in_brackets
from rostam_py.plan import Strategy
from rostam_py.plan.machine import HOST_RULES, UPKEEP
from rostam_py.plan.open_strategy import OpenStrategy
from rostam_py.plan.placing import Placing
from rostam_py.plan.program_rules import ProgramRules
from rostam_py.plan.strategy_names import MOVED, instead, moved_to
from rostam_py.simulation.controllers import check_controllers
from rostam_py.simulation.engines import check_fidelity, check_tolerance
from rostam_py.software.names import AUTO
from rostam_py.software.program import stack_of
from rostam_py.spec.keys import (
    MISSING,
    MODES,
    NO_CURVE,
    SEARCHED,
    JobKeys,
    MachineKeys,
    MixOptions,
    OutageKeys,
    PacketKeys,
    SearchOptions,
    VariabilityKeys,
    all_keys,
    check_count,
    keys_of,
)
from rostam_py.spec.model_names import check_model, model_text, with_part
from rostam_py.units import parse_time

Settings = dict[str, Any]
# Sections that hold a registered name and its parameters -> an example.
_NAMED = {
    "fabric": "fabric=torus fabric.dims=[4,4]", "cost": "cost=roofline",
    "software": "software=torchtitan software.compile=true",
}  # fmt: skip

# Sections that their own dataclass checks.
_SECTIONS: dict[str, Any] = {
    "machine": MachineKeys, "failures": RandomFailures, "search": SearchOptions, "mix": MixOptions,
    "variability": VariabilityKeys, "outages": OutageKeys, "packets": PacketKeys,
}  # fmt: skip


@functools.cache
def _defaults(mode: str) -> Settings:
    """Return what a point of a mode takes where nothing is given; sections are empty."""
    return {name: _default(entry) for name, entry in keys_of(mode).items()}


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default is MISSING:
        return entry.metadata["default"]
    if entry.default is not dataclasses.MISSING:
        return entry.default
    made = entry.default_factory() if callable(entry.default_factory) else None
    return {} if dataclasses.is_dataclass(made) else made


@functools.cache
def _known() -> Settings:
    """Return the defaults of all modes."""
    return {name: default for mode in MODES for name, default in _defaults(mode).items()}


def is_setting(key: str) -> bool:
    """Say whether a dotted key is below a setting of any mode."""
    return key.partition(".")[0] in ("mode", *all_keys())


def is_read(mode: str, key: str) -> bool:
    """Say whether points of a mode read a dotted key."""
    head, _, field = key.partition(".")
    is_searched = mode == "search" and head == "strategy" and field in SEARCHED
    return head in ("mode", *keys_of(mode)) and not is_searched


def keys_read(mode: str) -> list[str]:
    """Return the settings that a mode reads, in words."""
    but = f"strategy (but {', '.join(SEARCHED)}, which it searches)"
    return [but if mode == "search" and name == "strategy" else name for name in sorted(["mode", *keys_of(mode)])]


def with_key(settings: Settings, key: str, value: Any) -> Settings:
    """Return a copy with the value at a dotted key replaced; those of _NAMED take a name or {"name": ...}.

    Raises: ConfigError if the key goes through something that has no keys.
    """
    changed = dict(settings)
    head, _, rest = key.partition(".")
    if head == "model" and rest:
        changed[head] = with_part(changed.get(head, _known()[head]), rest, value)
    elif rest:
        changed[head] = _changed_inside(changed.get(head, _known().get(head)), head, rest, value)
    elif head == "model" and isinstance(changed.get(head), Mapping) and isinstance(value, str):
        changed[head] = with_part(changed[head], "name", value)  # it keeps the length of its sequences
    else:
        changed[head] = {"name": value} if head in _NAMED and isinstance(value, str) else value
    return changed


def _changed_inside(inner: Any, head: str, rest: str, value: Any) -> Any:
    """Return a mapping with a key, or a list with the entry at an index ("jobs.0.global_batch"), replaced."""
    if isinstance(inner, Mapping):
        return with_key(dict(inner), rest, value)
    index, _, deeper = rest.partition(".")
    if not isinstance(inner, list) or not index.isdigit() or int(index) >= len(inner):
        raise ConfigError(f"key '{head}.{rest}' does not exist: {head} holds {inner!r}")
    changed = list(inner)
    place = int(index)
    changed[place] = with_key(dict(changed[place]), deeper, value) if deeper else value
    return changed


def complete_settings(given: Mapping[str, Any]) -> Settings:
    """Return settings with every default filled in and every value checked.

    Args: given: any of the keys of ``rostam sweep --help``; "fabric", "cost" and "software" hold "name" and their
        parameters.
        Keys of other modes are dropped, unknown ones refused.
    Raises: ConfigError naming key, value and the allowed values.
    """
    mode = given.get("mode", next(iter(MODES)))
    if mode not in MODES:
        raise ConfigError(f"sweep.mode is {mode!r}; it must be one of: {', '.join(MODES)}")
    for key in given:
        if key != "mode" and key not in all_keys():
            known = ", ".join(sorted(["mode", *all_keys()]))
            raise ConfigError(f"unknown key {key!r}{in_brackets(key, given[key])}; keys are: {known}")
    settings = {"mode": mode} | {key: given.get(key, default) for key, default in _defaults(mode).items()}
    for key, schema in _SECTIONS.items():
        if key in settings:
            settings[key] = _section(key, schema, settings[key])
    # Where nothing varies or fails, or packets are as by default, the section leaves no trace, so that points without
    # it keep their identity.
    for key, schema in (("variability", VariabilityKeys), ("outages", OutageKeys), ("packets", PacketKeys)):
        if key in settings and schema(**settings[key]).is_none:
            del settings[key]
    _check_common(settings)
    size = _whole_size(settings)
    if isinstance(settings["software"], str):
        settings["software"] = {"name": settings["software"]}
    for key, example in _NAMED.items():
        if not isinstance(settings[key], Mapping):
            raise ConfigError(f"{key} is {settings[key]!r}; it must be a name with its parameters, such as {example}")
    settings["fabric"] = _complete_fabric(_text(settings["fabric"]), size, _stamp(settings["fabric"].get("links")))
    settings["cost"] = _complete_cost(_text(settings["cost"]))
    settings["software"] = _complete_software(_text(settings["software"]))
    if mode == "mix":
        _complete_mix(settings)
    else:
        _complete_training(settings)
    return settings


def _whole_size(settings: Settings) -> int | None:
    """Take num_accelerators out of settings; return the fabric's size for it, of which a run's job has the first."""
    size, fabric, strategy = settings.pop("num_accelerators"), settings["fabric"], settings.get("strategy")
    if size is None or settings["mode"] != "run" or not isinstance(strategy, Mapping):
        return size
    if not isinstance(fabric, Mapping) or fabric.get("name") not in FABRICS:
        return size
    size, first = first_of_whole(fabric["name"], size)
    if first is not None and strategy.get("accelerators") is None:
        settings["strategy"] = {**strategy, "accelerators": first}
    return size


def _complete_training(settings: Settings) -> None:
    """Complete and check what points that train one model have."""
    settings["strategy"] = _complete_strategy(_text(settings["strategy"]), "strategy", settings["mode"])
    settings["model"] = model_text(settings["model"])
    check_model(settings["model"])
    check_fidelity(settings["fidelity"])
    # What is exact leaves no trace, so that points keep their identity.
    if check_tolerance(settings.get("tolerance", 0.0)) == 0:
        settings.pop("tolerance", None)
    if settings.get("global_batch") is not None:
        settings["global_batch"] = check_count("global_batch", settings["global_batch"])
    if settings["mode"] == "search":
        settings["strategy"] = settings["strategy"] | SEARCHED
        from rostam_py.searching.candidates import check_placers  # which runs do without

        options = settings["search"]
        if options["budget"] is None:  # leaves no trace, so that points keep their identity
            del options["budget"]
        options["placers"] = list(check_placers(options["placers"], "search.placers", software=settings["software"]))
        if settings["target"] is not None and not options["batches"]:
            raise ConfigError(
                f"search.batches is missing: target={settings['target']!r} is reached at every batch; name those to"
                " try, for example search.batches=[256,512]"
            )
        if settings["target"] is None:
            settings["convergence"] = curve_of(
                settings["model"], settings["convergence"], options["batches"], settings["extrapolate"]
            )
    goal = goal_of_settings(settings)
    check_price(settings["accelerator_usd_per_hour"], has_goal=goal is not None)
    if goal is not None and settings.get("global_batch") is not None:
        goal.iterations(settings["global_batch"], extrapolate=settings["extrapolate"])


def check_price(usd_per_hour: float | None, *, has_goal: bool) -> None:
    """Raise ConfigError for a price of training where nothing says how long that is."""
    if usd_per_hour is not None and not has_goal:
        raise ConfigError(
            f"accelerator_usd_per_hour is {usd_per_hour}, the price of training up to a target, but there is none: give"
            " target, for example '1 T tokens', or convergence (rostam list convergence)"
        )


def goal_of_settings(settings: Settings, model: str | None = None) -> Curve | Target | None:
    """Return what a run or a search of complete settings trains to; None minimises time per sample.

    Args: model: the graph's name where the settings do not decide it, as of a saved plan.
    Raises: ConfigError for a curve or a target that is none, and for both.
    """
    curve = settings["convergence"]
    given = None if curve == NO_CURVE and settings["target"] is None else curve
    return goal_of(given, settings["target"], model or settings["model"])


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, ProgramRules):
        return value.changed
    if isinstance(value, Placing):  # what is not set leaves no trace, so that points keep their identity
        return {key: one for key, one in dataclasses.asdict(value).items() if one is not None}
    raise ConfigError(f"a setting holds a {type(value).__name__}; use numbers, text, lists and mappings")


def _section(key: str, schema: Any, given: Any) -> Settings:
    """Return a section's fields, defaults filled in, as its dataclass checks them."""
    known = [entry.name for entry in dataclasses.fields(schema)]
    if not isinstance(given, Mapping):
        raise ConfigError(f"{key} is {given!r}; it is given key by key: {', '.join(f'{key}.{one}' for one in known)}")
    for inner in given:
        if key == "machine" and inner in HOST_RULES:
            new = f"software.rules.{inner}"
            raise ConfigError(f"machine.{inner} is {new} now: set {instead(new, given[inner])}")
        if inner not in known:
            hint = in_brackets(f"{key}.{inner}", given[inner])
            raise ConfigError(f"unknown key '{key}.{inner}'{hint}; {key} has: {', '.join(known)}")
    made = dataclasses.asdict(schema(**given))
    # What is not known of a machine leaves no trace, so that points of machines without it keep their identity.
    return {name: value for name, value in made.items() if value is not None or name not in UPKEEP}


def _check_common(settings: Settings) -> None:
    settings["accelerator"] = get_accelerator(settings["accelerator"]).name
    check_routing(settings["routing"])
    settings["routing"] = told_once(settings["routing"])
    settings["controllers"] = [
        {"name": name, **parameters} for name, parameters in check_controllers(settings["controllers"])
    ]
    settings["seed"] = check_seed("seed", settings["seed"])
    if settings["num_accelerators"] is not None:
        check_integer("num_accelerators", settings["num_accelerators"], 1)
    check_usd_per_hour(settings["accelerator_usd_per_hour"])


def _stamp(file: Any) -> tuple[int, int] | None:
    """Return what changes when a named file does: a list of links is read once for each of its contents."""
    if not isinstance(file, str) or not Path(file).is_file():
        return None
    found = Path(file).stat()
    return found.st_mtime_ns, found.st_size


# What these return is shared between points and never changed: 100,000 points have few different fabrics.
@functools.lru_cache(maxsize=4096)
def _complete_fabric(text: str, size: int | None, stamp: tuple[int, int] | None) -> Settings:
    given = json.loads(text)
    name = given.pop("name", None)
    if name is None:
        raise ConfigError("fabric.name is missing; a fabric is {'name': 'torus', 'dims': [4, 4]}")
    schema = FABRICS.get(name)
    if size is not None:
        given = resize_parameters(name, given, size)
    config = make_config(name, schema, given)
    values = {entry.name: getattr(config, entry.name) for entry in dataclasses.fields(config)}
    return dict(json.loads(_text({"name": name, **values})))


@functools.lru_cache(maxsize=4096)
def _complete_cost(text: str) -> Settings:
    given = json.loads(text)
    name = given.pop("name", None)
    if name is None:
        raise ConfigError("cost.name is missing; a cost model is {'name': 'roofline'}")
    schema = COST_MODELS.get(name).Config
    known = {entry.name for entry in dataclasses.fields(schema)}
    for key in given:
        if key not in known:
            hint = in_brackets(key, given[key])
            raise ConfigError(f"cost {name!r} has no parameter {key!r}{hint}; it has {', '.join(sorted(known))}")
    defaults = schema()
    # Only what differs from the default: a cost model's own default must not override machine.min_kernel_time.
    return {"name": name, **{k: v for k, v in given.items() if v != getattr(defaults, k)}}


@functools.lru_cache(maxsize=4096)
def _complete_software(text: str) -> Settings:
    stack = stack_of(json.loads(text))
    release = {"release": stack.line} if stack.line else {}
    ratios = {"ratios": stack.ratios} if stack.ratios else {}
    return {"name": json.loads(text).get("name", AUTO), **release, **ratios, **json.loads(_text(stack.flags))}


@functools.lru_cache(maxsize=4096)
def _complete_strategy(text: str, where: str, mode: str) -> Settings:
    given = json.loads(text)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is {given!r}; it must be a mapping such as {{dp: 4, tp: 2}}")
    schema = OpenStrategy if mode == "search" else Strategy
    known = {entry.name for entry in dataclasses.fields(schema)}
    for key in given:
        if key in MOVED:
            new = moved_to(key, where)
            raise ConfigError(f"{where}.{key} is {new} now: set {instead(new, given[key])}")
        if key not in known:
            hint = in_brackets(key, given[key])
            raise ConfigError(f"unknown key '{where}.{key}'{hint}; {where} has: {', '.join(sorted(known))}")
    checked = schema(**given)
    return dict(json.loads(_text({name: getattr(checked, name) for name in sorted(known)})))


def curve_of(model: str, convergence: str | None, batches: list[int] | None, extrapolate: bool) -> str | None:
    """Return the name of the curve that a search uses: as given, or the model's own; None minimises time per sample.

    Raises: ConfigError if there is neither a curve nor batches, or a batch outside the curve's measured range.
    """
    if convergence == NO_CURVE or (convergence is None and model not in DEFAULT_CURVES):
        if not batches:
            raise ConfigError(
                f"search.batches is missing: without a convergence curve for model {model!r} the batches must be"
                " named, for example search.batches=[256,512]"
            )
        return NO_CURVE
    name = convergence or DEFAULT_CURVES[model]
    for batch in batches or ():
        get_curve(name).iterations(batch, extrapolate=extrapolate)
    return str(get_curve(name).name)


def _complete_mix(settings: Settings) -> None:
    if not settings["jobs"]:
        raise ConfigError("jobs is empty; a mix needs at least one, for example jobs=[{model: gpt_125m}]")
    settings["jobs"] = complete_jobs(settings["jobs"])


def complete_jobs(given: Any) -> list[Settings]:
    """Return the jobs of a mix with every default filled in and every value checked.

    Raises: ConfigError naming the job's place, key, value and the allowed values.
    """
    if not isinstance(given, list | tuple):
        raise ConfigError(f"jobs is {given!r}; it must be a list of jobs, for example [{{model: gpt_125m}}]")
    jobs = []
    for number, job in enumerate(given):
        try:
            jobs.append(_complete_job(number, job))
        except ConfigError as error:
            where = f"jobs[{number}]"
            raise error if where in str(error) else type(error)(f"{where}: {error}") from error
    return jobs


def _complete_job(number: int, given: Any) -> Settings:
    where = f"jobs[{number}]"
    known = {entry.name: _default(entry) for entry in dataclasses.fields(JobKeys)}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is {given!r}; a job is a mapping with the keys: {', '.join(known)}")
    for key in given:
        if key not in known:
            hint = in_brackets(key, given[key])
            raise ConfigError(f"unknown key '{where}.{key}'{hint}; {where} has: {', '.join(known)}")
    job = known | dict(given)
    job["model"] = model_text(job["model"], f"{where}.model")
    check_model(job["model"])
    job["name"] = str(job["name"] or f"{Path(str(job['model']).split(':')[0]).stem}_{number}")
    if job["global_batch"] is not None:
        job["global_batch"] = check_count(f"{where}.global_batch", job["global_batch"])
    parse_time(job["start"], f"{where}.start")
    strategy = _complete_strategy(_text(job["strategy"]), f"{where}.strategy", "mix")
    job["strategy"] = strategy | {"dp": strategy["dp"] or 1}
    return job
