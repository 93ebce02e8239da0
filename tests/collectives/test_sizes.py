"""Sizes of a sweep, and elements as nccl-tests count them."""

import pytest

from rostam_py.collectives.sizes import ELEMENT_BYTES, sizes_between, whole_elements
from rostam_py.errors import ConfigError


def test_sizes_grow_by_the_factor_up_to_the_end():
    assert sizes_between(8, 128, 4) == [8, 32, 128]
    assert sizes_between(8, 127, 4) == [8, 32]
    assert sizes_between(5, 5, 2) == [5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0, 8, 2), "sizes.begin is 0"), ((8, 4, 2), "sizes.end is 4"), ((8, 16, 1), "sizes.factor is 1")],
)
def test_bad_ranges_are_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        sizes_between(*arguments)


def test_elements_are_counted_as_nccl_tests_do():
    # 1000 B of float: 250 elements of an all_reduce. Of 8 ranks' parts, 125 B each, 112 B are a multiple of 16 B.
    assert whole_elements("all_reduce", 1003, ELEMENT_BYTES["float"], num_ranks=8) == (1000, 250)
    for collective in ("all_gather", "reduce_scatter", "all_to_all"):
        assert whole_elements(collective, 1003, ELEMENT_BYTES["float"], num_ranks=8) == (896, 28)
        assert whole_elements(collective, 127, ELEMENT_BYTES["half"], num_ranks=8) == (0, 0)
    assert whole_elements("broadcast", 7, ELEMENT_BYTES["double"], num_ranks=8) == (0, 0)
