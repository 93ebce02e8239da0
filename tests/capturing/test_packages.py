"""Programs of other packages, unmodified, where they are installed: they are no dependencies of rostam."""

import json
from collections import Counter

import pytest

from rostam_py.capturing.front import DEFAULT_GPU, _request, captured_document
from tests.capturing.captured import document, steps_of

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
accelerator = Accelerator(mixed_precision="bf16")
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)])
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(512, 64))
data = torch.utils.data.DataLoader(data, batch_size=8)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for (x,) in data:
    accelerator.backward(model(x).float().pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
"""
DEEPSPEED = """
import deepspeed, torch
from torch import nn
deepspeed.init_distributed("nccl")
model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(4)])
settings = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
for _ in range(6):
    engine.backward(engine(torch.randn(2, 1024, device="cuda", dtype=torch.bfloat16)).float().pow(2).mean())
    engine.step()
"""
TRAINER = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)
data = [{"input_ids": torch.randint(0, 100, (32,)), "labels": torch.randint(0, 100, (32,))} for _ in range(512)]
settings = TrainingArguments(output_dir="out", per_device_train_batch_size=4, max_steps=8, bf16=True,
                             save_strategy="no", report_to=[])
Trainer(model=LlamaForCausalLM(config), args=settings, train_dataset=data).train()
"""


def reduced(program) -> Counter:
    """Return the bytes of each kind of collective of a step."""
    found: Counter = Counter()
    for one in steps_of(program):
        if one["kind"] == "collective":
            found[one["collective"]] += one["num_bytes"]
    return found


@pytest.mark.slow
def test_accelerate_reduces_every_gradient_once(tmp_path):
    pytest.importorskip("accelerate")
    path = tmp_path / "train.py"
    path.write_text(ACCELERATE)
    assert reduced(document(path, 8, ranks=(0,))) == {"all_reduce": 4 * 4 * (2 * 64 * 256 + 256 + 64)}


@pytest.mark.slow
def test_zero_3_scatters_every_gradient_once(tmp_path):
    pytest.importorskip("deepspeed")
    path = tmp_path / "train.py"
    path.write_text(DEEPSPEED)
    found = reduced(document(path, 8))
    assert found["reduce_scatter"] == 2 * 4 * (2 * 1024 * 4096 + 4096 + 1024) == 67_149_824


@pytest.mark.slow
def test_the_trainer_of_transformers_is_captured(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    path = tmp_path / "train.py"
    path.write_text(TRAINER)
    program = document(path, 8)
    assert list(program["roles"]) == ["rank"]
    parameters = 2 * 100 * 64 + 2 * (4 * 64**2 + 3 * 64 * 128 + 2 * 64) + 64
    assert reduced(program)["all_reduce"] >= 4 * parameters


@pytest.fixture
def titan(tmp_path, monkeypatch):
    """Capture torchtitan's own trainer in a folder with a tokenizer and a data set, which its package lacks."""
    pytest.importorskip("torchtitan")
    tokenizers = pytest.importorskip("tokenizers")
    texts = [f"The quick brown fox {k} jumps over lazy dog number {k * k}." for k in range(500)]
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    marks = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1000, special_tokens=list(marks.values()), initial_alphabet=alphabet
    )
    made.train_from_iterator(texts, trainer)
    folder = tmp_path / "tests" / "assets"
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "c4_test").mkdir()
    made.save(str(folder / "tokenizer" / "tokenizer.json"))
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({**marks, "add_bos_token": True}))
    lines = [json.dumps({"text": " ".join(texts[k : k + 100])}) for k in range(0, 500, 2)]
    (folder / "c4_test" / "data.json").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)

    def capture(*words, assumed=()):
        request = _request(
            ["python", "-m", "torchtitan.train", *words, "--training.steps", "7", "--training.disable_cuda_graphs",
             "--parallelism.spmd_backend", "partial_dtensor"],
            str(tmp_path), world=8, step=None, ranks=(0,), gpu=DEFAULT_GPU, stub=(), splits="balanced",
        )  # fmt: skip
        return captured_document(request, assumed)

    return capture


@pytest.mark.slow
def test_torchtitan_gathers_the_blocks_of_its_llama(titan):
    """Six blocks of 256 wide: attention 4 x 256^2, three products of 256 x 768, two norms, in bfloat16 and float32."""
    found = Counter(
        (one["collective"], one["num_bytes"])
        for one in steps_of(titan("--module", "llama3", "--config", "llama3_debugmodel"))
        if one["kind"] == "collective"
    )
    block = 4 * 256**2 + 3 * 256 * 768 + 2 * 256
    assert found["all_gather", 2 * block] == 2 * 6
    assert found["reduce_scatter", 4 * block] == 6


@pytest.mark.slow
def test_torchtitan_exchanges_tokens_of_experts_in_equal_parts(titan):
    words = ("--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel")
    assumed = ("torchtitan.deterministic_scatter_add",)  # an op of its own
    program = titan(*words, "--parallelism.expert_parallel_degree", "4", assumed=assumed)
    sizes = [one.get("num_bytes") for one in steps_of(program) if one.get("collective") == "all_to_all"]
    assert Counter(sizes)[25_165_824] == 20
    assert program["groups"]["ep"]["kind"] == "ep"
