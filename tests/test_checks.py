"""Whole numbers that users give are checked, never rounded; booleans are nothing else."""

from dataclasses import fields

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.checks import check_integers, check_seed, is_integer
from rostam_py.collectives.closed_forms import collective_time_ps
from rostam_py.collectives.predicted_time import choose_algorithm, predict_collective_time
from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.throughput import link_loads, saturation_throughput
from rostam_py.fabrics.traffic import Traffic
from rostam_py.plan import Strategy
from rostam_py.simulation.options import SimulationOptions


@pytest.mark.parametrize("value", [0, -3, np.int32(4), np.uint8(2), 2**70])
def test_integers_of_python_and_numpy_are_integers(value):
    assert is_integer(value)


@pytest.mark.parametrize("value", [True, np.bool_(True), 4.0, np.float64(4), "4", None, [4]])
def test_nothing_else_is(value):
    assert not is_integer(value)


def test_seeds_are_what_the_core_takes():
    assert check_seed("seed", np.int64(3)) == 3
    assert check_seed("seed", 2**64 - 1) == 2**64 - 1
    for bad in (-1, 2**64, 1.0, True, "1"):
        with pytest.raises(ConfigError, match=r"^seed is .*; it must be an integer from 0 to 2\^64 - 1$"):
            check_seed("seed", bad)


@pytest.mark.parametrize("values", [[0, 2], (0, 2), range(0, 4, 2), np.array([0, 2], np.int32), np.array([0, 2], "u8")])
def test_lists_of_integers_become_arrays(values):
    checked = check_integers("ranks", values)
    assert checked.dtype == np.int64
    assert checked.tolist() == [0, 2]
    assert check_integers("ranks", []).shape == (0,)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0, 1.9], r"ranks\[1\] is 1.9; it must be an integer"),
        ([True], r"ranks\[0\] is True"),
        (np.arange(4.0), r"ranks\[0\] is .*0.0"),
        (["0"], r"ranks\[0\] is '0'"),
        ([2**70], r"ranks\[0\] is 1180591620717411303424"),
        (3, "ranks is 3; it must be a list of integers"),
        ("012", "ranks is '012'; it must be a list of integers"),
        (None, "ranks is None; it must be a list of integers"),
    ],
)
def test_anything_else_in_a_list_is_named(values, said):
    with pytest.raises(ConfigError, match=said):
        check_integers("ranks", values)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f: saturation_throughput(f, "shift", shift=2.9), "shift is 2.9; it must be an integer"),
        (lambda f: saturation_throughput(f, np.arange(16) + 0.5), r"pattern\[0\] is .*0.5"),
        (lambda f: link_loads(f, [0.5], [1], [1.0]), r"src\[0\] is 0.5"),
        (lambda f: link_loads(f, [0], [2**40], [1.0]), "dst names accelerator 1099511627776; there are 0 to 15"),
        (lambda f: Traffic.from_messages(4, [0.9], [1], [1.0]), r"traffic.src\[0\] is 0.9"),
        (lambda f: Traffic(4, [0], [1.9], [1.0]), r"traffic.dst\[0\] is 1.9"),
        (lambda f: predict_collective_time(f, "all_reduce", "ring", 8, ranks=[0.5, 1]), r"ranks\[0\] is 0.5"),
        (lambda f: predict_collective_time(f, "all_reduce", "ring", 8, ranks=[0, 16]), "accelerator 16; .* 0 to 15"),
        (lambda f: predict_collective_time(f, "all_reduce", "ring", 8, group=-7), "group is -7 for 16 ranks"),
        (lambda f: choose_algorithm(f, "all_to_all", 8, grid=(3, 5)), r"grid is \(3, 5\) for 16 ranks"),
        (
            lambda f: collective_time_ps("all_reduce", "ring", num_bytes=8, num_ranks=2.5, latency=0.0, bandwidth=1.0),
            "num_ranks is 2.5; it must be an integer >= 1",
        ),
    ],
)
def test_fractions_and_strangers_are_refused_wherever_ids_are_taken(call, said):
    with pytest.raises(ConfigError, match=said):
        call(rostam.fabric("torus", dims=(4, 4)))


def test_a_seed_of_circuits_is_checked_before_they_are_set():
    ring = rostam.fabric("sip_ring", num_accelerators=8)
    with pytest.raises(ConfigError, match="seed is -1"):
        ring.with_circuits(Traffic.from_messages(8, [0], [1], [1.0]), seed=-1)


SCHEMAS = [Strategy, SimulationOptions, *(FABRICS.get(name) for name in FABRICS)]


@pytest.mark.parametrize("schema", [one for one in SCHEMAS if "bool" in str([entry.type for entry in fields(one)])])
def test_what_is_no_boolean_is_refused_for_every_boolean_key(schema):
    made = schema.example() if hasattr(schema, "example") else schema()
    kept = {one.name: getattr(made, one.name) for one in fields(schema)}
    keys = [one.name for one in fields(schema) if one.type in (bool, bool | None)]
    assert keys
    for key in keys:
        for bad in (2, 0, "true", 1.0):
            with pytest.raises(ConfigError, match=rf"\.{key} is {bad!r}; it must be true or false"):
                schema(**kept | {key: bad})
        schema(**kept | {key: np.bool_(kept[key] or False)})
