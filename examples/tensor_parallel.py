"""FSDP2 and DTensor's tensor parallelism on a mesh of two dimensions: columns of q, k, v, gate, up; rows of o, down.

On GPUs: torchrun --nnodes 8 --nproc-per-node 8 examples/tensor_parallel.py
Without: rostam capture --world 64 -- python examples/tensor_parallel.py
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformer import Block

LAYERS, WIDTH, HIDDEN, HEAD, SEQUENCE, STEPS = 4, 2048, 5632, 64, 2048, 4
TENSOR = 8


def main() -> None:
    """Train a few steps on random activations."""
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    world = dist.get_world_size()
    mesh = init_device_mesh("cuda", (world // TENSOR, TENSOR), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = torch.nn.Sequential(*(Block(WIDTH, HIDDEN, HEAD) for _ in range(LAYERS)))
    columns, rows = ("q", "k", "v", "gate", "up"), ("o", "down")
    plan = {name: ColwiseParallel() for name in columns} | {name: RowwiseParallel() for name in rows}
    for block in model:
        parallelize_module(block, mesh["tp"], plan)
    if world > TENSOR:
        for block in model:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)  # of different meshes
    for step in range(STEPS):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(torch.randn(1, SEQUENCE, WIDTH, device="cuda")).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
