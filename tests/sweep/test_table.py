"""Which points get pictures: one per fabric, at its best setting where it is stressed most."""

import polars as pl
import pytest

from rostam_py.sweep.columns import polars_schema
from rostam_py.sweep.table import chosen_points

# Two fabrics at two bandwidths: (key, fabric, bandwidth, tp, time, exposed). At 1 the network of either is stressed;
# tp 8 exposes more, but is not what one would run there.
ROWS = [
    ("tree slow", "tree", 1.0, 1, 2.0, 1.0), ("tree slow tp 8", "tree", 1.0, 8, 9.0, 8.9),
    ("tree fast", "tree", 9.0, 1, 1.1, 0.1), ("torus slow", "torus", 1.0, 1, 4.0, 3.0),
    ("torus fast", "torus", 9.0, 1, 1.3, 0.3),
]  # fmt: skip


def _table(rows, **more):
    columns = {name: [None] * len(rows) for name in polars_schema()}
    keys, fabrics, bandwidths, degrees, times, exposed = (list(one) for one in zip(*rows, strict=True))
    columns |= {"key": keys, "accelerator_bandwidth_bytes_per_s": bandwidths, "tp": degrees, "iteration_time_s": times,
                "exposed_s": exposed, "status": ["ok"] * len(rows), "model": ["m"] * len(rows),
                "global_batch": [8] * len(rows)}  # fmt: skip
    table = pl.DataFrame(columns | more, schema_overrides=polars_schema())
    return table.with_columns(pl.Series("fabric", fabrics)).with_row_index("index")


@pytest.mark.parametrize(
    ("count", "keys"),
    [
        (None, ["torus slow", "tree slow"]), (0, []), (1, ["torus slow"]), (2, ["torus slow", "tree slow"]),
        (3, ["torus slow", "tree slow", "torus fast"]), (9, ["torus slow", "tree slow", "torus fast", "tree fast"]),
    ],
)  # fmt: skip
def test_pictures_show_each_fabric_where_communication_takes_the_largest_share(count, keys):
    assert chosen_points(_table(ROWS), count) == keys


def test_by_default_at_most_six_points_get_pictures():
    rows = [(f"{k}", f"fabric {k}", 1.0, 1, 1.0, 0.1 * k) for k in range(9)]
    assert chosen_points(_table(rows), None) == ["8", "7", "6", "5", "4", "3"]


def test_failed_points_get_none():
    assert chosen_points(_table(ROWS, status=["error"] * 5), None) == []


def test_of_mixes_the_most_disturbed_comes_first():
    rows = [("mild", "tree", 1.0, 1, None, None), ("wild", "tree", 1.0, 1, None, None)]
    assert chosen_points(_table(rows, slowdown_max=[1.1, 1.7], global_batch=[None, None]), None) == ["wild"]
