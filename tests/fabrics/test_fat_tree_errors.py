"""Bad parameters of fat trees, and of networks built on one: the key, its value and what is allowed are named."""

import pytest

from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric

BAD = [
    ({"num_accelerators": 0}, "fabric.num_accelerators is 0; it must be an integer >= 1"),
    ({"num_accelerators": -5}, "fabric.num_accelerators is -5; it must be an integer >= 1"),
    ({"num_accelerators": 2.5}, "fabric.num_accelerators is 2.5; it must be an integer >= 1"),
    ({"num_accelerators": True}, "fabric.num_accelerators is True; it must be an integer >= 1"),
    ({"num_accelerators": "many"}, "fabric.num_accelerators is 'many'; it must be an integer >= 1"),
    ({"num_accelerators": 10**12}, "fabric.num_accelerators is 1000000000000; it must be <= 16777216"),
    # 64 ports: 64 x 32 leaves of 32.
    (
        {"num_accelerators": 10**6},
        r"num_accelerators is 1,000,000 on 31,250 leaves; three levels of fabric.radix 64 join at most 2,048 leaves, "
        r"65,536 accelerators with fabric.leaf_down = 32",
    ),
    ({"radix": 2}, "128 leaves; three levels of fabric.radix 2 join at most 2 leaves, 2 accelerators with"),
    ({"radix": 1}, "fabric.radix is 1; it must be an integer >= 2"),
    ({"radix": -64}, "fabric.radix is -64; it must be an integer >= 2"),
    ({"radix": 63.5}, "fabric.radix is 63.5; it must be an integer >= 2"),
    ({"radix": 10**9}, "fabric.radix is 1000000000; it must be <= 16777216"),
    ({"levels": 1}, "fabric.levels is 1; allowed: 2, 3"),
    ({"levels": 4}, "fabric.levels is 4; allowed: 2, 3"),
    ({"levels": 2.0}, "fabric.levels is 2.0; allowed: 2, 3"),
    ({"levels": "two"}, "fabric.levels is 'two'; allowed: 2, 3"),
    ({"levels": [2]}, r"fabric.levels is \[2\]; allowed: 2, 3"),
    (
        {"levels": 2, "num_accelerators": 4096},
        "fabric.levels is 2, but 128 leaves .* need 64 spines .* at most 64 leaves, 2,048 accelerators .*; use 3",
    ),
    ({"leaf_down": 64}, "fabric.leaf_down is 64; it must be from 1 to 63, .* fabric.radix 64"),
    ({"leaf_up": 70}, "fabric.leaf_up is 70; it must be from 1 to 63, .* fabric.radix 64"),
    ({"leaf_down": 0}, "fabric.leaf_down is 0; it must be an integer >= 1"),
    ({"leaf_up": -1}, "fabric.leaf_up is -1; it must be an integer >= 1"),
    (
        {"leaf_down": 40, "leaf_up": 40},
        "leaf_down is 40 and fabric.leaf_up is 40; both .* fit fabric.radix 64 together",
    ),
    ({"num_spines": 100}, "fabric.num_spines is 100; 4 leaves .* allow 2 .* to 32"),
    ({"num_spines": 0}, "fabric.num_spines is 0; it must be an integer >= 1"),
    ({"server_size": 0}, "fabric.server_size is 0; it must be an integer >= 1"),
    ({"rails": "yes"}, "fabric.rails is 'yes'; it must be true or false"),
    ({"planes": 1.5}, "fabric.planes is 1.5; it must be an integer >= 1"),
    ({"taper": 2}, "fabric 'fat_tree' has no parameter 'taper'; it has .*leaf_down, leaf_up"),
]


@pytest.mark.parametrize(("params", "message"), BAD)
def test_a_bad_parameter_is_named_with_its_value_and_what_is_allowed(params, message):
    with pytest.raises(ConfigError, match=message):
        build_fabric("fat_tree", **{"num_accelerators": 128, **params})


# The largest trees that levels join, and one accelerator more. Radix 8 with leaves of 4: 8 leaves on two levels, 32 on
# three; leaves of 6 hold 6 x 32.
@pytest.mark.parametrize(
    ("params", "most"), [({"levels": 2}, 32), ({"levels": 3}, 128), ({}, 128), ({"leaf_down": 6}, 192)]
)
def test_the_stated_limit_is_the_largest_tree_that_can_be_built(params, most):
    fabric = build_fabric("fat_tree", num_accelerators=most, radix=8, **params)
    assert fabric.core.num_accelerators == most
    with pytest.raises(ConfigError, match=f" {most} accelerators with fabric.leaf_down"):
        build_fabric("fat_tree", num_accelerators=most + 1, radix=8, **params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        # Two accelerators for each NIC, leaves of 16 of 36 ports: 36 x 18 of them on three levels, 36 on two.
        (
            {"num_accelerators": 10**6},
            "is 1,000,000; 3 levels of fabric.radix 36 join at most 20,736, whose 10,368 NICs",
        ),
        (
            {"num_accelerators": 2048, "levels": 2},
            "is 2,048; 2 levels of fabric.radix 36 join at most 1,152, whose 576",
        ),
        ({"leaf_down": 64}, "fabric.leaf_down is 64; it must be < 36, fabric.radix"),
        ({"leaf_down": 70}, "fabric.leaf_down is 70; .* must be a multiple of 4"),
        ({"leaf_up": 64}, "leaf_down is 16 and fabric.leaf_up is 64; both .* fit fabric.radix 36"),
        ({"levels": 5}, "fabric.levels is 5; allowed: 2, 3"),
        ({"num_accelerators": 12}, "fabric.num_accelerators is 12; servers have 8"),
    ],
)
def test_a_network_of_servers_names_its_own_limits(params, message):
    with pytest.raises(ConfigError, match=message):
        build_fabric("hybrid_cube_mesh", **{"num_accelerators": 32, **params})


def test_the_stated_limit_of_servers_is_the_largest_that_can_be_built():
    assert build_fabric("hybrid_cube_mesh", num_accelerators=1152, levels=2).num_accelerators == 1152
    with pytest.raises(ConfigError, match="join at most 1,152"):
        build_fabric("hybrid_cube_mesh", num_accelerators=1160, levels=2)
