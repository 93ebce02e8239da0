"""Predictions: two published rows, what they consist of, and that they are what `rostam run` says."""

import json

import pytest

from rostam_py.cli.main import main
from rostam_py.validation.document import document_of, summary
from rostam_py.validation.predict import Predictor, validate
from rostam_py.validation.quantities import gpt_flops
from rostam_py.validation.rows import Row, Table, Variant, overrides_of
from rostam_py.validation.tables import select

ROWS = ("22B full", "22B selective")
SMALL = {"model": "gpt_125m", "machine": {"name": "dgx_a100"}, "global_batch": 8}


@pytest.fixture(scope="module")
def found():
    return list(validate(select(["V2"], ROWS)))


def test_two_rows_are_within_the_bounds_of_their_table(found):
    for table, outcome in found:
        assert abs(outcome.error) <= table.bounds["time"]["worst"], outcome.row.name


def test_parts_of_a_prediction_sum_to_it_and_hfu_exceeds_mfu_by_the_recomputation(found):
    for _, one in found:
        parts = [*one.families.values(), *one.exposed.values(), one.bubble, one.host]
        assert sum(parts) == pytest.approx(one.iteration_s, rel=1e-9)
        assert one.compared["time"].predicted == one.iteration_s
    full, selective = (outcome for _, outcome in found)
    assert full.hfu / full.mfu > selective.hfu / selective.mfu > 1  # a third more of all products, of attention alone


def test_a_row_is_what_rostam_run_says_of_its_overrides(found, tmp_path):
    _, outcome = found[1]
    assert main(["run", *overrides_of(outcome.row.keys), f"out={tmp_path}"]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["iteration_time_s"] == outcome.iteration_s


def test_documents_list_errors_and_what_is_not_predicted(found):
    table, outcome = found[0]
    left = Table("t", rows=(Row("a", {}, why_not="no model"), Row("b", SMALL | {"strategy": {"tp": 7}}, {"time_s": 1})))
    document = document_of([(table, outcome), *validate([left])])
    first, second = document["tables"]
    assert first["summary"]["time"]["mean_signed"] == pytest.approx(outcome.error)
    assert first["rows"][0]["compared"]["time"]["printed"] == 1.42
    assert second["not_modelled"] == [{"name": "a", "reason": "no model"}]
    assert second["rows"] == []
    assert "tp" in second["failed"][0]["reason"]
    json.dumps(document)


def test_summaries_are_those_by_hand():
    assert summary([4.0, -6.0, 1.0]) == pytest.approx(
        {"num_rows": 3, "mean_absolute": 11 / 3, "mean_signed": -1 / 3, "worst": -6.0}
    )


def test_the_first_choice_that_fits_is_taken_and_infeasible_alternatives_are_left_out():
    too_large = Variant("all of it", {"model": "gpt3_175b"})
    table = Table(
        "t", rows=(Row("a", SMALL, {"time_s": 1.0}),), first_that_fits=(too_large, Variant("small", {})),
        alternatives=(Variant("two", {"strategy": {"tp": 2}}), Variant("seven", {"strategy": {"tp": 7}})),
    )  # fmt: skip
    outcome = Predictor().outcome(table, table.rows[0])
    assert outcome.chosen == "small"
    assert list(outcome.spread) == ["two"]
    seconds = Predictor().run(SMALL | {"strategy": {"tp": 2}}).iteration_time_s
    assert outcome.spread["two"] == pytest.approx(100 * (seconds - 1))


def test_a_choice_that_the_model_does_not_know_is_passed_over_but_not_the_first():
    too_large, foreign = (
        Variant("all of it", {"model": "gpt3_175b"}),
        Variant("experts", {"strategy": {"recompute": "selective", "recompute_modules": ["mla_up_proj"]}}),
    )
    row = Row("a", SMALL, {"time_s": 1.0})
    table = Table("t", rows=(row,), first_that_fits=(too_large, foreign, Variant("small", {})))
    assert Predictor().outcome(table, row).chosen == "small"
    refused = Predictor().outcome(Table("t", rows=(row,), first_that_fits=(foreign, Variant("small", {}))), row)
    assert "mla_up_proj" in refused.failed


def test_megatrons_hardware_flops_are_those_of_its_formula():
    """The plan's own count, of every traced product and of the replays, next to equation 3 of the source."""
    (table,) = select(["V1"], ["7.5B"])
    plan = Predictor().run(table.rows[0].keys).plan
    own = sum(stage.hardware_flops * len(plan.devices_of(stage.index)) for stage in plan.stages)
    assert own == pytest.approx(gpt_flops(table.rows[0].shape, 512, is_recomputed=True), rel=0.02)


def test_a_collectives_row_is_its_bus_bandwidth():
    """A ring of 8 sends 2 x 7/8 of its bytes: 4 GiB at 480 GB/s of bus bandwidth take 15.66 ms."""
    (table,) = select(["V4"], ["8 H100, auto"])
    outcome = Predictor().outcome(table, table.rows[0])
    one = outcome.compared["time"]
    assert one.measured == pytest.approx(2 * 7 / 8 * 4 * 2**30 / 480e9, rel=1e-6)
    assert one.predicted == outcome.iteration_s > 0


def test_equal_runs_are_simulated_once():
    predictor = Predictor()
    assert predictor.run(SMALL) is predictor.run(dict(SMALL))
    assert Predictor({"global_batch": 16}).run(SMALL).plan.global_batch == 16


def test_a_row_whose_figure_says_nothing_of_its_model_fails_alone():
    rows = (Row("images", SMALL | {"model": "resnet50"}, {"tokens_per_s_per_gpu": 1.0}), Row("b", SMALL, {"time_s": 1}))
    first, second = (outcome for _, outcome in validate([Table("t", rows=rows)]))
    assert "samples have no known tokens" in first.failed
    assert second.compared
