"""Every kind of file that rostam reads, mutated: an error of rostam that says so, or a file that still fits; no other.

Files of rostam's own that are not a user's to change (shipped tables, link constants, experiments' points) have tests
of their own contents, a user's Python file is code, and Weights & Biases' belong to it.
"""

import itertools
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import rostam_py as rostam
from rostam_py.cli.compose import compose_config
from rostam_py.convergence import load_curve
from rostam_py.costs.kernel_table import KernelTable
from rostam_py.costs.table import CostTable
from rostam_py.documents import undamaged
from rostam_py.errors import ConfigError, RostamError
from rostam_py.fabrics.cabling import check_cabling, write_cabling
from rostam_py.report.report import _page_maker, _refusals, draw_report
from rostam_py.report.run.comparison import comparison, load_side
from rostam_py.spec.settings import complete_settings
from rostam_py.sweep.result import SweepResult
from rostam_py.sweep.store import Store
from rostam_py.tracing.cache import Sources, TraceCache, TraceKey
from rostam_py.validation.tables import read_table, user_table
from tests.doors.mutants import mutants
from tests.programs.sample import machine

FABRIC = {"name": "electrical_flat", "num_accelerators": 4}
_NUMBER = itertools.count()


@dataclass(frozen=True)
class Door:
    """A kind of file. form: of its text. file: below the folder of whole files. read: what rostam does with it."""

    form: str
    file: str
    read: Callable[[Path], Any]


def _custom(path):
    return rostam.fabric("custom", links=str(path))


def _page(path):
    folder = path.parent if path.parent.name != "details" else path.parents[1]
    with undamaged(str(folder), *_refusals()):  # as draw_report, which also writes the page
        _page_maker(folder)(folder)


def _compared(path):
    side = load_side(path.parent)
    return comparison(side, side)


def _stored(path):
    store = Store(path.parent)
    store.fold()
    return store.finished(), store.frame()


def _preset(group):
    def read(path):
        folder = path.parent / group
        folder.mkdir(exist_ok=True)
        name = f"mine_{next(_NUMBER)}"  # a composition of this process is kept by its overrides
        shutil.copy(path, folder / f"{name}.yaml")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ROSTAM_CONFIGS", str(path.parent))
            return compose_config("run", [f"{group}={name}"])

    return read


def _simulated(path):
    result = rostam.simulate(rostam.Program.load(path).on(machine()), max_iterations=3)
    assert result.iteration_time_s > 0
    return result


def _traced(path):
    return rostam.trace(str(path))


DOORS = {
    "saved graph": Door("json", "graph.json", rostam.OperatorGraph.load),
    "saved graph, compressed": Door("json", "graph.json.gz", _traced),
    "plan": Door("json", "plan.json", rostam.Plan.load),
    "task graph": Door("json", "tasks.json", rostam.TaskGraph.load),
    "program": Door("json", "program.json", _simulated),
    "program of everything": Door("json", "stages.json", _simulated),
    "cost table": Door("json", "costs.json", CostTable.load),
    "convergence curve": Door("csv", "curve.csv", lambda path: load_curve(path).iterations(9000)),
    "links of a custom fabric": Door("csv", "links.csv", _custom),
    "measurements to validate": Door("csv", "measured.csv", user_table),
    "validation table": Door(
        "yaml", "table.yaml", lambda path: read_table(path.read_text(errors="replace"), "V", path.name)
    ),
    "run folder: result": Door("json", "run/result.json", _compared),
    "run folder: configuration": Door("yaml", "run/config.yaml", _compared),
    "run folder: about": Door("json", "run/run.json", _compared),
    "run folder: detail": Door("json", "run/detail.json.gz", _page),
    "sweep folder: manifest": Door("json", "sweep/sweep.json", _page),
    "sweep folder: points": Door("", "sweep/points.parquet", _page),
    "sweep folder: a detail": Door("json", "sweep/details/*.json.gz", _page),
    "sweep folder: manifest, in Python": Door("json", "sweep/sweep.json", lambda p: SweepResult.load(p.parent)),
    "sweep folder: a stored part": Door("", "sweep/store/part-*.parquet", _stored),
    "preset of a strategy": Door("yaml", "strategy.yaml", _preset("strategy")),
    "preset of a fabric": Door("yaml", "fabric.yaml", _preset("fabric")),
    "experiment": Door("yaml", "experiment.yaml", _preset("experiment")),
}


def _knock(door, whole, tmp_path, count, seed):
    """Read mutants of a file; return how many were refused. Raises: AssertionError for another error than rostam's."""
    source = next(iter(sorted(whole.glob(door.file))))
    folder = tmp_path / "door"
    if source.parent == whole:
        folder.mkdir()
    else:
        top = whole / source.relative_to(whole).parts[0]
        shutil.copytree(top, folder)
    target = folder / (
        source.name if source.parent == whole else source.relative_to(whole / source.relative_to(whole).parts[0])
    )
    data, refused = source.read_bytes(), 0
    for number, mutant in enumerate(mutants(data, count, seed, door.form)):
        target.write_bytes(mutant)
        refused += _is_refused(door.read, target, number)
        for extra in folder.rglob("*.damaged"):
            extra.unlink()
    return refused


