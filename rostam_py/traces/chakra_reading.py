"""Chakra read: the files PREFIX.RANK.et of all ranks as a program; groups are those of PREFIX.groups.json.

Model: kernels take their recorded microseconds, collectives and messages are simulated. A node waits for its data and
    control dependences; nodes of metadata are passed through. comm_size is what one rank gives: of an all-gather its
    own part. A communicator without a name is all ranks. Kernels of 0 us, nodes of a host (is_cpu_op) and of memory
    are refused, since they would run free.
Source: MLCommons Chakra's schema; comm_size of an all-gather as astra-sim's ring takes it.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rostam_py.checks import is_integer
from rostam_py.documents import read_unpacked, refused, undamaged
from rostam_py.errors import ConfigError
from rostam_py.plan.host import DEFAULT_HOST
from rostam_py.programs import Collective, Compute, Kernel, Program, RankGroups, Receive, Role, Send, Wait
from rostam_py.programs.ranks import MAX_RANKS, written_ranks
from rostam_py.programs.roles import ONE_PHASE
from rostam_py.programs.steps import Step
from rostam_py.traces.chakra_schema import (
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMM_TYPES,
    COMP,
    METADATA,
    attributes,
    messages,
    records,
)

_WORLD = "world"  # label of the groups of all ranks
_ALIKE = {"reduce_scatter_block": "reduce_scatter"}  # of MPI: equal parts, as all are here
_RANK_FILE = re.compile(r"(?P<prefix>.*)\.(?P<rank>\d{1,7})\.et")


class _Node(NamedTuple):
    """A node. where: file and node, for errors. deps: ids."""

    where: str
    id: int
    name: str
    type: int
    duration_us: int
    deps: tuple[int, ...]
    attr: Mapping[str, Any]


def read_chakra(path: str | Path) -> Program:
    """Return the program that a Chakra trace is.

    Args: path: file of one rank, PREFIX.RANK.et; those of the others lie next to it.
    Raises: ConfigError with the file and node, or byte, that cannot be read or simulated; MissingPackageError.
    """
    files = _rank_files(Path(path))
    reader = _Reader(Path(path), len(files))
    for rank, file in enumerate(files):
        reader.read_rank(rank, file)
    return reader.program()


def _rank_files(path: Path) -> list[Path]:
    """Return the files of all ranks, in their order."""
    match = _RANK_FILE.fullmatch(path.name)
    if match is None:
        raise ConfigError(f"{path} has no rank in its name; a Chakra trace is NAME.0.et, NAME.1.et, ...")
    found = {}
    if path.parent.is_dir():
        for one in path.parent.iterdir():
            other = _RANK_FILE.fullmatch(one.name)
            if other and other["prefix"] == match["prefix"]:
                found[int(other["rank"])] = one
    if not found:
        raise ConfigError(f"cannot read {path}: there is no such file")
    missing = next((k for k in range(len(found)) if k not in found), None)
    if missing is not None or len(found) > MAX_RANKS:
        raise ConfigError(
            f"{path} is of {len(found)} ranks"
            + (f", but rank {missing} has no file" if missing is not None else f"; at most {MAX_RANKS} are read")
        )
    return [found[k] for k in range(len(found))]


class _Reader:
    """Reads ranks one by one. kernels: name of each kernel. rows: label -> name of a communicator -> its ranks."""

    def __init__(self, path: Path, num_ranks: int) -> None:
        self.path, self.num_ranks = path, num_ranks
        self.name, self.host = path.name.rsplit(".", 2)[0], DEFAULT_HOST
        self.groups_path = path.with_name(f"{self.name}.groups.json")
        self.named_groups = _groups_file(self.groups_path, num_ranks)
        self.kernels: dict[Kernel, str] = {}
        self.kinds: dict[str, str] = {}
        self.rows: defaultdict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
        self.ranks_of: defaultdict[tuple[Step, ...], list[int]] = defaultdict(list)

    def read_rank(self, rank: int, file: Path) -> None:
        """Add what a file's nodes are for its rank."""
        nodes = self._nodes(file)
        steps: list[Step] = []
        ends: dict[int, tuple[int, ...]] = {}  # of a node, the steps that are over when it is
        counts: Counter[tuple[int, int, int]] = Counter()
        for node in nodes:
            after = tuple(sorted({step for dep in node.deps for step in ends[dep]}))
            if node.type == METADATA and "rostam.wait" not in node.attr:
                ends[node.id] = after
                continue
            with refused(node.where):
                steps.append(self._step(node, rank, after, counts))
            ends[node.id] = (len(steps) - 1,)
        if not steps:
            raise ConfigError(f"{file} has no node that takes time; a rank has at least one")
        self.ranks_of[tuple(steps)].append(rank)

    def program(self) -> Program:
        """Return all ranks as a program."""
        roles = {}
        for steps, ranks in self.ranks_of.items():
            written = written_ranks(np.array(ranks))
            roles[f"ranks {written[0]}"] = Role(phases={ONE_PHASE: steps}, ranks=tuple(written))
        groups = {
            label: RankGroups(kind=self.kinds[label], ranks=tuple(tuple(row) for row in rows.values()))
            for label, rows in self.rows.items()
        }
        with refused(f"{self.path}: the trace is refused"):
            return Program(
                name=self.name, num_ranks=self.num_ranks, roles=roles, groups=groups, host=self.host,
                kernels={name: kernel for kernel, name in self.kernels.items()},
            )  # fmt: skip

    def _nodes(self, file: Path) -> list[_Node]:
        """Return a file's nodes, each behind those that it waits for."""
        with undamaged(str(file)):
            data = read_unpacked(file)
        found: dict[int, _Node] = {}
        for k, (place, text) in enumerate(records(data, str(file))):
            where = f"{file}, byte {place}"
            record = _parsed(messages().node if k else messages().metadata, text, where)
            if not k:
                head = attributes(record, where)
                self.name = _text(head, "rostam.name", where, self.name)
                self.host = _text(head, "rostam.host", where, self.host)
                continue
            where = f"{file}, node {record.id} {record.name[:60]!r}"
            if record.id in found:
                raise ConfigError(f"{where}: two nodes have this id; ids of a rank differ")
            deps = tuple(dict.fromkeys((*record.data_deps, *record.ctrl_deps)))
            found[record.id] = _Node(
                where=where, id=record.id, name=record.name, type=record.type, duration_us=record.duration_micros,
                deps=deps, attr=attributes(record, where),
            )  # fmt: skip
        return _in_order(found)

    def _step(self, node: _Node, rank: int, after: tuple[int, ...], counts: Counter[tuple[int, int, int]]) -> Step:
        stream = _text(node.attr, "rostam.stream", node.where, "")
        said: dict[str, Any] = {"name": node.name, "after": after, "stream": stream}
        if node.type == METADATA:
            return Wait(**said, host=bool(node.attr.get("rostam.host_waits")))
        if node.attr.get("is_cpu_op"):
            raise ConfigError("is_cpu_op is true; ops of a host are not simulated: convert the trace without them")
        if node.type == COMP:
            optimizes = bool(node.attr.get("rostam.is_optimizer"))
            return Compute(**said, kernels=self._kernels(node), is_optimizer=optimizes)
        if node.type == COMM_COLL:
            return self._collective(node, rank, said)
        if node.type in (COMM_SEND, COMM_RECV):
            return self._end(node, rank, said, counts)
        raise ConfigError(f"type is {node.type}; nodes of types 1 (metadata) and 4 to 7 (compute, messages) are read")

    def _kernels(self, node: _Node) -> tuple[str, ...]:
        """Return the names of a compute node's kernels."""
        if "rostam.picoseconds" in node.attr:
            keys = ("rostam.picoseconds", "rostam.kernels", "rostam.ops", "rostam.launches")
            columns: list[Any] = [node.attr.get(key) for key in keys]
            if not all(isinstance(one, tuple) and len(one) == len(columns[0] or ()) for one in columns):
                raise ConfigError(f"{', '.join(keys)} are not lists of equal lengths")
            made = [
                Kernel(time=ps * 1e-12, name=name, op=op, launches=launches)
                for ps, name, op, launches in zip(*columns, strict=True)
            ]
            return tuple(self.kernels.setdefault(one, f"{one.name} #{len(self.kernels)}") for one in made)
        if not node.duration_us:
            raise ConfigError("duration_micros is 0; a kernel needs its time, or it would run free")
        kernel = Kernel(time=node.duration_us * 1e-6, name=node.name or "kernel")
        return (self.kernels.setdefault(kernel, f"{kernel.name} #{len(self.kernels)}"),)

    def _group(self, node: _Node, rank: int) -> tuple[str, tuple[int, ...]]:
        """Return the label of a node's groups, and the ranks of its own."""
        dims = node.attr.get("involved_dim")
        if isinstance(dims, tuple) and not all(dims):
            raise ConfigError(f"involved_dim is {list(dims)}; groups of some dimensions need a pg_name")
        name = node.attr.get("pg_name")
        if name is None or name == "":
            label, name, ranks = _WORLD, _WORLD, tuple(range(self.num_ranks))
        else:
            name = str(name)
            if name not in self.named_groups:
                known = ", ".join(self.named_groups) or "none"
                raise ConfigError(f"pg_name is {name!r}; groups of {self.groups_path} are: {known}")
            label, ranks = _text(node.attr, "rostam.group", node.where, f"group {name}"), self.named_groups[name]
        if rank not in ranks:
            raise ConfigError(f"group {name!r} is ranks {list(ranks)[:8]}, which rank {rank} is not among")
        self.rows[label][name] = ranks
        self.kinds.setdefault(label, _text(node.attr, "rostam.kind", node.where, "dp"))
        return label, ranks

    def _collective(self, node: _Node, rank: int, said: dict[str, Any]) -> Step:
        kind: Any = node.attr.get("comm_type")
        named = node.attr.get("rostam.collective")
        if named is None:
            if not is_integer(kind) or not 0 <= kind < len(COMM_TYPES):
                raise ConfigError(f"comm_type is {kind!r}; it must be an integer from 0 to {len(COMM_TYPES) - 1}")
            named = _ALIKE.get(COMM_TYPES[kind], COMM_TYPES[kind])
        label, ranks = self._group(node, rank)
        size = node.attr.get("rostam.bytes")
        if size is None:
            size = _size(node) * (len(ranks) if named == "all_gather" else 1)
        algorithm = _text(node.attr, "rostam.algorithm", node.where, "auto")
        return Collective(**said, collective=named, group=label, num_bytes=size, algorithm=algorithm)

    def _end(self, node: _Node, rank: int, said: dict[str, Any], counts: Counter[tuple[int, int, int]]) -> Step:
        make = Send if node.type == COMM_SEND else Receive
        if "rostam.channel" in node.attr:
            label, _ = self._group(node, rank)
            channel, peer = _text(node.attr, "rostam.channel", node.where, ""), node.attr.get("rostam.peer")
            return make(**said, group=label, num_bytes=_size(node), channel=channel, peer=peer)  # type: ignore[arg-type]
        own, other = ("comm_src", "comm_dst") if make is Send else ("comm_dst", "comm_src")
        if node.attr.get(own, rank) != rank:
            raise ConfigError(f"{own} is {node.attr[own]!r}; this is the file of rank {rank}")
        partner: Any = node.attr.get(other)
        tag: Any = node.attr.get("comm_tag", 0)
        if not is_integer(partner) or not 0 <= partner < self.num_ranks or partner == rank:
            raise ConfigError(f"{other} is {partner!r}; it must be another rank, from 0 to {self.num_ranks - 1}")
        if not is_integer(tag):
            raise ConfigError(f"comm_tag is {tag!r}; it must be an integer")
        pair = (rank, partner, tag) if make is Send else (partner, rank, tag)
        counts[pair] += 1
        self.rows[_WORLD][_WORLD] = tuple(range(self.num_ranks))
        self.kinds.setdefault(_WORLD, "dp")
        channel = f"{tag}#{counts[pair]}"
        return make(**said, group=_WORLD, num_bytes=_size(node), channel=channel, peer=partner - rank)


