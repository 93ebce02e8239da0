"""What a program sends: equal messages and collectives of each role counted, as those of a plan."""

from collections import Counter

import numpy as np

from rostam_py.plan.data import Message
from rostam_py.programs.data import ProgramData
from rostam_py.programs.steps import AnyMessage, Batch, Collective, Send


def messages_of(program: ProgramData) -> list[Message]:
    """Return what one rank of every role communicates in one iteration, equal messages counted.

    Returns: as ``Plan.messages`` has them, roles in place of stages, in the order of the file.
    Cost: steps of all phases.
    """
    found: Counter[tuple[str, str, tuple[int, ...], int]] = Counter()
    for index, role in enumerate(program.roles.values()):
        for name, count in role.order.counts().items():
            for step in role.phases[name]:
                for one in step.ends if isinstance(step, Batch) else (step,):
                    if isinstance(one, AnyMessage):
                        found[_key(program, index, one)] += count
    return [Message(*key, count=count) for key, count in found.items()]


def _key(program: ProgramData, role: int, step: AnyMessage) -> tuple[str, str, tuple[int, ...], int]:
    members = program.group_sets[step.group].members
    rows, places = np.nonzero(program.role_of[members] == role)
    row, place = members[rows[0]], int(places[0])
    if isinstance(step, Collective):
        roles = tuple(dict.fromkeys(program.role_of[row].tolist()))
        return step.collective, step.group, roles, step.size_bytes
    peer = int(program.role_of[row[place + step.peer]])
    ends = (role, peer) if isinstance(step, Send) else (peer, role)
    return step.kind, step.group, ends, step.size_bytes
