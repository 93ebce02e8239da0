"""The shipped tables are what the measurements give, to the byte."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration import library, published
from calibration.distil import distil, provenance, sources, table_path
from rostam_py.costs import ACCELERATORS
from rostam_py.costs.kernel_surface import Fit
from rostam_py.costs.kernel_table import TABLES, KernelTable

SHIPPED = sorted(path.name.removesuffix(".kernels.json") for path in TABLES.glob("*.kernels.json"))
MAX_BYTES = 300_000
FEW = 80  # rows that are fitted again in the fast test
PUBLISHED = published.published()


def shipped(accelerator):
    return KernelTable.load(table_path(accelerator))


def test_tables_are_of_known_accelerators_and_small():
    assert set(SHIPPED) <= set(ACCELERATORS)
    assert {
        "a100_80gb",
        "h100_80gb",
        "h200_141gb",
        "b200_180gb",
        "b300_288gb",
        "gb200_186gb",
        "gb300_288gb",
        "v100_32gb",
    } <= set(SHIPPED)
    assert max(table_path(name).stat().st_size for name in SHIPPED) <= MAX_BYTES


@pytest.mark.parametrize("accelerator", SHIPPED)
def test_reading_and_writing_gives_the_same_bytes(accelerator, tmp_path):
    assert shipped(accelerator).text() == table_path(accelerator).read_text()
    # As a file of somebody's every field is checked, of a shipped one none.
    elsewhere = tmp_path / "mine.kernels.json"
    elsewhere.write_bytes(table_path(accelerator).read_bytes())
    assert KernelTable.load(elsewhere).text() == shipped(accelerator).text()


@pytest.mark.parametrize("accelerator", SHIPPED)
def test_rows_and_hashes_are_those_of_the_published_tables(accelerator):
    table = shipped(accelerator)
    stated = {one["source"]: one for one in table.provenance["sources"]}
    assert list(stated) == [series.source for series in table.series]
    for measured in (one for one in PUBLISHED if one.accelerator == accelerator):
        series = next(one for one in table.series if one.source == measured.source)
        assert np.array_equal(np.stack(list(series.columns.values()), axis=1), measured.shapes)
        assert np.allclose(series.seconds, measured.seconds, rtol=1e-12, atol=0)
        assert series.device == measured.device
        assert stated[measured.source]["sha256"] == published.digest(measured.source.split()[0])
        assert stated[measured.source]["rows"] == len(measured.rows)


@pytest.mark.parametrize(
    "measured", [one for one in PUBLISHED if len(one.rows) < FEW], ids=lambda one: f"{one.accelerator} {one.source}"
)
def test_fits_are_found_again(measured):
    series = next(one for one in shipped(measured.accelerator).series if one.source == measured.source)
    assert measured.series().fit == series.fit


def test_a_row_by_hand():
    # gemm_a100_simumax.csv, first row: 4096 x 1536 x 5120, TN, 0.7876672065615554 of 312 TFLOP/s.
    series = next(one for one in shipped("a100_80gb").series if one.source.startswith("gemm_a100_simumax"))
    seconds = 2 * 4096 * 1536 * 5120 / (0.7876672065615554 * 312e12)
    assert [series.columns[key][0] for key in ("m", "n", "k")] == [4096, 1536, 5120]
    assert series.seconds[0] == pytest.approx(seconds, rel=2e-4)  # tables hold four digits
    # Without noise in the fit the surface goes through the point.
    exact = replace(series, fit=Fit(series.fit.space, series.fit.scales, 1e-9, series.fit.fixed_s))
    first = {key: column[:1] for key, column in series.columns.items()}
    ratio, outside = exact.ratios(first, series.device.multiprocessors)[0], exact.distances(first)[0]
    ideal = max(2 * 4096 * 1536 * 5120 / 312e12, 2 * (4096 * 1536 + 5120 * (4096 + 1536)) / 1935e9)
    assert outside == 0
    assert ratio * (ideal + series.fit.fixed_s) == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize(("columns", "us"), [(1024, 33.792), (2048, 56.320), (4096, 121.856), (8192, 258.048)])
def test_norms_less_the_hosts_time_are_those_that_were_timed_behind_others(columns, us):
    # PyTorch's layer_norm on one card, fp32: NeuSight's of 8,192 rows waits for the host, Liger's of 4,096 does not.
    (waited,) = (one for one in PUBLISHED if one.accelerator == "a100_80gb" and one.source.endswith("(NeuSight), ln"))
    (found,) = waited.rows[8192.0, float(columns)]
    assert found == pytest.approx((2 * us - 3) * 1e-6, rel=0.05)  # a launch once, not twice
    raw = next(
        float(one["latency_ms"]) * 1e-3 for one in published.read("memory_bound_fp32.csv")
        if (one["device"], one["op"], one["rows"], one["cols"]) == (waited.device.name, "ln", "8192", str(columns))
    )  # fmt: skip
    assert raw - found == pytest.approx(12e-6, abs=1e-6)  # 15 us at no bytes, less 3 of a launch


def test_fp8_products_alone_are_those_of_a_source_that_timed_them_alone():
    # OpenXLA's are of the kernel alone; of TensorRT-LLM's a 4096^3 product takes 81 us with its input's casts.
    table = shipped("b200_180gb")
    library_s, alone_s = (
        {
            tuple(int(series.columns[key][i]) for key in ("batch", "m", "n", "k")): float(series.seconds[i])
            for i in range(len(series.seconds))
        }
        for start in ("aiconfigurator", "gemm_b200.csv")
        for series in table.series
        if series.precision == "fp8" and series.source.startswith(start)
    )
    both = [shape for shape in library_s if shape in alone_s and min(shape[1:]) >= 1024]
    ratios = [library_s[shape] / alone_s[shape] for shape in both]
    assert len(both) >= 5
    assert np.mean(ratios) == pytest.approx(1, abs=0.12)
    assert 0.7 < min(ratios) <= max(ratios) < 1.3


def test_extra_names_the_version_that_is_read():
    project = tomllib.loads((Path(published.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["calibration"] == [library.REQUIREMENT]


@pytest.mark.slow
def test_tables_are_reproduced_bit_for_bit():
    data = library.data_folder()
    if data is None:
        pytest.skip(f"needs {library.REQUIREMENT}")
    found = sources(data)
    assert {one.accelerator for one, _ in found} == set(SHIPPED)
    for accelerator in SHIPPED:
        assert distil(accelerator, found).text() == table_path(accelerator).read_text()


def test_provenance_names_licences():
    licences = provenance([(one, "") for one in PUBLISHED if one.accelerator == "a100_80gb"])["licences"]
    assert list(licences) == ["SimuMax", "NeuSight", "liger"]


@pytest.mark.slow
def test_times_of_collectives_are_the_librarys(tmp_path):
    data = library.data_folder()
    if data is None:
        pytest.skip(f"needs {library.REQUIREMENT}")
    library.write_collectives(data, tmp_path / library.COLLECTIVES)
    assert (tmp_path / library.COLLECTIVES).read_text() == (published.MEASURED / library.COLLECTIVES).read_text()
