"""Versioned JSON documents: written whole or not at all, read with errors that name the file and the place.

Arrays of integers or floats are base64 of their little-endian bytes, which gzip makes small.

Example:
    write_document("plan.json.gz", {"format": "rostam-plan", "version": 1, ...})
    reader = read_document("plan.json.gz", "rostam-plan", (1,), "a plan")
    reader.item("stages").entry(0).integer("num_parameters", least=0)
"""

import base64
import binascii
import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError

_LARGEST = 2**63 - 1
_ARRAYS = {"int64": "<i8", "float64": "<f8"}


def write_document(path: str | Path, document: dict[str, Any]) -> None:
    """Write a document as JSON, gzip-compressed if the path ends in .gz; equal documents give equal files."""
    data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    partial = f"{path}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def array_record(values: np.ndarray) -> dict[str, Any]:
    """Return an array as JSON: its type, shape and bytes."""
    kind = "float64" if values.dtype.kind == "f" else "int64"
    data = np.ascontiguousarray(values, dtype=_ARRAYS[kind]).tobytes()
    return {"type": kind, "shape": list(values.shape), "base64": base64.b64encode(data).decode()}


def read_document(path: str | Path, form: str, versions: Sequence[int], what: str) -> "Reader":
    """Return a reader of a document.

    Args:
        form: the document's "format". versions: those that can be read. what: it is, for messages.
    Raises: ConfigError for a file that is missing, damaged, something else, or of another version.
    """
    try:
        data = Path(path).read_bytes()
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, RecursionError, zlib.error) as error:
        raise ConfigError(f"{path} is not {what} saved by rostam: {error}") from error
    if not isinstance(document, dict) or document.get("format") != form:
        raise ConfigError(f"{path} is not {what} saved by rostam")
    if document.get("version") not in versions or isinstance(document["version"], bool):
        known = " and ".join(map(str, versions))
        raise ConfigError(f"{path} has version {document.get('version')!r} of {form}; this rostam reads {known}")
    return Reader(document, str(path), "")


class Reader:
    """A place in a document; every method checks what it returns and names file and place if it is something else."""

    def __init__(self, value: Any, path: str, place: str) -> None:
        self.value, self.path, self.place = value, path, place

    def error(self, said: str) -> ConfigError:
        """Return an error at this place."""
        return ConfigError(f"{self.path}: {self.place or 'the document'} {said}")

    def item(self, key: str) -> "Reader":
        """Return the place of a mapping's key."""
        if not isinstance(self.value, dict) or key not in self.value:
            raise self.error(f"has no {key!r}")
        return Reader(self.value[key], self.path, f"{self.place}.{key}" if self.place else key)

    def names(self) -> list[str]:
        """Return the keys of a mapping."""
        if not isinstance(self.value, dict):
            raise self.error(f"is {_short(self.value)}; it must be a mapping")
        return list(self.value)

    def entries(self, length: int | None = None) -> Iterator["Reader"]:
        """Yield the places of a list's entries. Args: length: that the list must have."""
        if not isinstance(self.value, list):
            raise self.error(f"is {_short(self.value)}; it must be a list")
        if length is not None and len(self.value) != length:
            raise self.error(f"has {len(self.value)} entries; it must have {length}")
        return (Reader(value, self.path, f"{self.place}[{k}]") for k, value in enumerate(self.value))

    def text(self) -> str:
        """Return text."""
        if not isinstance(self.value, str):
            raise self.error(f"is {_short(self.value)}; it must be text")
        return self.value

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.error(f"is {_short(self.value)}; it must be true or false")
        return self.value

    def integer(self, least: int = 0, most: int = _LARGEST) -> int:
        """Return a whole number in a range."""
        is_whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        if not is_whole or not least <= self.value <= most:
            raise self.error(f"is {_short(self.value)}; it must be an integer from {least} to {most}")
        return int(self.value)

    def number(self) -> float:
        """Return a finite number >= 0."""
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not is_number or not (0 <= self.value < math.inf):
            raise self.error(f"is {_short(self.value)}; it must be a finite number >= 0")
        return float(self.value)

    def array(self, dimensions: int) -> np.ndarray:
        """Return an array of so many dimensions."""
        kind, data = self.item("type").text(), self.item("base64").text()
        shape = [one.integer() for one in self.item("shape").entries(dimensions)]
        if kind not in _ARRAYS:
            raise self.item("type").error(f"is {kind!r}; it must be one of: {', '.join(_ARRAYS)}")
        try:
            raw = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.item("base64").error(f"is damaged: {error}") from error
        if len(raw) != 8 * math.prod(shape):
            raise self.error(f"holds {len(raw)} bytes; its shape {shape} needs {8 * math.prod(shape)}")
        return np.frombuffer(raw, _ARRAYS[kind]).reshape(shape).astype(kind)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
