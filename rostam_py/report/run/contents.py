"""Contents: what an average rank runs in one iteration, messages and kernels counted, of a plan or a program.

Example:
    contents_of(plan)["messages"]["all_gather of 436,224,000 B among 64"]       # 64.0
"""

from collections import defaultdict

from rostam_py.plan.plan import Plan
from rostam_py.plan.tasks import Task
from rostam_py.programs import PlacedProgram

Contents = dict[str, dict[str, float]]


def contents_of(plan: Plan | PlacedProgram) -> Contents:
    """Return sections of counts and times, by name; each is a mean over ranks.

    Returns: "messages" by kind, bytes and ranks of a group, whatever the group is called; "kernels", launched by op
        type; "kernels_s" [s], of the same.
    Cost: tasks of all stages or roles.
    """
    messages: dict[str, float] = defaultdict(float)
    kernels: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    for stage in plan.stages:
        share = float((plan.stage_of == stage.index).sum()) / plan.num_devices
        for name, count in stage.program.counts().items():
            for task in stage.templates[name]:
                if task.kind != "compute":
                    messages[_message(plan, task)] += share * count
                for kernel in task.kernels:
                    kernels[kernel.op_type] += share * count * kernel.launches
                    seconds[kernel.op_type] += share * count * kernel.duration_s
    longest = sorted(seconds, key=lambda op: -seconds[op])
    return {
        "messages": dict(messages), "kernels": {op: kernels[op] for op in longest},
        "kernels_s": {op: seconds[op] for op in longest},
    }  # fmt: skip


def _message(plan: Plan | PlacedProgram, task: Task) -> str:
    if task.kind != "collective":
        return f"{task.kind} of {int(task.num_bytes):,} B"
    ranks = plan.group_set(task.group).members.shape[1]
    return f"{task.collective} of {int(task.num_bytes):,} B among {ranks}"
