"""All published rows: errors of every table stay within its bounds; minutes of CPU."""

import pytest

from rostam_py.validation.document import beyond_bounds, document_of
from rostam_py.validation.names import table_names
from rostam_py.validation.predict import validate
from rostam_py.validation.tables import select

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", table_names())
def test_errors_of_a_table_stay_within_its_bounds(name):
    (table,) = select([name])
    if any(not row.why_not for row in table.rows) and not table.bounds:
        pytest.skip("no bounds yet: rostam validate, then tests/validation/regenerate.py")
    found = list(validate([table], with_alternatives=False))
    assert all(one.hfu is not None and one.mfu_causal / 1.01 <= one.hfu <= 1 for _, one in found if one.families)
    (document,) = document_of(found)["tables"]
    assert beyond_bounds(document_of(found)) == []
    assert set(table.bounds) == set(document["summary"])
    for measures, one in document["summary"].items():
        # No bound is slack: what is reached is never below two thirds of it.
        assert table.bounds[measures]["mean"] <= max(1.5 * one["mean_absolute"], 2), measures
