"""astra-sim's network YAML: a Ring, Switch or FullyConnected for each dimension, ranks numbered along the first one.

Model: bandwidth [GB/s of 10^9 bytes] and latency [ns] are of one link in one direction. A switch has a link to each of
    its accelerators, so that a message takes twice the latency. A ring goes both ways; one of two is one cable.
Source: comments of astra-sim's own network files; tests/fabrics/test_topologies.py counts links by hand.
"""

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError

_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_MOST = 2**16  # accelerators
_MOST_CABLES = 2**22


def _ring(line: list[str], switch: str) -> Iterator[tuple[str, str]]:
    closes = len(line) > 2
    yield from zip(line, line[1:] + line[:1] if closes else line[1:], strict=closes)


def _switch(line: list[str], switch: str) -> Iterator[tuple[str, str]]:
    yield from ((one, switch) for one in line)


def _full(line: list[str], switch: str) -> Iterator[tuple[str, str]]:
    yield from combinations(line, 2)


_BLOCKS = {"Ring": _ring, "Switch": _switch, "FullyConnected": _full}


def read_astra_sim(path: str, lines: list[str]) -> list[tuple[int, str, str, str, str]]:
    """Return the cables of a file as rows. Raises: ConfigError that names the key, its value and what is allowed."""
    import yaml

    try:
        document = yaml.safe_load("\n".join(lines))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"fabric.links is {path!r}; it is no YAML: {' '.join(str(error).split())}") from error
    place = {key: 1 + next((k for k, one in enumerate(lines) if one.startswith(key)), 0) for key in _KEYS}
    counts = _checked(document, f"fabric.links, {path!r}")
    rows, num_switches, step = [], 0, 1
    total = 1
    for count in counts:
        total *= count
    for k, count in enumerate(counts):
        bandwidth, latency = f"{document['bandwidth'][k]!r} GB/s", f"{document['latency'][k]!r} ns"
        for high, low in product(range(total // (step * count)), range(step)):
            line = [f"a{high * step * count + low + step * one}" for one in range(count)]
            for src, dst in _BLOCKS[document["topology"][k]](line, f"s{num_switches}"):
                rows.append((place["topology"], src, dst, bandwidth, latency))
            num_switches += document["topology"][k] == "Switch"
        step *= count
    return rows


def _checked(document: Any, where: str) -> list[int]:
    """Return accelerators of each dimension."""
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: it holds no mapping; keys are: {', '.join(_KEYS)}")
    wrong = sorted(map(str, set(document) ^ set(_KEYS)))
    if wrong:
        raise ConfigError(f"{where}: {wrong[0]} is missing or unknown; keys are: {', '.join(_KEYS)}")
    for key in _KEYS:
        value = document[key]
        if not isinstance(value, list) or not value or len(value) != len(document["topology"]):
            raise ConfigError(
                f"{where}: {key} is {str(value)[:60]}; it must be a list with an entry for each dimension"
            )
    counts: list[int] = document["npus_count"]
    total, cables = 1, 0
    for k, count in enumerate(counts):
        block = document["topology"][k]
        if not isinstance(block, str) or block not in _BLOCKS:
            raise ConfigError(f"{where}: topology[{k}] is {block!r}; it must be one of: {', '.join(_BLOCKS)}")
        if not is_integer(count) or not 1 <= count <= _MOST:
            raise ConfigError(f"{where}: npus_count[{k}] is {count!r}; it must be an integer from 1 to {_MOST}")
        total *= count
        cables += count if block == "FullyConnected" else 2
        for key, least in (("bandwidth", 1e-9), ("latency", 0.0)):
            value = document[key][k]
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e12:
                raise ConfigError(f"{where}: {key}[{k}] is {value!r}; it must be a number from {least:g} to 1e12")
        if total > _MOST or total * cables > _MOST_CABLES:
            raise ConfigError(f"{where}: npus_count is {counts}; at most {_MOST} accelerators are read")
    if total < 2:
        raise ConfigError(f"{where}: npus_count is {counts}; a network joins at least two")
    return counts
