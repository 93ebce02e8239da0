"""Process groups of all ranks, from what one rank saw the program create, and the stages that ranks are of."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rostam_py.capturing.records import MESSAGES, Group, Record
from rostam_py.errors import ConfigError

_DEFAULT = "default_pg"
# Words of names that programs give to groups -> kind of group, the first that fits. State that is sharded over
# context-parallel ranks too ("dp_shard_cp") is data-parallel.
_KINDS = (
    ("pp", r"pp|pipe|pipeline|stage"), ("tp", r"tp|tensor|model|mp"), ("dp", r"shard|replicate"),
    ("cp", r"cp|context|sequence|sp"),
    ("ep", r"ep|e?ep|expert|etp"), ("dp", r"d?dp|dp.*|.*dp|data|batch|loss"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupSet:
    """Process groups that correspond to each other. label: of all. kind: as results list them. ranks: of each."""

    label: str
    kind: str
    ranks: tuple[tuple[int, ...], ...]

    def of(self, rank: int) -> tuple[int, ...]:
        """Return the group that a rank is in, () if none."""
        return next((one for one in self.ranks if rank in one), ())


class GroupSets:
    """The groups of a program, found once for each that communicates. world: its ranks."""

    def __init__(self, world: int) -> None:
        self._world = world
        self.sets: dict[str, GroupSet] = {}
        self._of: dict[tuple[tuple[int, ...], str], str] = {}  # a rank's group -> label

    def label_of(self, record: Record, number: int) -> str:
        """Return the label of a rank's group. Args: number: of the group, in its record."""
        group = record.groups[number]
        key = (group.ranks, group.label)
        twins = [k for k, one in enumerate(record.groups) if one == group]
        if len(twins) > 1:  # several communicators of the same ranks
            key = (group.ranks, f"{group.label} {twins.index(number) + 1}")
        if key not in self._of:
            self._add(record, group, key)
        return self._of[key]

    def _add(self, record: Record, group: Group, key: tuple[tuple[int, ...], str]) -> None:
        ranks = _corresponding(record.created, group, self._world)
        has_pairs = any(
            one["kind"] in MESSAGES and record.groups[one["group"]] == group for one in record.communicated(record.rows)
        )
        kind = "pp" if has_pairs else _kind(group.label)
        label = _free_label(_short(key[1], kind), self.sets)
        for one in ranks:
            self._of[one, key[1]] = label
        self.sets[label] = GroupSet(label, kind, ranks)


def _corresponding(created: Sequence[Group], group: Group, world: int) -> tuple[tuple[int, ...], ...]:
    """Return the groups that a program created together with one: those of its name and size in a row, apart.

    Where a rank sees its own alone, the others lie as it does, one after another.
    """
    if len(group.ranks) == world:
        return (group.ranks,)
    places = [k for k, one in enumerate(created) if one == group]
    if places:
        first = last = places[0]
        taken = set(group.ranks)

        def fits(place: int) -> bool:
            if not 0 <= place < len(created):
                return False
            one = created[place]
            return one.label == group.label and len(one.ranks) == len(group.ranks) and taken.isdisjoint(one.ranks)

        while fits(first - 1):
            first -= 1
            taken.update(created[first].ranks)
        while fits(last + 1):
            last += 1
            taken.update(created[last].ranks)
        if len(taken) == world:
            return tuple(one.ranks for one in created[first : last + 1])
    return _shifted(group.ranks, world)


def _shifted(ranks: tuple[int, ...], world: int) -> tuple[tuple[int, ...], ...]:
    """Return groups of all ranks that lie as one does. Raises: ConfigError if they do not cover the ranks."""
    size = len(ranks)
    stride = ranks[1] - ranks[0] if size > 1 else 1
    is_even = all(other - one == stride for one, other in zip(ranks, ranks[1:], strict=False))
    if not is_even or stride < 1 or world % (size * stride):
        raise ConfigError(
            f"the program creates a process group of ranks {', '.join(map(str, ranks[:8]))} alone, and which groups the"
            f" other of its {world} ranks are in is not seen; create the groups of all ranks on every rank"
        )
    return tuple(
        tuple(start + shift + k * stride for k in range(size))
        for start in range(0, world, size * stride)
        for shift in range(stride)
    )


def _kind(label: str) -> str:
    words = [word for word in re.split(r"[^a-z0-9]+", label.lower()) if word not in ("", "mesh", "default", "pg")]
    for kind, pattern in _KINDS:
        if any(re.fullmatch(pattern, word) for word in words):
            return kind
    return "dp"


def _short(label: str, kind: str) -> str:
    if label.startswith(_DEFAULT):
        return "world" + label.removeprefix(_DEFAULT)
    return label.removeprefix("mesh_") or kind


def _free_label(label: str, taken: Mapping[str, GroupSet]) -> str:
    if label not in taken:
        return label
    return next(name for k in range(2, len(taken) + 3) if (name := f"{label} {k}") not in taken)


def stage_of_ranks(records: Sequence[Record], sets: GroupSets, world: int) -> list[int]:
    """Return the pipeline stage of every rank: its place in the group in which stages exchange messages, else 0."""
    for record in records:
        for one in record.communicated(record.rows):
            if one["kind"] in MESSAGES:
                groups = sets.sets[sets.label_of(record, one["group"])]
                places = {rank: place for ranks in groups.ranks for place, rank in enumerate(ranks)}
                return [places[rank] for rank in range(world)]
    return [0] * world
