"""Small models under every kind of parallelism, on GPUs where there are some, else on the CPU with gloo.

python small.py ddp | fsdp2 | tp | fsdp2_tp | one_f_one_b | interleaved       on four ranks
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

KIND = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, STEPS, MICROBATCHES = 32, 3, 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, 64, bias=False), nn.Linear(WIDTH, 64, bias=False)
        self.down = nn.Linear(64, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.o(torch.sigmoid(self.q(x)) * self.k(x) + self.v(x))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def train(model, forward=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for _ in range(STEPS):
        if forward is None:
            model(torch.randn(4, WIDTH, device=KIND)).pow(2).mean().backward()
        else:
            forward()
        optimizer.step()
        optimizer.zero_grad()


def ddp():
    layers = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(6)]).to(KIND)
    train(DistributedDataParallel(layers, bucket_cap_mb=0.01))


def fsdp2():
    mesh = init_device_mesh(KIND, (dist.get_world_size(),))
    model = nn.Sequential(*[Layer() for _ in range(3)]).to(KIND)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    train(fully_shard(model, mesh=mesh))


def split(model, mesh):
    columns, rows = ("q", "k", "v", "gate", "up"), ("o", "down")
    for layer in model:
        parallelize_module(
            layer, mesh, {name: ColwiseParallel() for name in columns} | {name: RowwiseParallel() for name in rows}
        )


def tp():
    model = nn.Sequential(*[Layer() for _ in range(2)]).to(KIND)
    split(model, init_device_mesh(KIND, (dist.get_world_size(),)))
    train(model)


def fsdp2_tp():
    mesh = init_device_mesh(KIND, (2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(*[Layer() for _ in range(2)]).to(KIND)
    split(model, mesh["tp"])
    for layer in model:
        fully_shard(layer, mesh=mesh["dp"])
    train(fully_shard(model, mesh=mesh["dp"]))


def pipelined(chunks):
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device(KIND, rank) if KIND == "cuda" else torch.device(KIND)
    models = nn.ModuleList(nn.Linear(WIDTH, WIDTH).to(device) for _ in range(chunks))
    stages = [PipelineStage(one, rank + k * size, chunks * size, device) for k, one in enumerate(models)]
    loss = lambda y, target: (y - target).pow(2).mean()  # noqa: E731
    if chunks == 1:
        schedule = Schedule1F1B(stages[0], n_microbatches=MICROBATCHES, loss_fn=loss)
    else:
        schedule = ScheduleInterleaved1F1B(stages, n_microbatches=MICROBATCHES, loss_fn=loss)

    def forward():
        x = torch.randn(2 * MICROBATCHES, WIDTH, device=device)
        schedule.step(*([x] if rank == 0 else []), **({"target": x} if rank == size - 1 else {}))

    train(models, forward)


PROGRAMS = {
    "ddp": ddp, "fsdp2": fsdp2, "tp": tp, "fsdp2_tp": fsdp2_tp, "one_f_one_b": lambda: pipelined(1),
    "interleaved": lambda: pipelined(2),
}  # fmt: skip

if __name__ == "__main__":
    if KIND == "cuda":
        torch.cuda.set_device(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    dist.init_process_group("nccl" if KIND == "cuda" else "gloo")
    PROGRAMS[sys.argv[1]]()
    dist.destroy_process_group()
