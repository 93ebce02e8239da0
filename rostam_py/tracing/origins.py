"""Origins: the files and packages that a user's model came from, so that a kept trace is dropped when one changes.

Found: the modules imported, directly or not, by the file that names the model; the files of its modules' classes; and
what was opened while it was built, such as a configuration. Files of the standard library, of torch and of rostam are
not among them: versions and a digest of the code stand for those; of other installed packages the version does.
"""

import ast
import contextlib
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rostam_py.digests import file_digest, installed_version
from rostam_py.tracing.cache import Sources

_STANDARD = {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib")}
_SYSTEM = {"/proc", "/sys", "/dev"}
_INSTALLED = {"site-packages", "dist-packages"}
_KEYED = {"torch", "rostam_py"}  # the version of one and a digest of the other are part of every entry


class _Recorder:
    """What is opened for reading while ``paths`` is a set. Python cannot take an audit hook away again."""

    def __init__(self) -> None:
        self.paths: set[str] | None = None
        self.is_hooked = False

    def opened(self, arguments: tuple[Any, ...]) -> None:
        """Take note of an "open" event."""
        if self.paths is None or not isinstance(arguments[0], str):
            return
        if arguments[2] & os.O_ACCMODE == os.O_RDONLY:
            self.paths.add(arguments[0])


_RECORDER = _Recorder()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":  # all else, each id() of a copy for example, is to cost next to nothing
        _RECORDER.opened(arguments)


@contextlib.contextmanager
def opened_files() -> Iterator[set[str]]:
    """Collect the names of the files that are opened inside."""
    if not _RECORDER.is_hooked:
        sys.addaudithook(_hook)
        _RECORDER.is_hooked = True
    _RECORDER.paths = set()
    try:
        yield _RECORDER.paths
    finally:
        _RECORDER.paths = None


def sources_of(roots: Iterable[str], classes: Iterable[type], opened: Iterable[str]) -> Sources:
    """Return what a model came from.

    Args:
        roots: names of the loaded modules that define it.
        classes: of the module and its parts.
        opened: files that were opened while it was built.
    """
    files = {path for name in opened if (path := _data_file(name))}
    for kind in {base for one in classes for base in one.__mro__}:
        path = _source_of(kind.__module__)
        if path is not None and not _is_standard(path):
            files.add(path)
    packages: set[str] = set()
    seen: set[str] = set()
    left = list(roots)
    while left:
        name = left.pop()
        path = _source_of(name)
        if name in seen or path is None or _is_standard(path):
            continue
        seen.add(name)
        if _is_installed(path):
            packages.add(_package_of(name))
        else:
            files.add(path)
            left += _imported_names(Path(path), sys.modules[name].__package__ or "")
    return Sources({path: file_digest(path) for path in sorted(files)}, _versions(packages))


def _source_of(name: str) -> str | None:
    """Return the source file of a loaded module that is neither torch's nor rostam's."""
    file = getattr(sys.modules.get(name), "__file__", None)
    is_source = isinstance(file, str) and file.endswith(".py") and _package_of(name) not in _KEYED
    return str(Path(file).resolve()) if is_source and file else None


def own_source(name: str) -> str | None:
    """Return the source file of a loaded module that is the user's own: no installed package's either."""
    path = _source_of(name)
    return None if path is None or _is_standard(path) or _is_installed(path) else path


def _package_of(name: str) -> str:
    return name.partition(".")[0]


def _is_installed(path: str) -> bool:
    return not _INSTALLED.isdisjoint(Path(path).parts)


def _is_standard(path: str) -> bool:
    """Say whether a file is of the standard library, below which packages may be installed."""
    return _is_below(path, _STANDARD) and not _is_installed(path)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _data_file(name: str) -> str | None:
    """Return the whole path of an opened file that the model may depend on."""
    path = str(Path(name).resolve())
    is_code = path.endswith(".pyc") or _is_installed(path) or _is_below(path, _STANDARD | _SYSTEM)
    return path if not is_code and file_digest(path) else None


def _imported_names(path: Path, package: str) -> Iterator[str]:
    """Yield the modules that a source file's import statements may name, parents of dotted names too."""
    for statement in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(statement, ast.Import):
            named = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and (package or not statement.level):
            base = importlib.util.resolve_name("." * statement.level + (statement.module or ""), package)
            named = [base, *(f"{base}.{alias.name}" for alias in statement.names)]
        else:
            continue
        for name in named:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _versions(packages: set[str]) -> dict[str, str]:
    found = {name: installed_version(name) for name in packages}
    if not all(found.values()):  # some are imported by another name than they are installed by
        known = importlib.metadata.packages_distributions()
        found = {own: installed_version(own) for name in packages for own in (known.get(name) or [name])}
    return dict(sorted(found.items()))
