"""``rostam search``: curves that do not fit, and a clean standard error."""

from dataclasses import replace

from rostam_py import tracing
from rostam_py.cli.main import main


def test_a_curve_of_other_samples_is_refused_in_one_line_before_the_trace(capsys, monkeypatch):
    monkeypatch.setattr("rostam_py.tracing.trace", lambda *_: 1 / 0)
    assert main(["search", "model=resnet50", "convergence=transformer_mlperf"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "resnet50 are images; curves that fit: resnet50_goyal" in line


def test_a_curve_of_another_model_gives_a_note(cached_traces, tmp_path, capsys, monkeypatch):
    graph = replace(tracing.trace("resnet50"), name="resnet101")  # whose own trace takes ten seconds
    monkeypatch.setitem(vars(tracing), "trace", lambda *_, **__: graph)
    arguments = ["search", "model=resnet101", "convergence=resnet50_mlperf", "search.batches=[4096]", f"out={tmp_path}"]
    assert main([*arguments, "search.num_simulated=0", "search.placers=[megatron]"]) == 0
    printed = capsys.readouterr()
    assert "note: the curve resnet50_mlperf is of resnet50; taken for resnet101" in printed.out
    assert printed.err == ""
