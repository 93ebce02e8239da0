"""Presets named after published rows give the row, and print the row's quantity by its name.

HammingMesh, section V-B: GPT-3 34.8 ms per micro-batch and stage on the nonblocking tree, ResNet-152 110.1 ms an
iteration on meshes and 109.7 ms on trees.
"""

import json

import pytest

from rostam_py.cli.main import main

pytestmark = pytest.mark.usefixtures("cached_traces")


def test_gpt3_row_is_compute_and_four_exposed_all_reduces(tmp_path, capsys):
    assert main(["run", "experiment=gpt3_175b_hammingmesh", f"out={tmp_path}"]) == 0
    text = capsys.readouterr().out
    result = json.loads((tmp_path / "result.json").read_text())
    spent = result["stage_microbatch_s"]
    # A ring of 4 sends 2 x 3/4 of 4 x 2,048 x 12,288 bytes at 1.6 Tb/s, four times.
    # Embedding and head have a few more, spread over 96 stages.
    one = 1.5 * (4 * 2048 * 12288) / 200e9
    assert spent["compute"] == pytest.approx(31.8e-3, abs=1e-5)
    assert 4 * one <= spent["tp"] <= (4 + 4 / 96) * one
    assert sum(spent.values()) == pytest.approx(34.8e-3, abs=0.1e-3)
    assert "per micro-batch and stage" in text
    assert "34.8" in text
    # 6 FLOPs a weight and token, 12 x 12,288^2 weights, and attention; four accelerators; TF32's peak is 156 TFLOP/s.
    flops = 2048 * 6 * (12 * 12288**2 + 2 * 2048 * 12288) / 4
    assert flops / 31.8e-3 > 156e12
    assert any("another precision" in note and "tf32" in note for note in result["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "published"), [((), 110.1e-3), (("fabric=tree_1024", "fabric.planes=4"), 109.7e-3)]
)
def test_resnet152_row_is_within_two_percent(machine, published, tmp_path, capsys):
    assert main(["run", "experiment=resnet152_hammingmesh", *machine, f"out={tmp_path}"]) == 0
    assert "iteration time" in capsys.readouterr().out
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["iteration_time_s"] == pytest.approx(published, rel=0.02)
    assert result["breakdown_s"]["compute"] == pytest.approx(108e-3, rel=1e-6)
    assert result["iteration_time_s"] > result["breakdown_s"]["compute"]
