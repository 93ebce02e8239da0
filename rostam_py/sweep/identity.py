"""Identity of a point: a hash of everything that its result depends on.

Equal keys mean equal results: resolved settings (a list of links among them), the code that computes, torch's version,
and the contents of the files that settings name (cost tables, a user's model).
"""

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path

from rostam_py import __version__
from rostam_py.spec.keys import GIVEN
from rostam_py.spec.settings import Settings

# Packages that decide numbers; the rest only asks for and shows them.
_COMPUTING = (
    "graph", "tracing", "costs", "fabrics", "convergence", "collectives", "plan", "placement", "simulation",
    "searching", "fleet", "spec", "models",
)  # fmt: skip
_DIGEST_LENGTH = 12


@functools.cache
def code_version() -> str:
    """Return rostam's version and a digest of the code that computes, "0.1.0+1f2e3d4c5b6a".

    A store filled by other code is never read as if it were this one's.
    """
    import rostam_py
    import rostam_py.models

    package = Path(rostam_py.__file__).parent
    own = [Path(__file__).with_name(f"{name}.py") for name in ("evaluate", "columns")]
    folders = {name: package / name for name in _COMPUTING} | {"models": Path(next(iter(rostam_py.models.__path__)))}
    digest = hashlib.sha256()
    for name, folder in sorted(folders.items()):
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.json")]):
            digest.update(f"{name}/{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    for path in [*own, *sorted(package.glob("_core*"))]:
        digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:_DIGEST_LENGTH]}"


def point_key(settings: Settings, graph_digests: Mapping[str, str] | None = None) -> str:
    """Return the key of complete settings, 64 hexadecimal digits.

    Args: graph_digests: {model: digest} of graphs that the caller brings.
    """
    files = [_file_digest(name) for name in _files_of(settings)]
    models = [settings["model"]] if "model" in settings else [job["model"] for job in settings["jobs"]]
    graphs = [(graph_digests or {}).get(model) for model in models]
    code = [code_version(), _torch_version()]
    document = {"settings": settings, "code": code, "files": files, "graphs": graphs}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@functools.cache
def _torch_version() -> str:
    """Return the version of torch, which traces, without loading it."""
    return importlib.metadata.version("torch")


def _files_of(settings: Settings) -> list[str]:
    models = [settings["model"]] if "model" in settings else [job["model"] for job in settings["jobs"]]
    named = [model.rpartition(":")[0] for model in models if ":" in model and not model.startswith(GIVEN)]
    table = settings["cost"].get("table")  # a list of links is among the settings themselves
    return [*named, *([table] if isinstance(table, str) else [])]


def _file_digest(name: str) -> str:
    path = Path(name)
    if not path.is_file():
        return ""  # whoever reads it says what is missing
    stamp = path.stat()
    return _content_digest(str(path.resolve()), stamp.st_mtime_ns, stamp.st_size)


@functools.lru_cache(maxsize=256)
def _content_digest(name: str, mtime_ns: int, size: int) -> str:
    return hashlib.sha256(Path(name).read_bytes()).hexdigest()
