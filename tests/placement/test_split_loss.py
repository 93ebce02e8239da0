"""DTensor's loss_parallel as PyTorch's compiler makes it: bytes of each logit by hand, and what the compiler says."""

import subprocess
import sys

import pytest

from rostam_py.models import llama
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

WORDS, TOKENS, TP = 32000, 512, 4
LOGITS = TOKENS * WORDS // TP  # of a member

# Prints the dtypes of tensors as large as the logits that forward hands to backward.
TRACED = """
import torch, torch.distributed as dist, torch.nn.functional as F
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
mesh = init_device_mesh("cpu", (4,))
tokens, words = 64, 512

def backward(graph, inputs):
    found = [t.dtype for t in inputs if isinstance(t, torch.Tensor) and t.numel() == tokens * words]
    print("kept", *found)
    return graph

def loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))

compiler = aot_autograd(
    fw_compiler=lambda graph, inputs: graph, bw_compiler=backward, partition_fn=min_cut_rematerialization_partition
)
local = torch.randn(2, tokens // 2, words, dtype=torch.bfloat16, requires_grad=True)
logits = DTensor.from_local(local, mesh, [Shard(2)], run_check=False)
with loss_parallel():
    torch.compile(loss, backend=compiler)(logits, torch.randint(0, words, (2, tokens // 2))).backward()
"""


@pytest.fixture(scope="module")
def graph():
    config = llama.Config(
        num_layers=2, width=1024, num_heads=16, num_key_heads=8, hidden=2816, vocabulary=WORDS, sequence_length=TOKENS
    )
    return trace(llama.build("llama", config))


def loss_kernels(placed, graph, style):
    """{phase: [bytes a member's logit moves of every kernel of the loss]} and the bytes that forward keeps."""
    strategy = Strategy.of(
        tp=TP, sequence_parallel=True, tp_style=style, precision="bf16_mixed", micro_batch=1,
        fused_part="blocks_and_loss",
    )  # fmt: skip
    stage = placed(graph, strategy, 1, accelerator="h100_80gb", cost="roofline").stages[0]
    found = {}
    for phase, template in (("forward", "forward"), ("backward", "backward_last")):
        kernels = (
            k for task in stage.templates[template] for k in task.kernels if "softmax" in k.name or "nll" in k.name
        )
        found[phase] = [
            (round(k.call.bytes_read / LOGITS, 1), round(k.call.bytes_written / LOGITS, 1)) for k in kernels
        ]
    return found, stage.activation_changes["forward"][0]


def test_its_gradient_is_made_in_forward_in_fp32_and_kept(graph, placed):
    whole, kept = loss_kernels(placed, graph, "mcore")
    assert (whole["forward"], whole["backward"]) == ([(2, 0)], [(2, 2)])
    split, kept_split = loss_kernels(placed, graph, "dtensor")
    # The largest logit, the sum, zeros, the gradient; backward scales that: 24 bytes.
    assert sorted(split["forward"]) == [(0, 4), (2, 0), (2, 0), (6, 4)]
    assert split["backward"] == [(4, 2)]
    # DTensor keeps inputs of products whole as well.
    assert kept_split - kept > (4 - 2) * LOGITS


@pytest.mark.slow
def test_the_compiler_keeps_a_gradient_in_fp32_and_no_logits():
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=True, timeout=300)
    assert [line for line in done.stdout.splitlines() if line.startswith("kept")] == ["kept torch.float32"]
