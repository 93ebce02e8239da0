"""A report's packages are asked for before any row is predicted."""

import pytest

from rostam_py.cli import validate
from rostam_py.cli.main import main


def test_a_report_without_its_packages_is_refused_before_any_work(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("rostam_py.extras._is_installed", lambda package: package != "plotly")
    monkeypatch.setattr(validate, "_predicted", lambda *_: pytest.fail("rows were predicted"))
    assert main(["validate", "tables=V2", "report=true", f"out={tmp_path / 'out'}"]) == 2
    assert "report=true needs plotly" in capsys.readouterr().err
