"""A real run of scripts/small.py on four processes of this computer, with gloo: what each sends in its third step.

python real_run.py RANK PORT OUT      writes {program: [[kind, ranks of the group, bytes], ...]} as JSON
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent / "scripts"))
import small

WORLD = 4
# c10d's name -> ours, and which argument holds the bytes of MODEL A4.
KINDS = {
    "allreduce_": ("all_reduce", "tensors"), "all_reduce": ("all_reduce", "input"),
    "_allgather_base_": ("all_gather", "output_tensor"), "_reduce_scatter_base_": ("reduce_scatter", "input_tensor"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"), "send": ("send", "tensors"), "recv_": ("recv", "tensors"),
    "broadcast_": ("broadcast", "tensors"),
}  # fmt: skip


class Watch(TorchDispatchMode):
    """Lists collectives and messages while ``is_on``."""

    def __init__(self):
        super().__init__()
        self.found, self.is_on = [], False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any("DTensor" in one.__name__ or "Async" in one.__name__ for one in types):
            return NotImplemented
        name = func._schema.name.partition("::")[2]
        if self.is_on and func.namespace in ("c10d", "_c10d_functional") and name in KINDS:
            kind, key = KINDS[name]
            given = {one.name: value for one, value in zip(func._schema.arguments, args, strict=False)}
            group = given.get("process_group", given.get("group_name"))
            if not isinstance(group, (dist.ProcessGroup, str)):
                group = dist.ProcessGroup.unbox(group)
            elif isinstance(group, str):
                group = dist.distributed_c10d._resolve_process_group(group)
            ranks = dist.get_process_group_ranks(group)
            tensors = given[key] if isinstance(given[key], list) else [given[key]]
            size = sum(one.numel() * one.element_size() for one in tensors)
            peer = ranks[given["dst" if kind == "send" else "src"]] if kind in ("send", "recv") else None
            self.found.append([kind, sorted(ranks) if peer is None else peer, size])
        return func(*args, **(kwargs or {}))


def main(rank, port, out):
    os.environ.update(RANK=rank, WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, LOCAL_RANK=rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    watch, ends = Watch(), [0]

    def ended(*given):
        ends[0] += 1
        watch.is_on = ends[0] == small.STEPS - 1

    register_optimizer_step_post_hook(ended)
    lists = {}
    for name, program in small.PROGRAMS.items():
        ends[0], watch.found = 0, []
        with watch:
            program()
        lists[name] = watch.found
    Path(out).write_text(json.dumps(lists))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
