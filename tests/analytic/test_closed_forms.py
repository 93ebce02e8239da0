"""Closed forms of collectives, exact in picoseconds where S, p and B divide."""

import pytest

from rostam_py.collectives.closed_forms import closed_form_names, collective_time_ps
from rostam_py.errors import ConfigError, UnitError

# 1 GB/s moves one byte in 1,000 ps; latency 2 us = 2,000,000 ps. S = 8,192 bytes.
ALPHA = 2_000_000
S = 8192


def time_ps(name, p, num_bytes=S, grid=None):
    """Without a grid the ranks are one row, which matters to torus_2d alone."""
    collective, algorithm = name.split("/")
    return collective_time_ps(
        collective, algorithm, num_bytes=num_bytes, num_ranks=p, latency="2 us", bandwidth="1 GB/s", grid=grid or (1, p)
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
    assert time_ps("halo/neighbours", p) == ALPHA + (S if p > 2 else S // 2) * 1000  # two halves; of two ranks one
    assert time_ps("halo_up/neighbours", p) == time_ps("halo_down/neighbours", p) == ALPHA + S * 1000
    assert time_ps("shift/ring", p) == ALPHA + S * 1000


def test_other_counts_round_chunks_and_rounds_up():
    # p = 3: chunks of ceil(8192 / 3) = 2,731 bytes, 2 rounds; halving-doubling on 2 ranks plus fold in and out.
    assert time_ps("all_reduce/ring", 3) == 4 * (ALPHA + 2_731_000)
    assert time_ps("all_reduce/binomial_tree", 3) == 4 * (ALPHA + 8_192_000)
    assert time_ps("all_reduce/halving_doubling", 3) == 2 * (ALPHA + 4_096_000) + 2 * (ALPHA + 8_192_000)
    assert time_ps("all_reduce/bidirectional_ring", 7, 15) == 12 * (ALPHA + 2_000)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_torus_algorithms_on_square_grids_meet_the_papers_formulas(n):
    # p = n^2, one interface of B_if a direction. Dual rings: 2 (p-1) (alpha + S/4p). 2D torus, on quarters: ring
    # reduce-scatter and all-gather in the first dimension, 2 (n-1) steps of S/4n; ring all-reduce in the second,
    # 2 (n-1) steps of S/4p. One way the parts are halves.
    p = n * n
    part = S // (4 * p) * 1000
    assert time_ps("all_reduce/dual_hamiltonian_rings", p) == 2 * (p - 1) * (ALPHA + part)
    assert time_ps("reduce_scatter/dual_hamiltonian_rings", p) == (p - 1) * (ALPHA + part)
    assert time_ps("all_gather/dual_hamiltonian_rings", p) == (p - 1) * (ALPHA + part)
    both_ways = 4 * (n - 1) * ALPHA + 2 * (n - 1) * (n + 1) * part
    assert time_ps("all_reduce/torus_2d", p, grid=(n, n)) == both_ways
    one_way = 4 * (n - 1) * ALPHA + 2 * (n - 1) * (n + 1) * 2 * part
    assert time_ps("all_reduce/torus_2d_unidirectional", p, grid=(n, n)) == one_way


def test_torus_2d_on_an_oblong_grid_adds_up_where_the_copies_share_a_dimension():
    # 3 rows, 2 columns; S = 24 x 1,000 bytes: parts of 1,000 bytes, 1 us each. Six steps of (copy one, copy two):
    # row 3 | column 2, column 1 | column 2, column 1 | row 1, column 1 | row 1, column 1 | column 2, row 3 | column 2.
    us = 1_000_000
    expected = 6 * ALPHA + (3 + (1 + 2) + 1 + 1 + (1 + 2) + 3) * us
    assert time_ps("all_reduce/torus_2d", 6, 24_000, grid=(3, 2)) == expected
    assert time_ps("all_reduce/torus_2d", 6, 24_000, grid=(2, 3)) == expected
    # A single row of p is a bidirectional ring whose two copies share its links.
    assert time_ps("all_reduce/torus_2d", 4, 16_000) == 6 * (ALPHA + 2 * us)


@pytest.mark.parametrize("name", closed_form_names())
def test_a_single_rank_takes_no_time_and_no_bytes_take_latency_alone(name):
    assert time_ps(name, 1) == 0
    assert time_ps(name, 8, 0) % ALPHA == 0
    assert time_ps(name, 8, 0) > 0


def test_unknown_forms_and_bad_values_are_config_errors():
    with pytest.raises(ConfigError, match="no closed form for all_reduce/magic; there are: all_reduce/ring"):
        time_ps("all_reduce/magic", 4)
    with pytest.raises(ConfigError, match="over 4 ranks on a grid of 3 x 2; the grid must hold the ranks"):
        time_ps("all_reduce/torus_2d", 4, grid=(3, 2))
    with pytest.raises(ConfigError, match="num_ranks is 0"):
        time_ps("all_reduce/ring", 0)
    with pytest.raises(UnitError, match="num_bytes"):
        time_ps("all_reduce/ring", 4, -1)
