"""Digests: what a stored result depends on besides its settings: files, rostam's own code, installed packages.

Example:
    code_digest(("graph", "tracing", "models"))     # changes with any byte of their sources
    installed_version("torch")                      # "2.13.0", without loading it
"""

import functools
import hashlib
import importlib
import importlib.metadata
from pathlib import Path

_PACKAGE = Path(__file__).parent
_DIGEST_LENGTH = 12
_KINDS = ("*.py", "*.json", "*.csv")


@functools.cache
def code_digest(packages: tuple[str, ...], files: tuple[str, ...] = ()) -> str:
    """Return a digest of rostam's packages, sources and shipped data (JSON, CSV), and of single files of it.

    Args:
        packages: names below ``rostam_py``, "models" too, which lies elsewhere in a checkout.
        files: patterns of paths inside ``rostam_py``.
    """
    digest = hashlib.sha256()
    for name in sorted(packages):
        folder = _folder(name)
        for path in sorted(path for kind in _KINDS for path in folder.rglob(kind)):
            digest.update(f"{name}/{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    for path in sorted(path for pattern in files for path in _PACKAGE.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:_DIGEST_LENGTH]


def _folder(name: str) -> Path:
    if (_PACKAGE / name).is_dir():
        return _PACKAGE / name
    return Path(next(iter(importlib.import_module(f"rostam_py.{name}").__path__)))


@functools.cache
def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution without importing it, "" for one that is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def file_digest(name: str | Path) -> str:
    """Return a digest of a file's contents, "" for one that is not there. Read once for each of its contents."""
    path = Path(name)
    try:
        stamp = path.stat()
    except OSError:
        return ""
    if not path.is_file():
        return ""
    return _content_digest(str(path.resolve()), stamp.st_mtime_ns, stamp.st_size)


@functools.lru_cache(maxsize=4096)
def _content_digest(name: str, mtime_ns: int, size: int) -> str:
    return hashlib.sha256(Path(name).read_bytes()).hexdigest()
