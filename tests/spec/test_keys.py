"""One schema: a key has one default, unit and list of names, wherever it is read."""

import dataclasses
import inspect

import pytest

import rostam_py as rostam
from rostam_py.cli.schema import command_schema
from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS
from rostam_py.plan import PLACERS, Strategy
from rostam_py.plan.machine import HOST_SPEED, PHYSICS, UPKEEP, Machine
from rostam_py.searching import Searcher
from rostam_py.spec.keys import MODES, MachineKeys, MixOptions, SearchOptions, all_keys, keys_of
from rostam_py.spec.lookup import choices_of, inner_keys, unit_of
from rostam_py.spec.settings import complete_settings, is_read


def default_of(entry):
    return entry.default if entry.default is not dataclasses.MISSING else entry.default_factory()


@pytest.mark.parametrize("mode", MODES)
def test_a_command_and_a_point_have_the_same_keys_with_the_same_defaults(mode):
    settings = complete_settings({"mode": mode, **({"jobs": [{}]} if mode == "mix" else {})})
    entries = {entry.name: entry for entry in dataclasses.fields(command_schema("sweep"))}
    for key, entry in keys_of(mode).items():
        assert default_of(entries[key]) == default_of(entry)
        if key in settings and "schemas" not in entry.metadata and not dataclasses.is_dataclass(default_of(entry)):
            is_own_curve = (mode, key) == ("search", "convergence")
            assert settings[key] == ("resnet50_mlperf" if is_own_curve else default_of(entry))
    if mode in ("run", "search"):
        own = {entry.name: entry for entry in dataclasses.fields(command_schema(mode))}
        assert set(keys_of(mode)) <= set(own)
    assert all(is_read(mode, key) for key in settings)


def test_keywords_of_python_have_the_defaults_of_the_keys():
    """A signature shows its defaults to who reads it; they may not differ from the schema's."""
    defaults = {key: default_of(entry) for key, entry in all_keys().items()}
    search = {entry.name: entry.default for entry in dataclasses.fields(SearchOptions)}
    mix = {entry.name: entry.default for entry in dataclasses.fields(MixOptions)}
    for function, known, but in (
        (rostam.simulate, defaults, {"controllers", "packets"}),  # None: those of the key
        (rostam.search, defaults | search, {"controllers", "cost", "software"}),
        (Searcher.__init__, defaults, {"controllers", "cost", "software"}),
        (rostam.place_mix, mix, set()),
        (rostam.simulate_mix, defaults | mix, {"controllers", "routing"}),  # DESIGN: mixes of Python hash
    ):
        given = {name: one.default for name, one in inspect.signature(function).parameters.items()}
        shared = (set(given) & set(known)) - but - {"fabric", "machine", "strategy"}
        assert shared, function
        assert {name: given[name] for name in shared if given[name] is not inspect.Parameter.empty} == {
            name: known[name] for name in shared if given[name] is not inspect.Parameter.empty
        }, function


def test_the_machine_s_keys_are_its_physics_hosts_power_and_price():
    known = {entry.name: entry.default for entry in dataclasses.fields(Machine)}
    assert {entry.name: entry.default for entry in dataclasses.fields(MachineKeys)} == {
        key: known[key] for key in (*PHYSICS, *HOST_SPEED, *UPKEEP)
    }


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("software.rules.bucket_size", "size"), ("strategy.placing.quantum", "time"),
        ("machine.launch_latency", "time"),
        ("cost.ramp_time", "time"), ("fabric.link_bandwidth", "bandwidth"), ("jobs[0].start", "time"),
        ("jobs.3.strategy.rules.bucket_size", "size"), ("mix.arrival_window", "time"), ("seed", None), ("jobs", None),
        ("strategy.tp", None), ("strategy.algorithms.all_reduce", None), ("nothing.of_this", None), ("fabric", None),
    ],
)  # fmt: skip
def test_units_are_found_by_dotted_keys(key, unit):
    assert unit_of(key) == unit


def test_names_are_found_by_dotted_keys():
    assert choices_of("strategy.placer") == choices_of("jobs.0.strategy.placer") == list(PLACERS)
    assert "ring" in choices_of("strategy.algorithms.all_reduce")
    assert "all_reduce" in inner_keys("strategy.algorithms")
    assert choices_of("strategy.algorithms.gossip") is None
    assert choices_of("seed") is choices_of("strategy.algorithms") is choices_of("fabric") is None
    assert choices_of("sweep.backend", command_schema("sweep")) == ["ray", "process", "inline"]
    assert inner_keys("fabric") == []


def test_every_unit_of_a_fabric_is_one_over_all_fabrics():
    """``unit_of("fabric.KEY")`` does not ask which fabric."""
    found = {}
    for name in FABRICS:
        for entry in dataclasses.fields(FABRICS.get(name)):
            assert found.setdefault(entry.name, entry.metadata.get("unit")) == entry.metadata.get("unit"), entry.name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fidelity": "magic"}, "fidelity is 'magic'; it must be one of: flow"),
        ({"fabric": []}, "fabric is []; it must be a name with its parameters"),
        ({"cost": [1, 2, 3]}, "cost is [1, 2, 3]; it must be a name with its parameters"),
        ({"machine": 3}, "machine is 3; it is given key by key: machine.launch_latency"),
        ({"machine": {"speed": 3}}, "unknown key 'machine.speed'; machine has: launch_latency"),
        ({"failures": {"links": "5"}, "speed": 1}, "unknown key 'speed'; keys are: accelerator"),
        ({"strategy": {"algorithms": "ring"}}, "strategy.algorithms is 'ring'; it must be a mapping"),
        ({"strategy": 5}, "strategy is 5; it must be a mapping"),
        ({"seed": -1}, "seed is -1"),
        ({"global_batch": 0}, "global_batch is 0; it must be an integer >= 1"),
        ({"controllers": "link_bandwidth"}, "controllers is 'link_bandwidth'; it must be a list"),
        ({"controllers": ["nobody"]}, "controllers names 'nobody'; registered: link_bandwidth"),
        ({"controllers": [{"time_ps": [1]}]}, "each must be a name, (name, parameters) or {name: NAME"),
        ({"mode": "mix", "jobs": [{}], "mix": {"allocation": "best"}}, "mix.allocation is 'best'"),
        ({"mode": "search", "search": {"num_simulated": -1}}, "search.num_simulated is -1"),
        ({"mode": "search", "search": {"placers": ["magic"]}}, "search.placers holds 'magic'"),
        ({"mode": "search", "search": {"batches": "256"}}, "search.batches is '256'; it must be a list"),
    ],
)
def test_a_bad_value_is_refused_at_the_door(given, said):
    with pytest.raises(ConfigError) as caught:
        complete_settings(given)
    assert said in str(caught.value)


def test_the_schema_of_a_strategy_has_all_keys_but_the_rules_of_programs():
    given = dataclasses.asdict(default_of(keys_of("run")["strategy"]))
    assert len(given) == 29
    assert Strategy(**given) == Strategy()
    assert {entry.name for entry in dataclasses.fields(Strategy)} == {*given, "rules"}
