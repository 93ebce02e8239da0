"""Experiments: folders with a comparison, found, loaded and run; finished ones are kept."""

import hashlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import rostam_py
from rostam_py import __version__
from rostam_py.digests import code_digest
from rostam_py.documents import write_whole
from rostam_py.errors import ConfigError, RostamError, UnknownNameError
from rostam_py.reproduction.reasons import Entry, judged, reasons_of

SCRIPT = "compare.py"
_OWN = Path(rostam_py.__file__).parents[1] / "experiments"  # of a checkout; an installed package has none


@dataclass(frozen=True, slots=True)
class Experiment:
    """A folder of an experiment. title: its README's heading."""

    name: str
    folder: Path
    title: str

    @classmethod
    def at(cls, folder: Path) -> "Experiment":
        """Return the experiment in a folder."""
        readme = folder / "README.md"
        text = readme.read_text(encoding="utf-8") if readme.exists() else ""
        heading = next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), folder.name)
        return cls(folder.name, folder, heading)

    def load(self) -> ModuleType:
        """Return its comparison, imported anew.

        Raises: ConfigError for one without ``figures``.
        """
        path = self.folder / SCRIPT
        before = set(sys.modules)
        spec = importlib.util.spec_from_file_location(f"rostam_experiment_{self.name}", path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{path} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        search_path = list(sys.path)
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path[:] = search_path
            for name in set(sys.modules) - before:  # the next folder may have files of the same names
                if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(self.folder)):
                    del sys.modules[name]
        if not hasattr(module, "figures"):
            raise ConfigError(
                f"{path} has no figures(); it must return published values and rostam's, a list of Figure"
            )
        return module

    def digest(self) -> str:
        """Return a digest of what its figures depend on: its files, those next to the folders, and rostam's code."""
        found = hashlib.sha256(f"{__version__} {_code()}".encode())
        for path in sorted([*self.folder.glob("*.*"), *self.folder.parent.glob("*.py")]):
            found.update(f"{path.name}\0".encode() + path.read_bytes())
        return found.hexdigest()[:16]


def _code() -> str:
    package = Path(rostam_py.__file__).parent
    packages = tuple(path.parent.name for path in sorted(package.glob("*/__init__.py")))
    return code_digest((*packages, "models"), ("*.py", "_core*.so"))


def experiments_in(folder: str | Path | None = None) -> dict[str, Experiment]:
    """Return the experiments of a folder by name.

    Args: folder: holds a folder for each; None takes that of rostam's checkout.
    Raises: ConfigError for a folder without any.
    """
    root = _OWN if folder is None else Path(folder)
    found = {path.parent.name: Experiment.at(path.parent) for path in sorted(root.glob(f"*/{SCRIPT}"))}
    if not found:
        raise ConfigError(
            f"folder is {str(root)!r}, which holds no experiments (NAME/{SCRIPT}); they are in experiments/ of a"
            " checkout of rostam's sources: give folder=PATH"
        )
    return found


def chosen(names: list[str], known: dict[str, Experiment]) -> list[Experiment]:
    """Return experiments by name.

    Raises: UnknownNameError with the known ones.
    """
    for name in names:
        if name not in known:
            raise UnknownNameError(f"unknown experiment {name!r}; known: {', '.join(known)}")
    return [known[name] for name in names]


def run_experiment(experiment: Experiment, points: Path | None = None) -> Entry:
    """Return an experiment's figures with their verdicts; whatever it raises is the entry's ``failed``.

    Args: points: file of computed points to fill in place of the shipped one, for an experiment that keeps some.
    """
    begin = _cpu_s()
    try:
        module = experiment.load()
        rows = judged(_figures(module, points), reasons_of(experiment.folder))
        failed = ""
    except (Exception, SystemExit) as error:  # one with a fault must not keep the others from running
        rows, failed = (), _failure(error, experiment.folder)
    return Entry(experiment.name, experiment.title, rows, failed, _cpu_s() - begin)


def _failure(error: BaseException, folder: Path) -> str:
    """Return an error's type and message, and of one that rostam does not raise on purpose the experiment's line."""
    said = f"{type(error).__name__}: {str(error) or 'no message'}"
    if isinstance(error, RostamError):
        return said
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
    return f"{said} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else said


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _figures(module: ModuleType, points: Path | None) -> Any:
    shipped = getattr(module, "POINTS", None)
    return module.figures() if shipped is None else module.figures(points or shipped)


def kept_entry(experiment: Experiment, out: Path, *, rerun: bool) -> tuple[Entry, bool]:
    """Return the entry of an experiment, and whether it was kept: in OUT/NAME.json, while nothing has changed.

    Args:
        out: folder of the ledger.
        rerun: compute points anew, into OUT/NAME.points.json as they come, in place of those that it ships.
    """
    digest = _digest(experiment, rerun)
    kept = _read(experiment, out)
    if kept is not None and kept["digest"] == digest and not kept["failed"]:
        return Entry.of(kept), True
    out.mkdir(parents=True, exist_ok=True)
    entry = run_experiment(experiment, out / f"{experiment.name}.points.json" if rerun else None)
    write_whole(_path(experiment, out), (json.dumps({"digest": digest, **entry.to_dict()}, indent=1) + "\n").encode())
    return entry, False


def entries_in(out: Path, experiments: Iterable[Experiment]) -> tuple[dict[str, Entry], list[str]]:
    """Return the entries that a folder keeps, by name, and the names of those which are of other files or code."""
    found, stale = {}, []
    for experiment in experiments:
        kept = _read(experiment, out)
        if kept is None:
            continue
        if kept["digest"] in [_digest(experiment, rerun) for rerun in (False, True)]:
            found[experiment.name] = Entry.of(kept)
        else:
            stale.append(experiment.name)
    return found, stale


def _digest(experiment: Experiment, rerun: bool) -> str:
    return f"{experiment.digest()}{'-rerun' if rerun else ''}"


def _path(experiment: Experiment, out: Path) -> Path:
    return out / f"{experiment.name}.json"


def _read(experiment: Experiment, out: Path) -> dict[str, Any] | None:
    """Return what a folder keeps of an experiment, None for a file that does not hold an entry: it runs again."""
    path = _path(experiment, out)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        Entry.of(kept)
        return kept if isinstance(kept["digest"], str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