def _is_refused(read, path, number):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
    except RostamError as error:
        said = str(error)
    except BaseException as error:
        raise AssertionError(f"mutant {number} ({path}): {type(error).__name__}: {error}") from error
    else:
        return 0
    assert said, f"mutant {number}: an error without words"
    return 1


@pytest.mark.parametrize("kind", DOORS)
def test_a_mutated_file_is_refused_by_an_error_of_rostam_or_read(kind, whole, tmp_path):
    door = DOORS[kind]
    assert _knock(door, whole, tmp_path, 50, seed=1) >= (1 if door.form else 10)


def _drawn(path):
    folder = path.parent if path.parent.name != "details" else path.parents[1]
    draw_report(folder, out=folder / "drawn.html")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, door in DOORS.items() if door.read is _page])
def test_pages_of_mutated_folders_are_drawn_or_refused(kind, whole, tmp_path):
    _knock(replace(DOORS[kind], read=_drawn), whole, tmp_path, 100, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DOORS)
def test_500_mutants_of_a_file_are_refused_by_errors_of_rostam_or_read(kind, whole, tmp_path):
    assert _knock(DOORS[kind], whole, tmp_path, 500, seed=2) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["program", "program of everything"])
def test_2000_mutants_of_a_program_are_refused_or_take_some_time(kind, whole, tmp_path):
    assert _knock(DOORS[kind], whole, tmp_path, 2000, seed=5) >= 1500


def _knock_kernels(kernels, tmp_path, count, seed):
    path, refused = tmp_path / "mine.kernels.json", 0
    for number, mutant in enumerate(mutants(kernels, count, seed, "json")):
        path.write_bytes(mutant)
        refused += _is_refused(KernelTable.load, path, number)
    return refused


def test_mutated_kernel_series_are_refused_by_errors_of_rostam(kernels, tmp_path):
    assert _knock_kernels(kernels, tmp_path, 50, seed=1) > 0


@pytest.mark.slow
def test_500_mutants_of_kernel_series_are_refused_by_errors_of_rostam(kernels, tmp_path):
    assert _knock_kernels(kernels, tmp_path, 500, seed=2) > 0


def _knock_cables(tmp_path, count, seed):
    fabric, path, refused = rostam.fabric("slim_fly", q=5), tmp_path / "cables.csv", 0
    write_cabling(fabric, path)
    for number, mutant in enumerate(mutants(path.read_bytes(), count, seed, "csv")):
        path.write_bytes(mutant)
        refused += _is_refused(lambda path: check_cabling(fabric, path), path, number)
    return refused


def test_mutated_cable_files_are_refused_by_errors_of_rostam(tmp_path):
    assert _knock_cables(tmp_path, 50, seed=1) > 0


@pytest.mark.slow
def test_500_mutants_of_cable_files_are_refused_by_errors_of_rostam(tmp_path):
    assert _knock_cables(tmp_path, 500, seed=2) > 0


def _knock_traces(whole, tmp_path, count, seed):
    """A damaged entry of the trace cache costs a warning and the next trace."""
    cache, key = TraceCache(tmp_path), TraceKey("mlp", {})
    cache.store(key, rostam.OperatorGraph.load(whole / "graph.json"), Sources())
    path = tmp_path / key.file_name
    data = path.read_bytes()
    for number, mutant in enumerate(mutants(data, count, seed)):
        path.write_bytes(mutant)
        assert _is_refused(lambda path: cache.load(key), path, number) == 0
        assert len(list(cache.entries())) == 1


def test_mutated_entries_of_the_trace_cache_are_left(whole, tmp_path):
    _knock_traces(whole, tmp_path, 50, seed=1)


@pytest.mark.slow
def test_500_mutants_of_entries_of_the_trace_cache_are_left(whole, tmp_path):
    _knock_traces(whole, tmp_path, 500, seed=2)


def test_a_compressed_file_is_read_up_to_a_limit(tmp_path, monkeypatch):
    import gzip

    from rostam_py import documents

    monkeypatch.setattr(documents, "MAX_UNPACKED", 10_000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b"[" + b"0," * 100_000 + b"0]"))
    for read in (rostam.OperatorGraph.load, rostam.Plan.load, rostam.TaskGraph.load):
        with pytest.raises(ConfigError, match=r"unpacks to more than 10,000 bytes, the most that is read"):
            read(path)
    (tmp_path / "detail.json.gz").write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match=r"unpacks to more than 10,000 bytes"):
        _page(tmp_path / "detail.json.gz")


def test_a_models_own_name_that_is_no_path_is_refused():
    for name in ("\x00.py:Class", "x" * 5000 + ".py:Class", "a.json.gz\x00"):
        with pytest.raises(RostamError):
            complete_settings({"model": name, "fabric": FABRIC})
