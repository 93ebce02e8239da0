"""Published runs of Llama 3 405B and DeepSeek-V3: next to print, in the time and memory that one machine has."""

import pytest

from rostam_py.models import MODELS

pytestmark = pytest.mark.slow  # 16,384 and 2,048 accelerators


@pytest.fixture(scope="module")
def module(load_experiment):
    return load_experiment("large_runs")


@pytest.fixture(scope="module")
def rows(module):
    return {row["name"]: row for row in module.compare()}


def test_llama_takes_the_time_of_its_model_flops(rows):
    """6 FLOPs a weight and token, and 12 layers x tokens x width of attention: at most that much of 989 TFLOP/s."""
    for name, sequence, batch in (("llama3_405b_8k", 8192, 2048), ("llama3_405b_128k", 131072, 128)):
        row = rows[name]
        weights = 405_853_388_800 - 128256 * 16384  # the embedding is looked up
        flops = sequence * batch * (6 * weights + 12 * 126 * sequence * 16384)
        by_hand = flops / 16384 / row["iteration_s"] / 1e12
        assert row["rostam"] == pytest.approx(by_hand, rel=0.01)
        assert row["rostam"] < 989


def test_deepseeks_hours_are_those_of_its_iteration(rows):
    row = rows["deepseek_v3_2048"]
    assert MODELS["deepseek_v3"].tokens == 4096
    assert row["rostam"] == pytest.approx(2048 * row["iteration_s"] / 3.6e6 * 1e12 / (15360 * 4096), rel=1e-9)


def test_differences_to_print_are_those_of_the_readme(rows, module):
    text = module.EXPECTED.with_name("README.md").read_text(encoding="utf-8")
    for name, row in rows.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| `{name}`"))
        cells = [cell.strip() for cell in line.split("|")]
        assert float(cells[4]) == pytest.approx(row["rostam"], abs=0.5)
        assert float(cells[5].rstrip("%")) == pytest.approx(row["difference"], abs=0.5)
