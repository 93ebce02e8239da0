"""Curves from CSV files: one's own, and the shipped reference points."""

import statistics

import pytest
from scipy.optimize import least_squares

from rostam_py.cli.main import main
from rostam_py.convergence import CURVES, get_curve, load_curve
from rostam_py.errors import ConfigError
from rostam_py.spec.settings import complete_settings
from rostam_py.sweep.identity import point_key

MINE = """# target: loss 2.5
# source: our cluster
# samples_per_epoch: 1000
# samples: images
# form: fit
# note: warm-up left out
batch,epochs
10,6
10,8
50,10
"""


def written(folder, text):
    path = folder / "mine.csv"
    path.write_text(text)
    return str(path)


def test_rows_of_a_batch_are_its_runs(tmp_path):
    curve = load_curve(written(tmp_path, MINE))
    assert [(p.batch, p.low, p.iterations, p.high) for p in curve.points] == [(10, 600, 700, 800), (50, 200, 200, 200)]
    assert (curve.target, curve.source, curve.sample_kind, curve.form) == ("loss 2.5", "our cluster", "images", "fit")
    assert curve.notes == ("warm-up left out",)
    # 700 = f + s / 10 and 200 = f + s / 50: s = 6,250 and f = 75
    assert (curve.fit.min_iterations, curve.fit.critical_batch) == (pytest.approx(75), pytest.approx(6_250 / 75))


@pytest.mark.parametrize(
    ("head", "columns", "row"),
    [
        ("", "batch,iterations", "10,500"),
        ("", "batch,samples", "10,5000"),
        ("# tokens_per_sample: 8\n", "batch,tokens", "10,40000"),
        ("# samples_per_epoch: 2500\n", "epochs,batch", "2,10"),
        ("# batch_unit: tokens\n# tokens_per_sample: 8\n", "batch,tokens", "80,40000"),
        ("# batch_unit: tokens\n# tokens_per_sample: 8\n", "batch,samples", "80,5000"),
        ("# batch_unit: tokens\n# tokens_per_sample: 8\n# samples_per_epoch: 2500\n", "batch,epochs", "80,2"),
    ],
)
def test_one_point_may_be_written_in_any_unit(tmp_path, head, columns, row):
    curve = load_curve(written(tmp_path, f"{head}{columns}\n{row}\n"))
    assert curve.iterations(10) == pytest.approx(500)
    assert curve.form == "single"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch,steps\n1,2\n", r"mine\.csv, line 1: columns are batch, steps; they must be batch, and one of"),
        ("batch,epochs,tokens\n1,2,3\n", "line 1: columns are batch, epochs, tokens"),
        ("batch,iterations\n8,100\n16,x\n", r"line 3, column iterations: 'x' is not a number > 0"),
        ("batch,iterations\n8,-1\n", "line 2, column iterations: '-1' is not a number > 0"),
        ("batch,iterations\n8.5,1\n", "line 2, column batch: '8.5' is not a whole number >= 1"),
        ("batch,iterations\n8\n", "line 2: 1 fields; the columns are batch, iterations"),
        ("batch,epochs\n8,1\n", "column epochs needs the line # samples_per_epoch"),
        ("batch,tokens\n8,1\n", "column tokens needs the line # tokens_per_sample"),
        ("# colour: red\nbatch,iterations\n8,1\n", "line 1: key 'colour' is none of: target"),
        ("# form: fit\n# form: fit\nbatch,iterations\n8,1\n", "line 2: key 'form' is given twice"),
        ("# form: cubic\nbatch,iterations\n8,1\n", "line 1: form is 'cubic'; allowed: single, log_log, fit"),
        ("# samples: frogs\nbatch,iterations\n8,1\n", "line 1: samples is 'frogs'; allowed: images"),
        ("# batch_unit: tokens\nbatch,iterations\n8,1\n", "say how many a sample has"),
        ("# tokens_per_sample: many\nbatch,iterations\n8,1\n", "line 1, column tokens_per_sample: 'many'"),
        ("# form: single\nbatch,iterations\n8,1\n9,1\n", "2 points and form 'single'"),
        ("# form: fit\nbatch,iterations\n8,100\n16,900\n", "do not follow S_min"),
        ("", "has no rows"),
    ],
)
def test_errors_name_line_column_and_value(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_curve(written(tmp_path, text))


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"convergence is 'no/such\.csv', but there is no such file"):
        get_curve("no/such.csv")


