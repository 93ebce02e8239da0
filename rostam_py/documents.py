"""Versioned JSON documents: written whole or not at all, read with errors that name the file and the place.

A compressed file is read up to MAX_UNPACKED bytes of text.
Arrays of integers or floats are base64 of their little-endian bytes, which gzip makes small.

Example:
    write_document("plan.json.gz", {"format": "rostam-plan", "version": 1, ...})
    reader = read_document("plan.json.gz", "rostam-plan", (1,), "a plan")
    reader.item("stages").entry(0).item("num_parameters").integer()
"""

import base64
import binascii
import contextlib
import dataclasses
import functools
import gzip
import io
import itertools
import json
import math
import os
import secrets
import shutil
import traceback
import types
import typing
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError, RostamError
from rostam_py.garbage import without_collections

FOLDER_VARIABLE = "ROSTAM_CACHE_DIR"
MAX_UNPACKED = 2**30  # bytes of a compressed file's text: 1 GiB, some ten times the largest plan's
_LARGEST = 2**63 - 1
# What goes wrong where a document holds something else than is expected of it.
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# Types of errors whose words need no value behind them.
_SAID_WHOLE = ("missing", "json_invalid", "value_error")
_ARRAYS = {"int64": "<i8", "float64": "<f8"}
_PLAIN = frozenset({str, int, float, bool, types.NoneType})  # what JSON has besides lists and mappings


def write_document(path: str | Path, document: dict[str, Any], *, allow_infinity: bool = False) -> None:
    """Write a document as JSON, gzip-compressed if the path ends in .gz; equal documents give equal files.

    Args: allow_infinity: numbers may be infinite, which plain JSON has no word for; Python's and pydantic's readers do.
    """
    write_text(path, json.dumps(document, separators=(",", ":"), allow_nan=allow_infinity))


