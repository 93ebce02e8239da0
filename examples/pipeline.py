"""Pipeline parallelism: torch.distributed.pipelining's 1F1B, a stage on each GPU.

On GPUs: torchrun --nproc-per-node 4 examples/pipeline.py
Without: rostam capture --world 4 -- python examples/pipeline.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, LAYERS, BATCH, MICROBATCHES, STEPS = 1024, 2, 8, 4, 4


def main() -> None:
    """Train a few steps on random numbers."""
    dist.init_process_group("nccl")
    rank, stages = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).to(device)
    stage = PipelineStage(model, rank, stages, device)
    schedule = Schedule1F1B(stage, n_microbatches=MICROBATCHES, loss_fn=lambda y, target: (y - target).pow(2).mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        if rank == 0:
            schedule.step(torch.randn(BATCH, 128, WIDTH, device=device))
        elif rank == stages - 1:
            schedule.step(target=torch.randn(BATCH, 128, WIDTH, device=device))
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
