"""Figures for papers: which files, fonts inside, the same bytes every time."""

import pytest

from rostam_py.errors import ConfigError
from rostam_py.report.report import draw_report
from rostam_py.report.sinks.static import write_static
from rostam_py.report.sweep.figures import sweep_figures
from rostam_py.report.sweep.load import load_sweep


@pytest.fixture(scope="module")
def sweeps(run_sweep, mix_sweep, tmp_path_factory):
    return [run_sweep(tmp_path_factory.mktemp("run"), seeds=2), mix_sweep(tmp_path_factory.mktemp("mix"), seeds=4)]


def test_each_figure_becomes_one_file_a_format(sweeps, tmp_path):
    page, files = draw_report(sweeps[1], out=tmp_path / "page.html", formats=["pdf", "svg"])
    assert page.exists()
    names = [figure.name for figure in sweep_figures(load_sweep(sweeps[1]))]
    assert {path.name for path in files} == {f"{name}.{one}" for name in names for one in ("pdf", "svg")}
    assert {path.parent for path in files} == {tmp_path / "figures"}


def test_every_figure_of_runs_has_a_static_form(sweeps, tmp_path):
    figures = sweep_figures(load_sweep(sweeps[0]))
    of_one_model = [figure for figure in figures if "gpt" not in figure.name]
    assert len(write_static(of_one_model, tmp_path, ["svg"])) == len(of_one_model) == 6


def test_bytes_hang_on_the_numbers_only(sweeps, tmp_path):
    figures = sweep_figures(load_sweep(sweeps[0]))[:2]
    first = write_static(figures, tmp_path / "a", ["pdf", "svg"])
    second = write_static(figures, tmp_path / "b", ["pdf", "svg"])
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert len(first) == 4


def test_files_need_no_font_of_the_reader(sweeps, tmp_path):
    pdf, svg = write_static(sweep_figures(load_sweep(sweeps[0]))[:1], tmp_path, ["pdf", "svg"])
    assert b"/FontFile2" in pdf.read_bytes()  # a TrueType font inside
    assert b"CreationDate" not in pdf.read_bytes()
    assert "<text" not in svg.read_text()  # outlines only


def test_an_unknown_format_is_refused_before_anything_is_written(sweeps, tmp_path):
    with pytest.raises(ConfigError, match="formats has 'png'; allowed: pdf, svg"):
        draw_report(sweeps[0], out=tmp_path / "page.html", formats=["svg", "png"])
    assert not list(tmp_path.iterdir())
