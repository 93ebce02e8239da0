"""Bad parameters of fat trees: each error names the key, its value and what is allowed."""

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
