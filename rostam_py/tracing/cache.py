"""The trace cache: graphs of models named by text, kept on disk; a trace that is already there needs no torch.

An entry is a line of JSON that says what a graph was traced from, and the graph (graph/packed.py): the model and its
arguments, versions, a digest of rostam's own tracing code, and every source file and package that the model came from.
It is used only while all of them are as they were, and is written whole or not at all, so that processes may share the
folder.

Example:
    cache = TraceCache()                    # $ROSTAM_CACHE_DIR/traces, or that of the user's cache directory
    cache.load(key)                         # a graph, or None
    cache.store(key, graph, sources)
    [entry.model for entry in cache.entries()]
"""

import hashlib
import json
import platform
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rostam_py import __version__
from rostam_py.digests import code_digest, file_digest, installed_version
from rostam_py.documents import cache_folder, parse_tables, refused, write_whole
from rostam_py.errors import ConfigError, RostamWarning
from rostam_py.graph import OperatorGraph
from rostam_py.graph.packed import pack, unpack

# What decides a graph: the models, how they are traced, and what the result is made of.
_CODE = ("graph", "models", "tracing")
_DAMAGED = "cannot be read"
_SUFFIX = ".trace"


@dataclass(frozen=True)
class TraceKey:
    """What a graph is traced from, as far as its name and arguments say it.

    model: a registered name with its target, or a file's whole path and class. arguments: of ``trace``, those that
    change ops.
    """

    model: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """The entry's file name: a change of code or sources replaces the entry, another version has its own."""
        text = json.dumps([self.model, self.arguments, _versions()], sort_keys=True)
        stem = re.sub(r"\W+", "_", Path(self.model.partition(" ")[0]).name).strip("_")
        return f"{stem[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}{_SUFFIX}"


@dataclass(frozen=True)
class Sources:
    """What a model came from besides rostam. files: path -> digest. packages: installed distribution -> version."""

    files: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _TracedFrom:
    model: str
    arguments: dict[str, Any]
    versions: dict[str, str]
    code: str
    sources: Sources


@dataclass(frozen=True)
class _Document:
    """The line before the graph."""

    traced_from: _TracedFrom


@dataclass(frozen=True)
class CacheEntry:
    """An entry as ``rostam cache list`` shows it. state: "current", or why it is traced again."""

    path: Path
    model: str
    arguments: dict[str, Any]
    num_bytes: int
    state: str


class TraceCache:
    """The entries of a folder.

    Args: folder: None takes "traces" in the user's cache directory (``cache_folder``).
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = cache_folder("traces") if folder is None else Path(folder)

    def load(self, key: TraceKey) -> OperatorGraph | None:
        """Return the graph of a key, None if there is none or something that it came from has changed.

        A file that cannot be read is none, with a warning.
        """
        path = self.folder / key.file_name
        if not path.is_file():
            return None
        try:
            traced_from, data = _read(path)
            if [traced_from.model, traced_from.arguments] != [key.model, dict(key.arguments)] or _change(traced_from):
                return None
            with refused(f"{path} is a damaged trace"):
                return unpack(data)
        except ConfigError as error:
            warnings.warn(f"the trace cache is damaged, {key.model} is traced again: {error}", RostamWarning, 3)
            return None

    def store(self, key: TraceKey, graph: OperatorGraph, sources: Sources) -> None:
        """Keep a graph; a folder that cannot be written costs a warning and the next trace."""
        about = _TracedFrom(key.model, dict(key.arguments), _versions(), _code(), sources)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"traced_from": asdict(about)}).encode()
            write_whole(self.folder / key.file_name, line + b"\n" + pack(graph))
        except (ConfigError, OSError) as error:
            warnings.warn(f"the trace of {key.model} is not kept: {error}", RostamWarning, 3)

    def entries(self) -> Iterator[CacheEntry]:
        """Yield all entries, by model."""
        for path in self._paths():
            try:
                about, data = _read(path)
                unpack(data)
                yield CacheEntry(path, about.model, about.arguments, path.stat().st_size, _change(about) or "current")
            except (ConfigError, OSError):
                yield CacheEntry(path, path.name.rpartition("-")[0], {}, path.stat().st_size, _DAMAGED)

    def clear(self) -> int:
        """Delete all entries, and what killed processes left of some; return how many entries there were."""
        paths = self._paths()
        for path in [*paths, *self.folder.glob(f"*{_SUFFIX}.*.partial")]:
            path.unlink(missing_ok=True)
        return len(paths)

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob(f"*-*{_SUFFIX}"))


def _read(path: Path) -> tuple[_TracedFrom, bytes]:
    """Return what an entry says and the bytes of its graph. Raises: ConfigError."""
    wrong = f"{path} is a damaged trace"
    try:
        line, _, data = path.read_bytes().partition(b"\n")
        value = json.loads(line)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{wrong}: {error}") from error
    document: _Document = parse_tables(_Document, value, line, wrong)
    return document.traced_from, data


def _versions() -> dict[str, str]:
    return {"rostam": __version__, "torch": installed_version("torch"), "python": platform.python_version()}


def _code() -> str:
    return code_digest(_CODE)


def _change(about: _TracedFrom) -> str:
    """Return the first thing that changed since a graph was traced, "" if none did."""
    now = _versions()
    for name, version in about.versions.items():
        if now.get(name) != version:
            return f"{name} was {version}"
    if about.code != _code():
        return "rostam's code has changed"
    for path, digest in about.sources.files.items():
        if file_digest(path) != digest:
            return f"{path} has changed"
    for name, version in about.sources.packages.items():
        if installed_version(name) != version:
            return f"{name} was {version}"
    return ""
