"""FSDP2 blocks under torch's MemTracker, which writes the peak of one iteration to a file.

python tracked.py OUT [--checkpoint]
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WIDTH = 1024


def layer():
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
layers = [layer() for _ in range(6)]
model = nn.Sequential(*(map(checkpoint_wrapper, layers) if "--checkpoint" in sys.argv else layers)).cuda()
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for one in model:
    fully_shard(one, mesh=mesh, mp_policy=precision)
fully_shard(model, mesh=mesh, mp_policy=precision)
optimizer = torch.optim.AdamW(model.parameters())


def iteration():
    model(torch.randn(4, 512, WIDTH, device="cuda")).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


iteration()
tracker = MemTracker()
tracker.track_external(model, optimizer)
with tracker:
    iteration()
device, peak = max(tracker.get_tracker_snapshot("peak").items(), key=lambda one: one[1]["Total"])
Path(sys.argv[1]).write_text(f"{device.type} {peak['Total']}")
iteration()
iteration()
