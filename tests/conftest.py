"""Settings of every test: property tests are repeatable and never fail for being slow; which tests run by default.

durations.json holds how long tests took that are slow, or took longer than LONG_S: these are `long`, and `make test`
leaves both out. `.ci/run` draws an eighth of those of up to MOST_DRAWN_S. `make durations` records them anew.
"""

import contextlib
import copy
import functools
import gc
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("rostam", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("rostam")
_TRACED: dict[str, object] = {}
_TRACED_SPECS: dict[bytes, object] = {}
# Graphs, plans and modules are many objects and none is garbage: at the usual pace the collector walks through all that
# earlier tests keep, again and again. More rarely still than in the command line, which sets the pace of its own runs.
gc.set_threshold(100_000, 50, 100)
# One worker of pytest-xdist runs on each core: libraries that start a thread for each core would only contend. Set
# before the first import of torch, polars or numpy, which read these once.
for _threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(_threads, "1")
# Tests import calibration/, also where plain pytest runs them. Last: a second core's copy of the package goes first.
sys.path.append(str(Path(__file__).parents[1]))
DURATIONS = Path(__file__).with_name("durations.json")  # test -> seconds, on two cores that both run tests
LONG_S, MOST_DRAWN_S = 0.75, 900.0
_TOOK: dict[str, tuple[float, bool]] = {}  # test -> seconds, whether it is marked slow
EXPECTED_CORE = os.environ.get("ROSTAM_EXPECT_CORE")
# Parts that only the second core has.
collect_ignore = [] if EXPECTED_CORE == "extra" else ["extra"]


@pytest.fixture(scope="session", autouse=True)
def _own_trace_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give a run of the tests a trace cache of its own; the workers of one run share it."""
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROSTAM_CACHE_DIR", str(folder / "cache"))
        yield


@pytest.fixture(scope="module", autouse=True)
def _shared_traces(request: pytest.FixtureRequest) -> Iterator[None]:
    """Trace equal specifications once a worker, whatever file asks: graphs are immutable. Tests of tracing trace."""
    if "tracing" in request.path.parts:
        yield
        return
    from rostam_py.tracing import tracer

    original = tracer.trace_now

    def trace_now(model: object, **options: object) -> object:
        key = _key_of(model, options)
        if key is None:
            return original(model, **options)
        if key not in _TRACED_SPECS:
            _TRACED_SPECS[key] = original(model, **options)
        return _TRACED_SPECS[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracer, "trace_now", trace_now)
        yield


def _key_of(model: object, options: dict[str, object]) -> bytes | None:
    """Return what a specification of the package's models says, with the options of its trace; None for others."""
    import cloudpickle  # a specification holds functions and what they close over

    from rostam_py.models.spec import ModelSpec

    return cloudpickle.dumps((model, options)) if isinstance(model, ModelSpec) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make durations` asks for."""
    parser.addoption("--record-durations", action="store_true", help="keep in tests/durations.json what tests take")


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that are long by record, and those of which .ci/run draws some."""
    recorded = json.loads(DURATIONS.read_text(encoding="utf-8"))
    for item in items:
        took, is_slow = recorded.get(item.nodeid, 0.0), item.get_closest_marker("slow") is not None
        is_long = took > LONG_S and not is_slow and item.get_closest_marker("always") is None
        if is_long:
            item.add_marker("long")
        if (is_long or is_slow) and 0 < took <= MOST_DRAWN_S:
            item.add_marker("drawn")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Sum what setup, call and teardown of a test take."""
    seconds, is_slow = _TOOK.get(report.nodeid, (0.0, False))
    _TOOK[report.nodeid] = seconds + (not report.skipped) * report.duration, is_slow or "slow" in report.keywords


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record it, in the one process that all reports come to."""
    if not session.config.option.record_durations or "PYTEST_XDIST_WORKER" in os.environ:
        return
    recorded = json.loads(DURATIONS.read_text(encoding="utf-8"))
    recorded |= {test: round(seconds, 2) for test, (seconds, _) in _TOOK.items()}
    for test, (seconds, is_slow) in _TOOK.items():
        if seconds < (0.01 if is_slow else LONG_S):  # skipped, or a default test
            del recorded[test]
    DURATIONS.write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def pytest_configure() -> None:
    """Refuse a run on another core than the one it is for (make test-asan, make test-extra)."""
    if EXPECTED_CORE:
        from rostam_py import _core

        if f"{os.sep}{EXPECTED_CORE}{os.sep}" not in _core.__file__:
            raise RuntimeError(f"the tests import {_core.__file__}, which is not the core of build/{EXPECTED_CORE}")


@contextlib.contextmanager
def _told(*case: object) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {', '.join(map(str, case))}")
        raise


@pytest.fixture
def told() -> Callable[..., contextlib.AbstractContextManager[None]]:
    """Return a context that adds to an error which case it is of, for tests that run through many small ones.

    As tests of their own, cases of a millisecond take several times as long to be collected and reported.
    """
    return _told


@pytest.fixture
def mutations() -> Callable[[Any, int], Iterator[tuple[tuple[Any, ...], Any]]]:
    """Return a function that yields (place, document with that place changed or taken away), at random but alike."""
    values = [None, -1, 0, 3, 2**70, 1.5, 1e400, float("nan"), "", "x", [], {}, [1], {"a": 1}, True]

    def places_of(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        if place:
            yield place
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield from places_of(inner, (*place, key))

    def mutated(document: Any, count: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
        places, rng = list(places_of(document)), random.Random(7)
        for case in range(count):
            changed = copy.deepcopy(document)
            inner, place = changed, rng.choice(places)
            for key in place[:-1]:
                inner = inner[key]
            if case % 3 == 0:
                del inner[place[-1]]
            else:
                inner[place[-1]] = rng.choice(values)
            yield place, changed

    return mutated


@pytest.fixture
def cached_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace each registered model once a test run: commands under test share graphs, which are immutable."""
    from rostam_py import tracing

    original = tracing.trace

    @functools.wraps(original)  # rostam_py keeps what it is asked for first
    def trace(model: object, *arguments: object, **settings: object) -> object:
        if not isinstance(model, str) or arguments or settings or os.sep in model:
            return original(model, *arguments, **settings)
        if model not in _TRACED:
            _TRACED[model] = original(model)
        return _TRACED[model]

    monkeypatch.setitem(vars(tracing), "trace", trace)
