"""Closed forms of collectives, exact in picoseconds where S, p and B divide."""

import pytest

from rostam_py.errors import ConfigError, UnitError
from rostam_py.fabrics.closed_forms import closed_form_names, collective_time_ps

# 1 GB/s moves one byte in 1,000 ps; latency 2 us = 2,000,000 ps. S = 8,192 bytes.
ALPHA = 2_000_000
S = 8192


def time_ps(name, p, num_bytes=S):
    collective, algorithm = name.split("/")
    return collective_time_ps(
        collective, algorithm, num_bytes=num_bytes, num_ranks=p, latency="2 us", bandwidth="1 GB/s"
    )


@pytest.mark.parametrize("p", [2, 8, 64, 1024])
def test_powers_of_two_meet_the_formulas_exactly(p):
    rounds = p.bit_length() - 1
    chunk = S // p * 1000
    assert time_ps("all_reduce/ring", p) == 2 * (p - 1) * (ALPHA + chunk)
    assert time_ps("all_reduce/bidirectional_ring", p) == 2 * (p - 1) * (ALPHA + chunk // 2)
    assert time_ps("all_reduce/binomial_tree", p) == 2 * rounds * (ALPHA + S * 1000)
    assert time_ps("all_reduce/halving_doubling", p) == 2 * rounds * ALPHA + 2 * (p - 1) * chunk
    assert time_ps("reduce_scatter/ring", p) == time_ps("all_gather/ring", p) == (p - 1) * (ALPHA + chunk)
    assert time_ps("all_to_all/direct", p) == ALPHA + (p - 1) * chunk
    assert time_ps("broadcast/binomial_tree", p) == rounds * (ALPHA + S * 1000)


def test_other_counts_round_chunks_and_rounds_up():
    # p = 3: chunks of ceil(8192 / 3) = 2,731 bytes, 2 rounds; halving-doubling on 2 ranks plus fold in and out.
    assert time_ps("all_reduce/ring", 3) == 4 * (ALPHA + 2_731_000)
    assert time_ps("all_reduce/binomial_tree", 3) == 4 * (ALPHA + 8_192_000)
    assert time_ps("all_reduce/halving_doubling", 3) == 2 * (ALPHA + 4_096_000) + 2 * (ALPHA + 8_192_000)
    assert time_ps("all_reduce/bidirectional_ring", 7, 15) == 12 * (ALPHA + 2_000)


@pytest.mark.parametrize("name", closed_form_names())
def test_a_single_rank_takes_no_time_and_no_bytes_take_latency_alone(name):
    assert time_ps(name, 1) == 0
    assert time_ps(name, 8, 0) % ALPHA == 0
    assert time_ps(name, 8, 0) > 0


def test_unknown_forms_and_bad_values_are_config_errors():
    with pytest.raises(ConfigError, match="no closed form for all_reduce/magic; there are: all_reduce/ring"):
        time_ps("all_reduce/magic", 4)
    with pytest.raises(ConfigError, match="num_ranks is 0"):
        time_ps("all_reduce/ring", 0)
    with pytest.raises(UnitError, match="num_bytes"):
        time_ps("all_reduce/ring", 4, -1)
