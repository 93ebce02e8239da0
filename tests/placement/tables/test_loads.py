"""The greedy spread of tables over ranks, by hand."""

import pytest

from rostam_py.placement.tables.loads import spread_by_load
from rostam_py.placement.tables.table import Table


def test_tables_go_to_the_least_loaded_rank_and_large_ones_in_parts():
    # bytes 6 : 3 : 3, lookups and vectors alike: the large one alone, the others together
    tables = [Table(i, f"t{i}", rows, 4, lookups, 1.0) for i, (rows, lookups) in enumerate([(60, 6), (30, 3), (30, 3)])]
    load = spread_by_load(tables, 2, 4, 1e9)
    assert (load.held, load.lookups, load.vectors) == (0.5, 0.5, 8.0)
    # 100 rows of 16 bytes, 500 bytes a rank: four parts, each sends summands of its own
    load = spread_by_load([Table(0, "t", 100, 4, 2.0, 1.0)], 4, 4, 500)
    assert (load.held, load.lookups, load.vectors) == (0.25, 0.25, 4.0)


def test_balanced_tables_cut_what_is_looked_up_most():
    # Lookups 100 : 12 : 12 : 4 on 4 ranks; whole: 100 of 128 on one. First in 4 parts: 25, 25 + 12, 25 + 12, 25 + 4,
    # two vectors each; in 2 parts 50 on one. Cutting the next ones too gives some rank a third vector.
    rows = [(4000, 100), (1000, 12), (1000, 12), (1000, 4)]
    tables = [Table(i, f"t{i}", number, 4, lookups, 1.0) for i, (number, lookups) in enumerate(rows)]
    whole = spread_by_load(tables, 4, 4, 1e9)
    assert (whole.held, whole.lookups, whole.vectors) == (4000 / 7000, 100 / 128, 4.0)
    best = spread_by_load(tables, 4, 4, 1e9, is_balanced=True)
    assert best.held == pytest.approx(2000 / 7000)
    assert (best.lookups, best.vectors) == (37 / 128, 8.0)
    # 16 bytes a row, 32,000 bytes a rank: room for 2,000 rows of 7,000, which a spread by lookups alone has as well
    assert spread_by_load(tables, 4, 4, 32_000, is_balanced=True).held <= 2000 / 7000 + 1e-9
