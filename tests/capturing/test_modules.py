"""What programs rely on of modules on a device: parameters keep their identity, and clones, norms, types are GPU's."""

import textwrap

from tests.capturing.captured import document, steps_of

TIED = """
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
dist.init_process_group("nccl")
embedding, head = nn.Embedding(64, 32), nn.Linear(32, 64, bias=False)
head.weight = embedding.weight
model = nn.Sequential(embedding, nn.RMSNorm(32), head)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)      # before the model moves, as accelerate has it
model.to("cuda", torch.bfloat16)
model = nn.parallel.DistributedDataParallel(model)
assert model.module[0].weight is model.module[2].weight
for step in range(3):
    tokens = torch.randint(64, (4, 16)).cuda()
    x = model(tokens)
    heads = x.view(4, 16, 4, 16).transpose(1, 2)
    F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_parameters_keep_their_identity_and_kernels_are_a_gpus(tmp_path):
    path = tmp_path / "tied.py"
    path.write_text(textwrap.dedent(TIED))
    program = document(path, 8, ranks=(0,))
    steps = steps_of(program)
    updates = [name for one in steps if one.get("is_optimizer") for name in one["kernels"]]
    assert any(name.startswith("_foreach_addcdiv_") for name in updates)
    (reduced,) = [one["num_bytes"] for one in steps if one["kind"] == "collective"]
    assert reduced == 2 * (64 * 32 + 32)  # one table, one norm, in bfloat16
    ops = {one["op"].split(".")[1] for one in program["kernels"].values()}
    assert ops >= {"_fused_rms_norm", "_scaled_dot_product_flash_attention"}
    assert not ops & {"rsqrt", "softmax", "bmm", "baddbmm"}
