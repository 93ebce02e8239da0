"""Extremes behind every key that takes a number or a quantity: an error of rostam before any work, or a legal value."""

import dataclasses
import itertools
import traceback
import types
import typing
from functools import partial

import pytest

from rostam_py.cli.compose import compose_config
from rostam_py.cli.point import point_settings
from rostam_py.cli.schema import RunConfig, SearchConfig
from rostam_py.convergence import load_curve, time_to_accuracy
from rostam_py.convergence.target import parse_target
from rostam_py.costs import COST_MODELS
from rostam_py.errors import ConfigError, RostamError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.config import make_config
from rostam_py.spec.build import build_machine, build_strategy
from rostam_py.spec.settings import complete_settings, with_key
from rostam_py.validation.tables import user_table

DIGITS = "9" * 5000
NUMBERS = (
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    0,
    1e308,
    1e-320,
    2**63,
    2**70,
    True,
    None,
    "x",
    DIGITS,
    [],
    {},
)
TEXTS = ("nan", "inf", "-inf", "-1", "1e400", "1e-320", DIGITS, f"{DIGITS} GB", "1e400 s", "-1 us", "nan s", "1e-320 s")
FABRIC = {"name": "fat_tree", "num_accelerators": 8}
ON_THE_LINE = {
    "run": (
        "global_batch", "strategy.tp", "software.rules.bucket_size", "machine.watts", "seed", "num_accelerators",
        "tolerance",
        "machine.launch_latency", "accelerator_usd_per_hour", "fabric.radix", "fabric.link_bandwidth",
        "model.sequence_length", "target",
    ),
    "collective": ("ranks", "sizes.begin", "tolerance", "sizes.factor"),
}  # fmt: skip
_OF_COMMANDS = ("out", "plan", "task_graph", "report")


def _numeric(schema, prefix=""):
    """Yield the dotted keys of a schema that take numbers, quantities or anything."""
    hints = typing.get_type_hints(schema)
    for entry in dataclasses.fields(schema):
        kind = hints[entry.name]
        kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        if dataclasses.is_dataclass(entry.default_factory):
            yield from _numeric(entry.default_factory, f"{prefix}{entry.name}.")
        elif {int, float, typing.Any}.intersection(kinds) or "unit" in entry.metadata:
            yield f"{prefix}{entry.name}"


def _settled(settings):
    """Do with settings what a run does before it traces."""
    complete = complete_settings(settings)
    machine = build_machine(complete)
    if complete["mode"] == "run":
        build_strategy(complete, machine)


def _broken(cases):
    """Return what other errors than rostam's (key, value, action) raise; of each key and error one."""
    found = {}
    for key, value, action in cases:
        try:
            action()
        except RostamError:
            continue
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{key}={str(value)[:40]}: {type(error).__name__}: {str(error)[:80]} ({at.filename}:{at.lineno})"
            found.setdefault((key, type(error)), said)
    return list(found.values())


@pytest.mark.parametrize("mode", ["run", "search"])
def test_every_numeric_setting_refuses_what_is_no_number_of_its_kind(mode):
    base = {"mode": mode, "model": "gpt_125m", "fabric": FABRIC, "search": {"batches": [8]}}
    keys = [key for key in _numeric(RunConfig if mode == "run" else SearchConfig) if not key.startswith("wandb")]
    assert len(keys) > 40
    read = [key for key in keys if key.partition(".")[0] not in _OF_COMMANDS and key != "search.show"]
    cases = itertools.product(read, (*NUMBERS, *TEXTS))
    assert _broken((key, value, lambda k=key, v=value: _settled(with_key(base, k, v))) for key, value in cases) == []


def test_every_parameter_of_a_fabric_and_of_a_cost_model_refuses_it_too():
    cases = []
    for name in FABRICS:
        schema = FABRICS.get(name)
        example = {entry.name: getattr(schema.example(), entry.name) for entry in dataclasses.fields(schema)}
        for entry, value in itertools.product(dataclasses.fields(schema), (*NUMBERS, *TEXTS)):
            given = example | {entry.name: value}
            cases.append((f"{name}.{entry.name}", value, partial(make_config, name, schema, given)))
    for name in COST_MODELS:
        for entry, value in itertools.product(dataclasses.fields(COST_MODELS.get(name).Config), (*NUMBERS, *TEXTS)):
            given = {"model": "gpt_125m", "fabric": FABRIC, "cost": {"name": name, entry.name: value}}
            cases.append((f"cost={name}.{entry.name}", value, partial(complete_settings, given)))
    assert _broken(cases) == []


@pytest.mark.parametrize(("command", "keys"), ON_THE_LINE.items())
def test_extremes_on_the_command_line_end_in_errors(command, keys):
    cases = []
    for key, value in itertools.product(keys, ("nan", "inf", "-1", "1e400", "1e-320", DIGITS)):
        given = [f"{key}={value}", *(["model=gpt_125m"] if command == "run" else [])]
        cases.append((key, value, lambda g=given: _composed(command, g)))
    assert _broken(cases) == []


def _composed(command, given):
    config = compose_config(command, given)
    return point_settings("run", config) if command == "run" else config


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), -0.01, True, "2", 10**400])
def test_a_price_that_is_none_is_refused(price):
    class Result:
        iteration_time_s = 0.1
        plan = types.SimpleNamespace(graph_name="resnet50", global_batch=4096, num_devices=8)

    with pytest.raises(ConfigError, match=r"accelerator_usd_per_hour is .*; it must be a number of dollars >= 0"):
        time_to_accuracy(Result(), "resnet50_mlperf", accelerator_usd_per_hour=price)
    assert time_to_accuracy(Result(), "resnet50_mlperf", accelerator_usd_per_hour=2).usd > 0


@pytest.mark.parametrize(
    "text",
    ["1e400 samples", "1e308 T tokens", f"{DIGITS} samples", f"1 G tokens at {DIGITS} tokens a sample", "0 samples",
     f"{DIGITS} epochs of 3 samples", "nan samples", "-1 samples", "1e-400 samples"],
)  # fmt: skip
def test_an_amount_of_data_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="target is ") as caught:
        parse_target(text, "gpt_125m")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("row", ["4096,1e-320", "4096,1e300", "1e300,40", f"{DIGITS},40", f"4096,{DIGITS}", "4096,0"])
def test_a_curve_of_figures_that_are_none_is_refused(row, tmp_path):
    path = tmp_path / "curve.csv"
    for form in ("log_log", "fit"):
        path.write_text(f"# samples_per_epoch: 1281167\n# form: {form}\nbatch,epochs\n{row}\n8192,42\n")
        with pytest.raises(ConfigError, match=r"curve\.csv"):
            load_curve(path)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("accelerator", "true", "accelerator is True; it must be a name"),
     ("machine", "1.5", "machine is 1.5; it must be"),
     ("fabric", "[1]", r"fabric is \[1\]; it must be a name"), ("cost", "2", "cost model is 2; it must be a name"),
     ("strategy.tp", "x", "strategy.tp is 'x'"), ("global_batch", "nan", "global_batch is 'nan'")],
)  # fmt: skip
def test_values_of_another_type_in_measurements_are_refused(column, value, said, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(f"name,model,{column},time_s\none,gpt_125m,{value},1\n")
    with pytest.raises(ConfigError, match=rf"line 2, column .*: {said}"):
        user_table(path)
