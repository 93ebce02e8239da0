"""The trace cache: a kept graph equals the traced one and needs no torch; whatever it came from makes it stale."""

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from rostam_py import tracing
from rostam_py.cli.main import main
from rostam_py.errors import ConfigError, RostamWarning
from rostam_py.graph import OperatorGraph
from rostam_py.tracing import TraceCache, register_op, trace, tracer

MODEL = """
import json
from pathlib import Path
import torch
from torch import nn
from widths import WIDTH
import shapes.deep as deep

EXTRA = json.loads((Path(__file__).parent / "extra.json").read_text())

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, WIDTH), nn.GELU(), deep.last(WIDTH), nn.Linear(4, EXTRA))

def example_inputs(batch):
    return torch.zeros(batch, 8)
"""
DEEP = "from torch import nn\nfrom .sizes import OUT\ndef last(width):\n    return nn.Linear(width, OUT)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("ROSTAM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "traces"


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was really traced since."""
    models: list[object] = []
    original = tracer.trace_now

    def trace_now(model: object, **options: object) -> OperatorGraph:
        models.append(model)
        return original(model, **options)

    monkeypatch.setattr(tracer, "trace_now", trace_now)
    return models


@pytest.fixture
def own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A model in a file, of which parts stand in others."""
    files = {"net.py": MODEL, "widths.py": "WIDTH = 16\n", "extra.json": "3", "shapes/__init__.py": ""}
    files |= {"shapes/deep.py": DEEP, "shapes/sizes.py": "OUT = 4\n", "unrelated.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it knows a file by its second and size
    yield f"{tmp_path / 'net.py'}:Net"
    forget_modules()


def forget_modules() -> None:
    """Have the next import read the files again, as another process does."""
    for name in ("widths", "shapes", "shapes.deep", "shapes.sizes", "rostam_user_net"):
        sys.modules.pop(name, None)


def test_a_second_trace_is_read_and_equal(folder: Path, traced: list[object]) -> None:
    first = trace("gpt_125m", num_layers=2)
    second = trace("gpt_125m", num_layers=2)
    assert second == first
    assert len(traced) == 1
    assert trace("gpt_125m", num_layers=2, name="mine", optimizer="sgd").name == "mine"
    assert len(traced) == 1
    assert [path.suffix for path in folder.iterdir()] == [".trace"]


def test_other_arguments_are_other_entries(folder: Path, traced: list[object]) -> None:
    graphs = [trace("gpt_125m", num_layers=count) for count in (1, 2, 1, 2)]
    assert len(traced) == 2
    assert graphs[0] == graphs[2] != graphs[1] == graphs[3]
    trace("gpt_125m", num_layers=1, route="dispatch")
    assert len(traced) == 3


def test_it_is_left_alone_where_not_wanted(folder: Path, traced: list[object]) -> None:
    for _ in range(2):
        trace("gpt_125m", num_layers=1, cache=False)
    assert len(traced) == 2
    assert not folder.exists()


def test_another_version_or_changed_code_misses(
    folder: Path, traced: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace("gpt_125m", num_layers=1)
    for name, value in (("_code", lambda: "other"), ("__version__", "9.9"), ("installed_version", lambda name: "9.9")):
        with monkeypatch.context() as patch:
            patch.setattr(f"rostam_py.tracing.cache.{name}", value)
            before = len(traced)
            trace("gpt_125m", num_layers=1)
            assert len(traced) == before + 1, name
            trace("gpt_125m", num_layers=1)
            assert len(traced) == before + 1, name


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("net.py", MODEL.replace("nn.GELU", "nn.ReLU")),
        ("widths.py", "WIDTH = 32\n"),
        ("shapes/deep.py", DEEP.replace("width, OUT", "width, OUT, bias=False")),
        ("shapes/sizes.py", "OUT = int(4)\n"),
        ("extra.json", "5"),
    ],
)
def test_a_changed_source_misses(
    folder: Path, traced: list[object], own_model: str, tmp_path: Path, file: str, text: str
) -> None:
    first = trace(own_model)
    assert trace(own_model) == first
    (tmp_path / "unrelated.py").write_text("X = 1\n")
    assert trace(own_model) == first
    assert len(traced) == 1
    (tmp_path / file).write_text(text)
    forget_modules()
    changed = trace(own_model)
    assert len(traced) == 2
    assert (changed == first) == (file == "shapes/sizes.py")
    forget_modules()
    assert trace(own_model) == changed
    assert len(traced) == 2


