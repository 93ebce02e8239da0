"""Data parallelism as torch has it: DistributedDataParallel around a model that every GPU holds whole.

On GPUs: torchrun --nnodes 8 --nproc-per-node 8 examples/ddp.py
Without: rostam capture --world 64 -- python examples/ddp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH, STEPS = 2048, 4, 8, 4


def main() -> None:
    """Train a few steps on random numbers."""
    dist.init_process_group("nccl")
    local = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(local)
    layers = [nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(torch.randn(BATCH, WIDTH, device="cuda")).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