def write_text(path: str | Path, text: str) -> None:
    """Write text, gzip-compressed if the path ends in .gz; equal texts give equal files.

    Raises: ConfigError where it cannot be written.
    """
    data = text.encode()
    write_whole(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def write_whole(path: str | Path, data: bytes, key: str | None = None) -> None:
    """Write a file, whole or not at all; into what is there and no file, as /dev/stdout, at once.

    Args: key: the setting that gives the path, for errors.
    Raises: ConfigError where it cannot be written.
    """
    partial = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.partial"  # others may write the same file
    try:
        if Path(path).exists() and not Path(path).is_file():
            Path(path).write_bytes(data)
            return
        try:
            with open(partial, "wb") as file:
                file.write(data)
            os.replace(partial, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
    except OSError as error:
        named = f"{key} is {str(path)!r}, which" if key else str(path)
        raise ConfigError(f"{named} cannot be written: {error.strerror or error}") from error


def cache_folder(name: str) -> Path:
    """Return a folder of what may be made again: in $ROSTAM_CACHE_DIR, $XDG_CACHE_HOME/rostam or ~/.cache/rostam."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rostam" / name


def array_record(values: np.ndarray) -> dict[str, Any]:
    """Return an array as JSON: its type, shape and bytes."""
    kind = "float64" if values.dtype.kind == "f" else "int64"
    data = np.ascontiguousarray(values, dtype=_ARRAYS[kind]).tobytes()
    return {"type": kind, "shape": list(values.shape), "base64": base64.b64encode(data).decode()}


def read_document(path: str | Path, form: str, versions: Sequence[int], what: str) -> "Reader":
    """Return a reader of a document.

    Args: as those of ``read_data``.
    Raises: ConfigError for a file that is missing, damaged, something else, or of another version.
    """
    text = read_text(path, form, versions, what)
    try:
        return Reader(json.loads(text.data) if text.value is None else text.value, str(path), "")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not {what} saved by rostam: {error}") from error


def read_unpacked(path: str | Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzip-compressed.

    Raises: ConfigError for a file that cannot be read, or unpacks to more than MAX_UNPACKED; EOFError for a damaged
        compressed one.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            text = file.read(MAX_UNPACKED + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise EOFError(str(error)) from error
    if len(text) > MAX_UNPACKED:
        raise ConfigError(
            f"{path} unpacks to more than {MAX_UNPACKED:,} bytes, the most that is read of a compressed file; it has"
            f" {len(data):,}"
        )
    return text


@contextlib.contextmanager
def undamaged(where: str, *others: type[Exception]) -> Iterator[None]:
    """Tell what goes wrong where a file's content is used, without a schema for all of it, with the file.

    Args:
        where: names the file.
        others: exceptions of a library that reads it, as well.
    Raises: ConfigError with the error and the line of code that met it; errors of rostam pass.
    """
    misread: tuple[type[Exception], ...] = (*_MISREAD, *others)
    try:
        yield
    except RostamError:
        raise
    except misread as error:
        met = traceback.extract_tb(error.__traceback__)[-1]
        said = (str(error).strip() or "no reason given").splitlines()[0]
        raise ConfigError(
            f"{where} is damaged, or was written by another version: {type(error).__name__}: {said[:200]}"
            f" (at {Path(met.filename).name}, line {met.lineno})"
        ) from error


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield a folder whose files move into another one when all of them are written; none of them if that fails.

    Raises: ConfigError where they cannot be written, on a full disk for example.
    """
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    stage = folder / f".{os.getpid()}-{secrets.token_hex(4)}.partial"
    is_done = False
    try:
        stage.mkdir(parents=True)
        yield stage
        for path in sorted(stage.iterdir()):
            os.replace(path, folder / path.name)
        is_done = True
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        for one in () if is_done else made:
            with contextlib.suppress(OSError):
                one.rmdir()


@dataclass(frozen=True, slots=True)
class Text:
    """A document for a schema of its own (``parse_tables``).

    data: its bytes. value: what they say, None if they are no JSON. version: of its format.
    """

    data: bytes
    value: Any
    version: int


def read_text(path: str | Path, form: str, versions: Sequence[int], what: str) -> Text:
    """Return a document whose header is that of its format.

    Args:
        form: the document's "format".
        versions: those that can be read.
        what: it is, for messages.
    Raises: ConfigError for a file that is missing, damaged, something else, or of another version.
    """
    wrong = f"{path} is not {what} saved by rostam"
    try:
        data = read_unpacked(path)
    except EOFError as error:
        raise ConfigError(f"{wrong}: {error}") from error
    value = None
    with contextlib.suppress(ValueError, RecursionError), without_collections():
        value = json.loads(data.decode())
    header: _Header = parse_tables(_Header, value, data, wrong)
    if header.format != form:
        raise ConfigError(f"{wrong}: its format is {header.format!r}")
    if header.version not in versions:
        known = " and ".join(map(str, versions))
        raise ConfigError(f"{path} has version {header.version} of {form}; this rostam reads {known}")
    return Text(data, value, header.version)


@dataclass(slots=True)
class _Header:
    """What says whether the rest is worth reading."""

    format: str = ""
    version: int = 0


def parse_json(schema: Any, data: bytes, where: str) -> Any:
    """Return JSON text as a value of a type, for example a dataclass: nothing is converted, nothing missing.

    Args: schema: a type that pydantic knows, fields annotated. where: what the text is, for the error.
    Raises: ConfigError naming the first place that does not fit, its value, and what must stand there.
    """
    from pydantic import ValidationError  # 0.1 s, which only files are worth

    try:
        return _adapter(schema).validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = _place(first["loc"], data, is_missing=first["type"] == "missing")
        given = "" if first["type"] in _SAID_WHOLE else f" (it is {_short(first.get('input'))})"
        more = f" and {error.error_count() - 1} more" if error.error_count() > 1 else ""
        text = first["msg"].removeprefix("Value error, ")
        text = text[:1].lower() + text[1:]
        raise ConfigError(f"{where}{': ' + place if place else ''}: {text}{given}{more}") from error


def _place(parts: Sequence[int | str], data: bytes, *, is_missing: bool) -> str:
    """Return a place in a document in words, without the types that were tried there, which are no keys of it."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    found = ""
    for number, part in enumerate(parts):
        if isinstance(part, int):
            found += f"[{part}]"
            value = value[part] if isinstance(value, list) and part < len(value) else None
        elif (isinstance(value, dict) and part in value) or (is_missing and number == len(parts) - 1):
            found += f".{part}"
            value = value.get(part) if isinstance(value, dict) else None
    return found.lstrip(".")


def parse_tables(schema: Any, value: Any, data: bytes, where: str) -> Any:
    """Return JSON text as a dataclass, like ``parse_json`` and sooner; what its schema has as tuples stays lists.

    Model: values are held against the fields' annotations a column at a time. ``parse_json`` takes over where one does
        not fit, and names the error; it is asked too for annotations other than plain types, lists, tuples, mappings
        and dataclasses of them.
    Args:
        schema: a dataclass.
        value: what the text says.
        data: the text.
        where: what it is, for the error.
    Raises: ConfigError as ``parse_json``.
    """
    return _made(schema, value) if _fits_record(schema, value) else parse_json(schema, data, where)


@functools.cache
def _hints(schema: Any) -> dict[str, Any]:
    return typing.get_type_hints(schema)


def _fits_record(schema: Any, value: Any) -> bool:
    """Return whether a mapping has the fields of a dataclass, each of its type."""
    if not isinstance(value, dict):
        return False
    for entry in dataclasses.fields(schema):
        kind = _hints(schema)[entry.name]
        if entry.name not in value:
            if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
                return False
        elif dataclasses.is_dataclass(kind):
            if not _fits_record(kind, value[entry.name]):
                return False
        elif not _fits(kind, [value[entry.name]]):
            return False
    return True


def _fits(kind: Any, values: Collection[Any]) -> bool:
    """Return whether all of some values are of an annotated type; False for annotations that this does not know."""
    if kind is Any:
        return True
    found, inner = set(map(type, values)), typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        plain, others = _PLAIN.intersection(inner), [one for one in inner if one not in _PLAIN]
        if found <= plain:
            return True
        return len(others) == 1 and _fits(others[0], [value for value in values if type(value) not in plain])
    if kind in _PLAIN:
        return found <= {kind}
    origin = typing.get_origin(kind)
    if origin is dict:
        return found <= {dict} and _fits(inner[1], [one for value in values for one in value.values()])
    if not found <= {list}:
        return False
    if origin is list:
        return _fits(inner[0], list(itertools.chain.from_iterable(values)))
    has_length = origin is tuple and {len(inner)}.issuperset(map(len, values))
    return has_length and all(map(_fits, inner, zip(*values, strict=True)))


def _made(schema: Any, value: dict[str, Any]) -> Any:
    """Return a dataclass of a mapping that fits it."""
    fields = {}
    for name, kind in _hints(schema).items():
        if name in value:
            fields[name] = _made(kind, value[name]) if dataclasses.is_dataclass(kind) else value[name]
    return schema(**fields)


@functools.cache
def _adapter(schema: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(schema)


@contextlib.contextmanager
def refused(where: str) -> Iterator[None]:
    """Tell errors of what is made of a file with the file. Args: where: names it, and says what it is.

    Raises: ConfigError.
    """
    try:
        yield
    except RostamError as error:
        raise ConfigError(f"{where}: {error}") from error


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

    def entry(self, index: int) -> "Reader":
        """Return the place of a list's entry. REQUIRES: ``entries`` has found that there is one."""
        return Reader(self.value[index], self.path, f"{self.place}[{index}]")

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
