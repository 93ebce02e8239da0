"""Records of ranks: what each sent to its device in two steps that follow each other, as its process wrote it down."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = tuple[str, int, Any]
MESSAGES = ("send", "recv")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel. op: as torch prints it. source: the line of the program at which it was first met; see KernelKey."""

    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    writes: tuple[tuple[int, ...], ...]
    arguments: tuple[Any, ...]
    is_causal: bool
    source: str

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it apart."""
        return self.op, self.shapes, self.dtypes, self.writes, self.arguments, self.is_causal

    @property
    def words(self) -> str:
        """It, for messages."""
        return f"{self.op} of {_listed(self.shapes)}" if self.shapes else f"{self.op} that makes {_listed(self.writes)}"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. ranks: in order. label: what the program calls it."""

    ranks: tuple[int, ...]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a rank did in a step. created: all groups that the program created, in order; others: see recorder.py."""

    rank: int
    step: int
    kernels: tuple[Kernel, ...]
    communications: tuple[dict[str, Any], ...]
    groups: tuple[Group, ...]
    created: tuple[Group, ...]
    before: tuple[Row, ...]
    rows: tuple[Row, ...]
    event_streams: dict[int, int]
    peak_bytes: int
    held_bytes: int
    unknown: dict[str, int]

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Return the record of a file."""
        return cls.of(json.loads(path.read_text()))

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Record":
        """Return a record as rank.py writes it."""
        return cls(
            rank=found["rank"], step=found["step"],
            kernels=tuple(
                Kernel(
                    op=one["op"], shapes=_tuples(one["shapes"]), dtypes=tuple(one["dtypes"]),
                    writes=_tuples(one["writes"]), is_causal=one["is_causal"], source=one["source"],
                    arguments=tuple(tuple(entry) if isinstance(entry, list) else entry for entry in one["arguments"]),
                )
                for one in found["kernels"]
            ),
            communications=tuple(found["communications"]),
            groups=_groups(found["groups"]), created=_groups(found["created"]),
            before=tuple(map(tuple, found["before"])), rows=tuple(map(tuple, found["rows"])),
            event_streams={int(key): stream for key, stream in found["event_streams"].items()},
            peak_bytes=found["peak_bytes"], held_bytes=found["held_bytes"], unknown=found["unknown"],
        )  # fmt: skip

    def communicated(self, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        """Yield the communications among rows, in order."""
        yield from (self.communications[one] for kind, _, one in rows if kind == "comm")

    def peer_offset(self, one: dict[str, Any]) -> int:
        """Return how far behind the own place in a group the other end of a message is."""
        ranks = self.groups[one["group"]].ranks
        return ranks.index(one["peer"]) - ranks.index(self.rank)


def _listed(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(str(list(one)) for one in shapes[:4]) + (", ..." if len(shapes) > 4 else "")


def error_of(path: Path) -> str:
    """Return what went wrong with a rank, "" if nothing did."""
    return str(json.loads(path.read_text())["error"])


def _tuples(lists: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, lists))


def _groups(found: list[Any]) -> tuple[Group, ...]:
    return tuple(Group(tuple(ranks), label) for ranks, label in found)
