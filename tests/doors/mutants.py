"""Mutants of files: what damage, editing by hand and other programs make of what rostam reads.

Example:
    for text in mutants(b'{"a": 1}', 50, seed=3): ...

Half of the mutants of JSON, YAML and CSV stay well-formed: a value becomes one of another type or size, or is gone. The
others are bytes flipped, cut off, doubled, in another encoding, or nested deeply. Of a compressed file its text is
changed and compressed again, or the compressed bytes are.
"""

import copy
import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import yaml

HUGE = "9" * 5000
_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, 2**70, 1.5, -0.5, 1e-320, 1e300, float("nan"), float("inf"),
    -float("inf"), "", "x", "1e400", "nan", HUGE, "a/../b", "\x00", [], {}, [1], [[]], ["x"], {"a": 1}, [None],
    {"": {}},
)  # fmt: skip
_CELLS = (
    "",
    "x",
    "-1",
    "0",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1e-320",
    HUGE,
    '"',
    "\x00",
    "a,b",
    "true",
    "[",
    "#",
)
Rng = random.Random


def mutants(data: bytes, count: int, seed: int = 0, form: str = "") -> Iterator[bytes]:
    """Yield mutants of a file, the same ones for a seed. Args: form: json, yaml, csv, or "" for bytes alone."""
    rng = random.Random(seed)
    is_packed = data[:2] == b"\x1f\x8b"
    text = gzip.decompress(data) if is_packed else data
    by_form: dict[str, Callable[[bytes, Rng], bytes]] = {"json": _json, "yaml": _yaml, "csv": _csv}
    for number in range(count):
        if form in by_form and number % 4 != 3:
            changed = by_form[form](text, rng)
        elif is_packed and number % 8 == 7:
            yield _damaged(data, rng)
            continue
        else:
            changed = _damaged(text, rng)
        yield gzip.compress(changed, 1, mtime=0) if is_packed else changed


def _damaged(data: bytes, rng: Rng) -> bytes:
    """Return bytes flipped, cut, doubled, in another encoding or nested."""
    place = rng.randrange(len(data)) if data else 0
    ways: list[Callable[[], bytes]] = [
        lambda: data[:place],
        lambda: data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :],
        lambda: data[:place] + bytes(rng.randrange(256) for _ in range(8)) + data[place + 8 :],
        lambda: data + data,
        lambda: data[place:],
        lambda: b"",
        lambda: data.decode(errors="replace").encode("utf-16"),
        lambda: data[:place] + b"[" * 5000 + data[place:],
        lambda: data[:place] + HUGE.encode() + data[place:],
        lambda: data.replace(b"0", b"NaN", 1 + rng.randrange(3)),
    ]
    return rng.choice(ways)()


def _json(data: bytes, rng: Rng) -> bytes:
    return json.dumps(_changed(json.loads(data), rng)).encode()


def _yaml(data: bytes, rng: Rng) -> bytes:
    head = b"".join(line for line in data.splitlines(keepends=True) if line.startswith(b"# @"))
    return head + yaml.safe_dump(_changed(yaml.safe_load(data), rng), sort_keys=False).encode()


def _csv(data: bytes, rng: Rng) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode())))
    row = rng.choice(rows)
    place = rng.randrange(len(row)) if row else 0
    if rng.random() < 0.1:
        row.append("more")
    elif row and rng.random() < 0.1:
        del row[place]
    elif row:
        row[place] = rng.choice(_CELLS)
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _changed(document: Any, rng: Rng) -> Any:
    """Return a document with one to three of its values changed, taken away, or moved to another place."""
    changed = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(changed))
        if not places:
            return rng.choice(_VALUES)
        inner, key = rng.choice(places)
        if rng.random() < 0.25:
            del inner[key]
        elif rng.random() < 0.2:
            other, at = rng.choice(places)
            inner[key] = copy.deepcopy(other[at])
        else:
            inner[key] = copy.deepcopy(rng.choice(_VALUES))
    return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of values at any depth; of long lists some of the entries."""
    items: Any = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value)) if len(value) <= 12 else [(k, value[k]) for k in (0, 1, len(value) - 1)]
    for key, inner in items:
        yield value, key
        yield from _places(inner)
