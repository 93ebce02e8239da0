"""Names of the ends of links: which are accelerators, and the number of each vertex.

Example:
    ends = number_ends(table, {"a", "gpu"}, None)
    ends.num_accelerators, ends.vertices["src"][0], ends.names[0]       # 8, 0, "gpu0"
"""

import re
from dataclasses import dataclass

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.link_tables import LinkTable

_MOST_DIGITS = 18  # of a vertex number; Python refuses to read thousands
_PLAIN = re.compile(r"[as]?\d+", re.ASCII)
_NAME = re.compile(r"[A-Za-z][\w./:-]*", re.ASCII)
_LAST_WORD = re.compile(r"([A-Za-z]+)[\d._:/-]*$")
_PARTS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """Vertices of a list of links: accelerators first, then switches.

    vertices: column -> the vertex at every row's end. names: of all vertices as the user gave them; none for
    a<k>, s<k> and numbers.
    """

    num_accelerators: int
    num_switches: int
    vertices: dict[str, list[int]]
    names: tuple[str, ...]


def kind_of(name: str) -> str:
    """Return the last word of a name, in lower case: "gpu" of "node3-gpu0", "" without one."""
    found = _LAST_WORD.search(name)
    return found[1].lower() if found else ""


def number_ends(table: LinkTable, accelerator_kinds: set[str], num_accelerators: int | None) -> LinkEnds:
    """Number the ends of all links.

    Model: where every end is a<k>, s<k> or a number, k is its number; else accelerators and switches are each numbered
        in the order of their names, in which numbers count as numbers.
    Raises: ConfigError naming the line, the column and the allowed values.
    """
    texts = {column: [str(one).strip() for one in table[column]] for column in ("src", "dst")}
    if all(_PLAIN.fullmatch(text) for column in texts.values() for text in column):
        return _plain_ends(table, texts, num_accelerators)
    for column, entries in texts.items():
        for row, text in enumerate(entries):
            if not _NAME.fullmatch(text):
                shown = text if len(text) <= 40 else f"{text[:40]}... ({len(text)} characters)"
                raise ConfigError(
                    f"{table.place(row, column)} is {shown!r}; expected a name such as gpu0, leaf0 or"
                    " rack1/leaf0 (a letter, then letters, digits and . _ : / -), or in all rows vertex numbers"
                )
    every = dict.fromkeys(text for column in texts.values() for text in column)
    accelerators = sorted((name for name in every if kind_of(name) in accelerator_kinds), key=_natural)
    switches = sorted((name for name in every if kind_of(name) not in accelerator_kinds), key=_natural)
    if not accelerators:
        kinds = ", ".join(sorted({kind_of(name) for name in switches}))
        raise ConfigError(
            f"fabric.links names no accelerator: names end in {kinds}, and those of accelerators in"
            f" {', '.join(sorted(accelerator_kinds))} (fabric.accelerator_names)"
        )
    if num_accelerators is not None and num_accelerators != len(accelerators):
        raise ConfigError(
            f"fabric.num_accelerators is {num_accelerators}; fabric.links names {len(accelerators)}: leave it out"
        )
    number = {name: k for k, name in enumerate([*accelerators, *switches])}
    vertices = {column: [number[text] for text in entries] for column, entries in texts.items()}
    return LinkEnds(len(accelerators), len(switches), vertices, tuple(number))


def _natural(name: str) -> tuple[list[object], str]:
    """Return a key by which gpu2 comes before gpu10; words at even places, numbers at odd ones."""
    parts = [part.lstrip("0") if k % 2 else part for k, part in enumerate(_PARTS.split(name))]
    # Of two numbers the longer is larger; so long ones need not become integers.
    return [(len(part), part) if k % 2 else part for k, part in enumerate(parts)], name


def _plain_ends(table: LinkTable, texts: dict[str, list[str]], num_accelerators: int | None) -> LinkEnds:
    ends = {
        column: [_plain_end(table, row, column, text, num_accelerators) for row, text in enumerate(entries)]
        for column, entries in texts.items()
    }
    every = ends["src"] + ends["dst"]
    if num_accelerators is None:
        num_accelerators = 1 + max((number for kind, number in every if kind == "a"), default=-1)
    for kind, number in every:
        if kind == "a" and number >= num_accelerators:
            raise ConfigError(f"fabric.links names a{number}; fabric.num_accelerators is {num_accelerators}")
    vertices = {
        column: [num_accelerators + number if kind == "s" else number for kind, number in entries]
        for column, entries in ends.items()
    }
    num_switches = max(0, 1 + max(vertices["src"] + vertices["dst"], default=0) - num_accelerators)
    return LinkEnds(num_accelerators, num_switches, vertices, ())


def _plain_end(table: LinkTable, row: int, column: str, text: str, num_accelerators: int | None) -> tuple[str, int]:
    kind, number = (text[0], text[1:]) if text[0] in "as" else ("", text)
    if len(number) > _MOST_DIGITS:
        raise ConfigError(
            f"{table.place(row, column)} is {text[:40]!r}... ({len(text)} characters); a number has at most"
            f" {_MOST_DIGITS} digits"
        )
    if kind == "" and num_accelerators is None:
        raise ConfigError(f"{table.place(row, column)} is {text!r}; vertex numbers need fabric.num_accelerators")
    return kind, check_integer(f"the number in {table.place(row, column)}", int(number), 0)
