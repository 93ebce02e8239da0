"""Chakra written: PREFIX.RANK.et of every rank, and the groups in PREFIX.groups.json.

Chakra's own fields are for other simulators: microseconds, rounded up and at least 1. What they cannot say stands in
attributes called rostam.*, from which read_chakra makes a program of equal times, to the picosecond.
"""

import json
from pathlib import Path
from typing import Any

from rostam_py.documents import write_text, write_whole
from rostam_py.plan.groups import GroupSet
from rostam_py.programs import Collective, Compute, PlacedProgram, Receive, Send, Wait
from rostam_py.traces.chakra_schema import (
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMM_TYPES,
    COMP,
    METADATA,
    framed,
    messages,
    set_attributes,
)
from rostam_py.traces.picoseconds import whole_ps
from rostam_py.traces.unrolled import Unrolled, unrolled

VERSION = "0.0.4"


def write_chakra(program: PlacedProgram, path: str | Path) -> list[Path]:
    """Write a program on a machine as a Chakra trace; return the files.

    Args: path: what the files' names begin with.
    Raises: ConfigError for batches and unequal collectives, and files that cannot be written; MissingPackageError.
    """
    roles = {name: unrolled(program, name) for name in program.program.roles}
    tags = {name: k for k, name in enumerate(sorted({_channel(one) for steps in roles.values() for one in steps}))}
    names = list(program.program.roles)
    files = []
    for rank, role in enumerate(program.stage_of.tolist()):
        writer = _Rank(program, rank, tags)
        data = b"".join((writer.head(), *(writer.node(k, one) for k, one in enumerate(roles[names[role]]))))
        files.append(Path(f"{path}.{rank}.et"))
        write_whole(files[-1], data)
    groups = {f"{one.label}.{k}": row.tolist() for one in program.groups for k, row in enumerate(one.members)}
    files.append(Path(f"{path}.groups.json"))
    write_text(files[-1], json.dumps(groups, indent=1) + "\n")
    return files


def _channel(one: Unrolled) -> str:
    return f"{one.step.group} {one.step.channel}" if isinstance(one.step, Send | Receive) else ""


class _Rank:
    """Writes the nodes of one rank. tags: number of every channel."""

    def __init__(self, program: PlacedProgram, rank: int, tags: dict[str, int]) -> None:
        self.program, self.rank, self.tags = program, rank, tags

    def head(self) -> bytes:
        record = messages().metadata(version=VERSION)
        set_attributes(record, {"rostam.name": self.program.name, "rostam.host": self.program.program.host})
        return framed(record)

    def node(self, index: int, one: Unrolled) -> bytes:
        """Return a step as a node; its id is its index and 1, since 0 stands for none."""
        step = one.step
        record = messages().node(id=index + 1, name=step.words, data_deps=[1 + k for k in one.after])
        said: dict[str, Any] = {"is_cpu_op": False, "rostam.stream": step.stream}
        if isinstance(step, Compute):
            record.type = COMP
            times = [whole_ps(kernel.duration_s) for kernel in one.kernels]
            record.duration_micros = max(1, -(-sum(times) // 10**6))
            said |= {
                "rostam.picoseconds": times, "rostam.kernels": [kernel.name for kernel in one.kernels],
                "rostam.ops": [kernel.op_type for kernel in one.kernels],
                "rostam.launches": [kernel.launches for kernel in one.kernels],
                "rostam.is_optimizer": step.is_optimizer,
            }  # fmt: skip
        elif isinstance(step, Wait):
            record.type = METADATA
            said |= {"rostam.wait": True, "rostam.host_waits": step.host}
        else:
            said |= self._message(record, step)
        set_attributes(record, said)
        return framed(record)

    def _message(self, record: Any, step: Any) -> dict[str, Any]:
        groups = self.program.group_set(step.group)
        number, place = _place(groups, self.rank)
        members = groups.members[number]
        said = {
            "pg_name": f"{groups.label}.{number}", "rostam.group": groups.label, "rostam.kind": groups.kind,
            "rostam.bytes": step.size_bytes,
        }  # fmt: skip
        if isinstance(step, Collective):
            record.type = COMM_COLL
            size = step.size_bytes if step.collective != "all_gather" else -(-step.size_bytes // len(members))
            named = {"comm_type": COMM_TYPES.index(step.collective)} if step.collective in COMM_TYPES else {}
            return said | named | {
                "comm_size": size, "rostam.collective": step.collective, "rostam.algorithm": step.algorithm
            }  # fmt: skip
        is_send = isinstance(step, Send)
        record.type = COMM_SEND if is_send else COMM_RECV
        other = int(members[place + step.peer])
        ends = (self.rank, other) if is_send else (other, self.rank)
        return said | {
            "comm_src": ends[0], "comm_dst": ends[1], "comm_size": step.size_bytes,
            "comm_tag": self.tags[f"{step.group} {step.channel}"], "rostam.channel": step.channel,
            "rostam.peer": step.peer,
        }  # fmt: skip


def _place(groups: GroupSet, rank: int) -> tuple[int, int]:
    """Return which of the groups a rank is in, and at which place."""
    rows, places = (groups.members == rank).nonzero()
    return int(rows[0]), int(places[0])
