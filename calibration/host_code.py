"""Time what Megatron-Core's and Transformer Engine's Python takes of a host, on a CPU without their devices.

    python -m calibration.host_code FOLDER > rows.csv

FOLDER has the wheels of megatron-core 0.15.0 and transformer-engine 2.9.0 unpacked, and einops. One layer is built and
run forward and backward, with gradients' hooks that clear as Megatron-Core's do; its extension and CUDA are
``calibration/stand_in.py``, whose own time is taken off. Left out so: what the extension's C++, the driver, NCCL and
the caching allocator take. Not for a machine with a GPU: it has CUDA replaced.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from calibration import stand_in

EXPERT_RANKS, TOKENS, WIDTH = 8, 64, 128
RECIPES = {"bf16": None, "fp8": "tensorwise", "mxfp8": "mxfp8"}
CASES = [("experts", recipe, count) for recipe in RECIPES for count in (8, 16, 32)]
CASES += [("dense", recipe, 0) for recipe in ("bf16", "fp8")]
HEADER = "layer,recipe,experts,forward_us,backward_us,forward_launches,backward_launches"
_CALLS, _REPEATS = 40, 9
# A CPU for the device, and no code of the loader that looks for libraries.
_REPLACED = (
    (r"torch\.device\(([\"'])cuda\1\)", 'torch.device("cpu")'),
    (r"(device(?:: [^=,]+)?) ?= ?([\"'])cuda\2", r'\1="cpu"'),
    (r"\.is_cuda\b", '.device.type == "cpu"'),
)


def prepare(folder: Path, made: Path) -> None:
    """Copy the packages of a folder with their devices replaced by a CPU."""
    for name in ("transformer_engine", "megatron", "einops"):
        shutil.copytree(folder / name, made / name)
    for file in [*made.glob("transformer_engine/**/*.py"), *made.glob("megatron/**/*.py")]:
        text = file.read_text(encoding="utf-8")
        for pattern, new in _REPLACED:
            text = re.sub(pattern, new, text)
        file.write_text(text, encoding="utf-8")
    common = made / "transformer_engine/common/__init__.py"
    text = common.read_text(encoding="utf-8").split('if "NVTE_PROJECT_BUILDING"')[0]
    common.write_text(f"{text}\ndef load_framework_extension(name):\n    return\n", encoding="utf-8")
    start = "import transformer_engine.common\nfrom . import pytorch\n__version__ = '2.9.0'\n"
    (made / "transformer_engine/__init__.py").write_text(start, encoding="utf-8")
    plain = "def jit_fuser(function):\n    return function\n\n\nnoop_decorator = jit_fuser\n"
    (made / "megatron/core/jit.py").write_text(plain, encoding="utf-8")


def build_layer(kind: str, recipe: str | None, experts: int) -> tuple[Any, Any]:
    """Return a transformer layer of Qwen3's form, with ``experts`` on each of 8 ranks or dense, and its config."""
    import torch.distributed as dist
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
    from megatron.core.transformer.spec_utils import build_module
    from megatron.core.transformer.transformer_config import TransformerConfig
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed: Any = dist
    distributed.init_process_group(backend="fake", rank=0, world_size=EXPERT_RANKS, store=FakeStore())
    new_group = distributed.new_group
    distributed.new_group = lambda *given, **more: new_group(*given, **(more | {"backend": "fake", "pg_options": None}))
    is_routed = kind == "experts"
    parallel_state.initialize_model_parallel(expert_model_parallel_size=EXPERT_RANKS if is_routed else 1)
    distributed.all_gather_into_tensor = distributed._all_gather_base = _gathered
    count = experts * EXPERT_RANKS
    routed = {
        "num_moe_experts": count, "moe_router_topk": 8, "moe_ffn_hidden_size": WIDTH // 2, "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall", "moe_permute_fusion": True, "moe_router_fusion": True,
        "moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 1e-3, "moe_router_dtype": "fp32",
        "moe_router_force_load_balancing": True, "expert_model_parallel_size": EXPERT_RANKS,
    }  # fmt: skip
    narrow = {} if recipe is None else {"fp8": "hybrid", "fp8_recipe": recipe, "fp8_param": True}
    config = TransformerConfig(
        num_layers=2, hidden_size=WIDTH, num_attention_heads=4, num_query_groups=2, kv_channels=32,
        ffn_hidden_size=2 * WIDTH, add_bias_linear=False, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, normalization="RMSNorm", qk_layernorm=is_routed, bf16=True,
        params_dtype=torch.bfloat16, hidden_dropout=0.0, attention_dropout=0.0, bias_activation_fusion=True,
        bias_dropout_fusion=True, gradient_accumulation_fusion=True, use_cpu_initialization=True,
        apply_rope_fusion=True, **(routed if is_routed else {}), **narrow,
    )  # fmt: skip
    chosen = torch.zeros(TOKENS, max(count, 1), dtype=torch.bool)
    chosen[:, :: max(count // 8, 1)] = True
    stand_in.ROUTING[count] = chosen
    random: Any = tensor_parallel.get_cuda_rng_tracker()
    random.fork = contextlib.nullcontext
    spec = get_gpt_layer_with_transformer_engine_spec(count or None, is_routed, qk_layernorm=is_routed)
    return build_module(spec, config=config, layer_number=1), config


def _gathered(out: Any, part: Any, **more: Any) -> None:
    out.view(out.numel() // part.numel(), -1).copy_(part.reshape(1, -1).expand(out.numel() // part.numel(), -1))


def clear_gradients(layer: Any) -> None:
    """Hook what clears gradients to a layer's parameters, as Megatron-Core's data parallelism does."""
    kept = []
    for parameter in layer.parameters():
        parameter.main_grad, parameter.grad_added_to_main_grad = torch.zeros(parameter.shape), False
        kept.append(parameter.expand_as(parameter).grad_fn.next_functions[0][0])
        kept[-1].register_hook(_hook(parameter))
    layer.kept_hooks = kept


def _hook(parameter: Any) -> Callable[..., None]:
    def clear(*given: Any) -> None:
        if parameter.grad is not None and not parameter.grad_added_to_main_grad:
            parameter.main_grad.add_(parameter.grad.data)
        parameter.grad = None

    return clear


def measure(kind: str, name: str, experts: int) -> str:
    """Return a row of the file: of a layer, what its Python takes [us] and how much the extension is called for."""
    os.environ["NVTE_TORCH_COMPILE"] = "0"
    stand_in.install((10, 0) if name == "mxfp8" else (9, 0))
    torch.set_num_threads(1)
    layer, config = build_layer(kind, RECIPES[name], experts)
    from megatron.core.fp8_utils import get_fp8_context

    clear_gradients(layer)
    x = torch.randn(TOKENS, 1, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    turns = (torch.zeros(TOKENS, 1, 1, 32),) * 2
    gradient = torch.ones_like(x)

    def forward() -> Any:
        with get_fp8_context(config, 0) if RECIPES[name] else contextlib.nullcontext():
            return layer(x, attention_mask=None, rotary_pos_emb=turns)[0]

    counts = []
    for run in (forward, lambda: forward().backward(gradient)):
        run()
        stand_in.SPENT["launches"] = 0
        run()
        counts.append(stand_in.SPENT["launches"])
    one, both = _median_us(forward), _median_us(lambda: forward().backward(gradient))
    numbers = (one, both - one, counts[0], counts[1] - counts[0])
    return ",".join([kind, name, str(experts), *(f"{number:.0f}" for number in numbers)])


def _median_us(run: Callable[[], Any]) -> float:
    for _ in range(_CALLS // 4):
        run()
    found = []
    for _ in range(_REPEATS):
        stand_in.SPENT["seconds"] = 0.0
        begin = time.process_time()
        for _ in range(_CALLS):
            run()
        found.append((time.process_time() - begin - stand_in.SPENT["seconds"]) / _CALLS * 1e6)
    return statistics.median(found)


def main() -> None:
    """Print the rows of all cases, each measured in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m calibration.host_code", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", help="of a prepared folder, LAYER,RECIPE,EXPERTS")
    given = parser.parse_args()
    if given.case:
        kind, name, experts = given.case.split(",")
        sys.path.insert(0, str(given.folder))
        sys.stdout.write(measure(kind, name, int(experts)) + "\n")
        return
    sys.stdout.write(HEADER + "\n")
    with tempfile.TemporaryDirectory() as made:
        prepare(given.folder, Path(made))
        for case in CASES:
            command = [sys.executable, "-m", "calibration.host_code", made, "--case", ",".join(map(str, case))]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            sys.stdout.write(done.stdout.splitlines()[-1] + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
