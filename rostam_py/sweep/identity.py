"""Identity of a point: a hash of everything that its result depends on.

Equal keys mean equal results: resolved settings (a list of links among them), the code that computes, torch's version,
the graphs of models that are no part of rostam, and the contents of every file that a setting names (a cost table, a
saved graph, a convergence curve). A graph follows whatever its model was made of: modules that its file imports,
packages, files that were opened.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rostam_py import __version__
from rostam_py.digests import code_digest, file_digest, installed_version
from rostam_py.spec.settings import Settings

# Packages that decide numbers; the rest only asks for and shows them.
_COMPUTING = (
    "graph", "tracing", "costs", "fabrics", "convergence", "collectives", "plan", "software", "placement",
    "programs", "simulation", "searching", "spread", "fleet", "spec", "models",
)  # fmt: skip
_COMPUTING_FILES = ("*.py", "sweep/evaluate.py", "sweep/columns.py", "_core*")


@functools.cache
def code_version() -> str:
    """Return rostam's version and a digest of the code that computes, "0.1.0+1f2e3d4c5b6a".

    A store filled by other code is never read as if it were this one's.
    """
    return f"{__version__}+{code_digest(_COMPUTING, _COMPUTING_FILES)}"


def point_key(settings: Settings, graph_digest: Callable[[str], str | None] = lambda model: None) -> str:
    """Return the key of complete settings, 64 hexadecimal digits.

    Args: graph_digest: returns the digest of a model's graph, None for a model of rostam's, which the code stands for,
        and for one whose graph is not looked at: then the file that names it counts, but not what that imports.
    """
    graphs = {model: graph_digest(model) for model in models_of(settings)}
    files = {text: file_digest(text) for text in set(_texts(settings)) if _is_path(text)}
    files |= {model: _file_of(model) for model, digest in graphs.items() if digest is None and ".py:" in model}
    code = [code_version(), installed_version("torch")]
    document = {"settings": settings, "code": code, "files": files, "graphs": graphs}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def models_of(settings: Settings) -> list[str]:
    """Return the models of complete settings."""
    return [settings["model"]] if "model" in settings else [job["model"] for job in settings["jobs"]]


def _file_of(model: str) -> str:
    """Return the digest of the file of "file.py:Class"."""
    return file_digest(model.rpartition(":")[0])


def _texts(data: Any) -> Iterator[str]:
    """Yield the texts inside settings."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list | tuple) and not all(isinstance(one, int | float) for one in data):
        for value in data:
            yield from _texts(value)


def _is_path(text: str) -> bool:
    """Say whether a text names a file; registered names, which have neither a folder nor a suffix, do not."""
    return (os.sep in text or "." in text) and os.path.isfile(text)
