"""Examples and sizes: every registered fabric gives a small one of itself and can be resized, or says why not."""

import dataclasses

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS, example_fabric
from rostam_py.fabrics.config import FabricConfig, make_config
from rostam_py.fabrics.sizes import near_equal, resize_parameters


def parameters_of(config):
    """What a Config was given or took by default; its bandwidths as given."""
    return {entry.name: getattr(config, entry.name) for entry in dataclasses.fields(config)}


@pytest.mark.parametrize("name", FABRICS.names())
def test_every_fabric_resizes_its_example_or_says_why_not(name):
    config = FABRICS.get(name).example()
    before = parameters_of(config)
    resized = 0
    for count in (4, 16, 36, 144):
        try:
            fabric = rostam.fabric(name, **resize_parameters(name, before, count))
        except ConfigError as error:
            assert f"num_accelerators is {count}" in str(error)  # noqa: PT017  (a refusal must name the value)
            continue
        assert fabric.num_accelerators == count
        assert parameters_of(config) == before
        resized += 1
    if resized:
        own = resize_parameters(name, before, example_fabric(name).num_accelerators)
        assert parameters_of(make_config(name, FABRICS.get(name), own)) == before  # the example's own size


@pytest.mark.parametrize(
    ("name", "given", "count", "expected"),
    [
        ("torus", {}, 12, {"dims": [4, 3]}),
        ("torus", {"dims": [2, 2, 2]}, 60, {"dims": [5, 4, 3]}),
        ("torus", {"board": [2, 3]}, 36, {"board": [2, 3], "dims": [6, 6]}),  # 6 boards: 3 x 2
        ("hammingmesh", {"board": [2, 2]}, 48, {"board": [2, 2], "boards": [4, 3]}),
        ("fat_tree", {"radix": 8}, 100, {"radix": 8, "num_accelerators": 100}),
        ("electrical_flat", {"num_accelerators": 5}, 7, {"num_accelerators": 7}),
    ],
)
def test_sizes_are_as_near_to_square_as_whole_numbers_allow(name, given, count, expected):
    assert resize_parameters(name, given, count) == expected


@pytest.mark.parametrize(
    ("name", "given", "count", "said"),
    [
        ("torus", {"board": [2, 3]}, 10, "num_accelerators is 10; fabric.board is 2x3, .* multiple of 6, such as 6"),
        ("hammingmesh", {"board": [4, 4]}, 8, "num_accelerators is 8; fabric.board is 4x4, .* multiple of 16, such"),
        ("hammingmesh", {"board": "2x2"}, 8, "fabric.board is '2x2'; it must be a list of integers"),
        ("torus", {"dims": "4x4"}, 8, "fabric.dims is '4x4'; it must be a list of integers"),
        ("custom", {"links": []}, 8, "num_accelerators is 8, but cannot size a custom fabric: its links are given"),
        ("tours", {}, 8, "did you mean 'torus'"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused(name, given, count, said):
    with pytest.raises(ConfigError, match=said):
        resize_parameters(name, given, count)


def test_a_schema_without_a_number_of_accelerators_names_what_decides_its_size():
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Cube(FabricConfig):
        side: int = 2

    with pytest.raises(ConfigError, match="cannot size this fabric: its size follows from side"):
        Cube.resized({}, 8)


@pytest.mark.parametrize(("product", "factors"), [(1, 3), (7, 2), (64, 3), (360, 3), (97, 1)])
def test_factors_are_whole_and_ordered(product, factors):
    found = near_equal(product, factors)
    assert len(found) == factors
    assert found == sorted(found, reverse=True)
    total = 1
    for one in found:
        total *= one
    assert total == product
