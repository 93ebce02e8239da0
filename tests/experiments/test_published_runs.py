"""Published training runs next to print; what large ones take is what their FLOPs and devices say."""

import pytest

from rostam_py.models import MODELS

pytestmark = pytest.mark.slow  # two minutes, up to 16,384 accelerators


@pytest.fixture(scope="module")
def module(load_experiment):
    return load_experiment("published_runs")


@pytest.fixture(scope="module")
def rows(module):
    return {row["name"]: row for row in module.compare()}


def test_llama_takes_the_time_of_its_model_flops(rows):
    """6 FLOPs a weight and token, 4 + 8 layers x tokens x width of attention."""
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


def test_megatrons_hardware_flops_are_narayanans_formula(rows):
    """96 B s l h^2 (1 + s/6h + V/16lh), equation 3 of the source, with its full recomputation."""
    for name, batch, layers, width, gpus in (("7_5b", 512, 36, 4096, 128), ("310b", 2160, 96, 16384, 1920)):
        row = rows[f"megatron_{name}_a100"]
        flops = 96 * batch * 2048 * layers * width**2 * (1 + 2048 / (6 * width) + 51200 / (16 * layers * width))
        assert row["rostam"] == pytest.approx(flops / gpus / row["iteration_s"] / 1e12, rel=0.02)


def test_differences_to_print_are_those_of_the_readme(rows, module):
    text = module.EXPECTED.with_name("README.md").read_text(encoding="utf-8")
    for name, row in rows.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| `{name}`"))
        cells = [cell.strip() for cell in line.split("|")]
        assert float(cells[4]) == pytest.approx(row["rostam"], rel=2e-3)
        assert float(cells[5].rstrip("%")) == pytest.approx(row["difference"], abs=0.3)