def test_what_changes_while_it_is_traced_is_not_kept(
    folder: Path, own_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = tracer.trace_now

    def slow(model: object, **options: object) -> OperatorGraph:
        (tmp_path / "widths.py").write_text("WIDTH = 64\n")
        return original(model, **options)

    monkeypatch.setattr(tracer, "trace_now", slow)
    trace(own_model)
    assert not folder.exists()


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-9] + b"x" * 9]
)
def test_a_damaged_entry_is_traced_again_with_a_note(folder: Path, traced: list[object], damage: object) -> None:
    first = trace("gpt_125m", num_layers=1)
    entry = next(folder.iterdir())
    entry.write_bytes(damage(entry.read_bytes()))
    assert [one.state for one in TraceCache().entries()] == ["cannot be read"]
    with pytest.warns(RostamWarning, match=rf"the trace cache is damaged, gpt_125m .* is traced again: .*{entry.name}"):
        assert trace("gpt_125m", num_layers=1) == first
    assert len(traced) == 2
    assert trace("gpt_125m", num_layers=1) == first
    assert len(traced) == 2


def test_a_folder_that_cannot_be_written_costs_a_warning_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROSTAM_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(RostamWarning, match="the trace of gpt_125m .* is not kept"):
        assert trace("gpt_125m", num_layers=1).ops


def test_traces_after_a_registration_are_neither_kept_nor_read(
    folder: Path, traced: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rostam_py.tracing.custom._OPS", {})
    trace("gpt_125m", num_layers=1)
    register_op("aten::gelu", flops=7)
    trace("gpt_125m", num_layers=1)
    assert len(traced) == 2
    assert len(list(folder.iterdir())) == 1


def test_writers_and_readers_share_a_folder(folder: Path) -> None:
    """Four writers and four readers of one entry: no reader sees half of one, nothing is left behind."""
    graph = trace("gpt_125m", num_layers=1)
    cache, seen = TraceCache(), []
    key = tracing.cache.TraceKey("gpt_125m (rostam_py.models.gpt:build_gpt_125m)", next(cache.entries()).arguments)
    assert cache.load(key) == graph

    def work(is_writer: bool) -> None:
        for _ in range(6):
            if is_writer:
                cache.store(key, graph, tracing.cache.Sources())
            else:
                seen.append(cache.load(key) == graph)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=work, args=(k % 2 == 0,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == [True] * 24
    assert len(list(folder.iterdir())) == 1


def test_clear_takes_entries_and_what_a_killed_process_left(folder: Path) -> None:
    trace("gpt_125m", num_layers=1)
    entry = next(folder.iterdir())
    entry.with_name(f"{entry.name}.123-abcd.partial").write_bytes(b"half")
    (folder / "notes.txt").write_text("not ours")
    assert TraceCache().clear() == 1
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_graph_file_is_a_model(tmp_path: Path, folder: Path) -> None:
    graph = trace("gpt_125m", num_layers=1)
    path = str(tmp_path / "mine.json.gz")
    graph.save(path)
    assert trace(path) == graph
    with pytest.raises(ConfigError, match="is a traced graph; num_layers would change nothing"):
        trace(path, num_layers=2)


RUN = """
import json, sys
from rostam_py.cli.main import main
status = main(["run", *sys.argv[1:]])
heavy = {"torch", "pandas", "polars", "ray", "wandb", "scipy", "loky", "hydra", "omegaconf", "pydantic"}
print(json.dumps([status, sorted(heavy & set(sys.modules))]), file=sys.stderr)
"""


@pytest.mark.parametrize("is_uncached", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_second_run_needs_no_torch(
    folder: Path, tmp_path: Path, is_uncached: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [
        "model=gpt_125m",
        "fabric=electrical_flat",
        "fabric.num_accelerators=8",
        f"out={tmp_path / 'run'}",
        "--json",
    ]

    def run(*more: str) -> tuple[str, list[str]]:
        done = subprocess.run([sys.executable, "-c", RUN, *keys, *more], capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})  # fmt: skip
        status, loaded = json.loads(done.stderr.splitlines()[-1])
        assert status == 0
        return done.stdout, loaded

    assert main(["run", *keys]) == 0
    first = capsys.readouterr().out
    assert run() == (first, [])
    assert run("strategy.tp=2")[1] == []  # one setting changed
    if is_uncached:
        again, loaded = run("trace_cache=false")
        assert again == first
        assert "torch" in loaded