def _size(node: _Node) -> int:
    size: Any = node.attr.get("comm_size")
    if not is_integer(size) or size < 1:
        raise ConfigError(f"comm_size is {size!r}; a message needs its bytes, at least 1, or it would be free")
    return int(size)


def _text(attr: Mapping[str, Any], key: str, where: str, default: str) -> str:
    value = attr.get(key, default)
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {key} is {value!r}; it must be a text")
    return value


def _parsed(made: Any, text: bytes, where: str) -> Any:
    from google.protobuf.message import DecodeError

    record = made()
    try:
        record.ParseFromString(text)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {made.DESCRIPTOR.name} cannot be read: {error}") from error
    return record


def _in_order(nodes: dict[int, _Node]) -> list[_Node]:
    """Return nodes behind those that they wait for, lower ids first. Raises: ConfigError for what is missing."""
    followers: defaultdict[int, list[int]] = defaultdict(list)
    for node in nodes.values():
        for dep in node.deps:
            if dep not in nodes:
                raise ConfigError(f"{node.where}: waits for node {dep}, which the file does not have")
            followers[dep].append(node.id)
    left = {node.id: len(node.deps) for node in nodes.values()}
    ready = [one for one, count in left.items() if not count]
    heapify(ready)
    found = []
    while ready:
        found.append(nodes[heappop(ready)])
        for one in followers[found[-1].id]:
            left[one] -= 1
            if not left[one]:
                heappush(ready, one)
    if len(found) < len(nodes):
        stuck = min(one for one, count in left.items() if count)
        raise ConfigError(f"{nodes[stuck].where}: waits for itself, in a circle of dependences")
    return found


def _groups_file(path: Path, num_ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the groups next to a trace, {name: ranks}; none where there is no such file."""
    if not path.is_file():
        return {}
    with undamaged(str(path)):
        document = json.loads(read_unpacked(path))
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no mapping of names to lists of ranks")
    for name, ranks in document.items():
        if not isinstance(ranks, list) or not ranks or not all(is_integer(k) and 0 <= k < num_ranks for k in ranks):
            raise ConfigError(f"{path}: {name} is {str(ranks)[:80]}; it must be a list of ranks below {num_ranks}")
    return {name: tuple(ranks) for name, ranks in document.items()}
