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


SHARDED = """
import torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
layers = nn.Sequential(*[nn.TransformerEncoderLayer(256, 4, batch_first=True) for _ in range(4)])
half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = FSDP(layers, auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}), mixed_precision=half,
             device_id=torch.cuda.current_device(), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(4, 64, 256, device="cuda")).float().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

SCALED = """
import contextlib
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64, bias=False).cuda(), gradient_as_bucket_view=True)
optimizer = torch.optim.Adam(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
data = DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=4, num_workers=1, pin_memory=True)
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
for k, (x,) in enumerate(data):
    start.record()
    with model.no_sync() if k % 2 == 0 else contextlib.nullcontext():
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x.cuda(non_blocking=True)).float().pow(2).mean()
        scaler.scale(loss).backward()
    if k % 2:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        end.record()
        torch.cuda.synchronize()
        print(k, loss.item(), start.elapsed_time(end), torch.cuda.max_memory_allocated())
"""


def test_the_first_fsdp_gathers_flat_parameters(tmp_path):
    """A layer of 256 wide: attention 4 x 256^2 + 4 x 256, feed-forward 2 x 2,048 x 256 + 2,304, norms 4 x 256."""
    path = tmp_path / "sharded.py"
    path.write_text(SHARDED)
    steps = steps_of(document(path, 8, ranks=(0,)))
    size = 2 * (4 * 256**2 + 4 * 256 + 2 * 2048 * 256 + 2304 + 4 * 256)
    found = [(one["collective"], one["num_bytes"]) for one in steps if one["kind"] == "collective"]
    assert sorted(found) == [("all_gather", size)] * 8 + [("reduce_scatter", size)] * 4


def test_accumulated_and_scaled_gradients_are_reduced_once_a_step(tmp_path):
    """Two micro-batches, the second of which synchronizes; gradients are finite, so that no step is skipped."""
    path = tmp_path / "scaled.py"
    path.write_text(SCALED)
    steps = steps_of(document(path, 8, ranks=(0,)))
    assert [one["num_bytes"] for one in steps if one["kind"] == "collective"] == [4 * 64**2]
    kernels = [name for one in steps for name in one.get("kernels", ())]
    assert sum(name.startswith("mm") for name in kernels) == 2 * 2  # the product and the weight's gradient
    assert any(name.startswith("_fused_adam_") for name in kernels)
    assert sum(one.get("host", False) for one in steps) >= 2


WRAPPED = """
import torch, torch.distributed as dist
from torch.utils import _pytree as pytree
dist.init_process_group("nccl")

class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        args = pytree.tree_map_only(cls, lambda one: one.inner, args)
        return func(*args, **(kwargs or {}))

weight = torch.nn.Parameter(torch.randn(64, 64, device="cuda"))
optimizer = torch.optim.SGD([weight])
for step in range(4):
    with torch.no_grad():
        Scaled(weight.detach()).mm(Scaled(torch.randn(64, 32, device="cuda")))
    (weight @ torch.randn(64, 16, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_what_a_class_of_tensors_runs_inside_is_recorded(tmp_path):
    """As torchao's float8 tensors: their products run on what they hold."""
    path = tmp_path / "wrapped.py"
    path.write_text(textwrap.dedent(WRAPPED))
    program = document(path, 8, ranks=(0,))
    shapes = [one["shapes"] for one in program["kernels"].values() if one["op"] == "aten.mm.default"]
    assert [[64, 64], [64, 32]] in shapes