def test_a_changed_file_is_read_again_and_makes_a_new_point(tmp_path):
    path = written(tmp_path, "batch,iterations\n8,100\n")
    settings = {"model": "resnet50", "convergence": path}
    before = point_key(complete_settings(settings))
    assert get_curve(path).iterations(8) == 100
    (tmp_path / "mine.csv").write_text("batch,iterations\n8,9000\n")
    assert get_curve(path).iterations(8) == 9000
    assert point_key(complete_settings(settings)) != before


@pytest.mark.usefixtures("cached_traces")
def test_a_run_takes_a_file_and_its_report_draws_it(tmp_path, capsys):
    path = written(tmp_path, MINE)
    out = tmp_path / "run"
    run = ["run", "model=resnet50", "fabric=electrical_flat", "fabric.num_accelerators=2", "report=true", f"out={out}"]
    assert main([*run, "global_batch=20", f"convergence={path}"]) == 0
    assert "iterations to loss 2.5" in capsys.readouterr().out.replace("\n", " ")
    page = (out / "report.html").read_text()
    assert "Iterations to accuracy over the batch" in page
    assert "S = 75 (1 + 83 / B)" in page
    assert main([*run, "global_batch=64", f"convergence={path}"]) == 2
    assert "is measured at 10 to 50 samples" in capsys.readouterr().err


FITTED = ("resnet50_mlperf_rcp", "bert_large_mlperf_rcp")


@pytest.mark.parametrize("name", FITTED)
def test_the_fit_of_reference_points_is_that_of_another_solver(name):
    curve = get_curve(name)
    batches = [p.batch for p in curve.points]
    means = [statistics.fmean([p.iterations]) for p in curve.points]

    def relative(parameters):
        floor, critical = parameters
        return [floor * (1 + critical / b) / s - 1 for b, s in zip(batches, means, strict=True)]

    found = least_squares(relative, [min(means), batches[-1] / 2], x_scale=[1e3, 1e4], xtol=1e-14, ftol=1e-14)
    assert found.x == pytest.approx([curve.fit.min_iterations, curve.fit.critical_batch], rel=1e-5)
    assert relative(found.x) == pytest.approx([residual for _, residual in curve.residuals], abs=1e-5)
    assert max(abs(residual) for _, residual in curve.residuals) < {"resnet50_mlperf_rcp": 0.065}.get(name, 0.14)


def test_reference_points_are_those_of_the_source():
    curve = get_curve("resnet50_mlperf_rcp")
    first, last = curve.points[0], curve.points[-1]
    assert (first.batch, last.batch, len(curve.points)) == (1_632, 67_840, 10)
    assert first.low == pytest.approx(33 * 1_281_167 / 1_632)
    assert first.high == pytest.approx(37 * 1_281_167 / 1_632)
    bert = get_curve("bert_large_mlperf_rcp")
    assert bert.points[0].low == 2_232_832 / 256
    assert bert.points[-1].high == 5_770_240 / 16_384
    assert (curve.optimizer, bert.optimizer) == ("lars", "lamb")


@pytest.mark.parametrize("name", FITTED)
def test_a_fit_is_valid_inside_its_points_only(name):
    curve = get_curve(name)
    low, high = curve.batch_range
    for batch in (low - 1, high + 1):
        with pytest.raises(ConfigError, match="extrapolate=true"):
            curve.iterations(batch)
    assert curve.iterations(low) > curve.iterations(high) > 0


def test_the_list_says_what_is_fitted_and_measured(capsys):
    assert main(["list", "convergence", "--json"]) == 0
    import json

    rows = {row["convergence"]: row for row in json.loads(capsys.readouterr().out)["convergence"]}
    assert set(rows) == set(CURVES)
    assert rows["resnet50_mlperf_rcp"]["iterations"] == "fitted"
    assert "1,632 to 67,840 images" in rows["resnet50_mlperf_rcp"]["batches"]
    assert rows["resnet50_sip_ml"]["iterations"] == "measured"
    assert rows["resnet50_goyal"]["iterations"] == "interpolated"
    assert "rcps_bert.json" in rows["bert_large_mlperf_rcp"]["source"]
