"""A stand-in for Transformer Engine's extension and for CUDA: allocates what is asked for, computes nothing, counts.

For ``calibration/host_code.py``, which times the Python of Megatron-Core's modules on a CPU. Functions have the names
and the results of transformer_engine 2.9.0's; those of no interest are mocks. What passes in them is
``SPENT["seconds"]``, what they would launch ``SPENT["launches"]``.
"""

import contextlib
import enum
import importlib.machinery
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import MagicMock

import torch

SPENT = {"seconds": 0.0, "launches": 0.0}
ROUTING: dict[int, torch.Tensor] = {}  # experts -> which of them each token chooses, bool (tokens, experts)
_CAST_LAUNCHES = {"Float8CurrentScalingQuantizer": 3}  # largest value, scale, cast; others one


def _numbered(name: str, *parts: str) -> Any:
    return enum.IntEnum(name, [(part, number) for number, part in enumerate(parts)])


_TYPES = ("Byte", "Int16", "Int32", "Int64", "Float32", "Float16", "BFloat16", "Float8E4M3", "Float8E5M2", "Float8E8M0")


class _Module(types.ModuleType):
    """A module whose unknown members are mocks."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "3.4.0"
        if name.startswith("__"):
            raise AttributeError(name)
        found = MagicMock(name=name)
        setattr(self, name, found)
        return found


def _module(name: str, **members: Any) -> _Module:
    made = _Module(name)
    made.__spec__, made.__path__ = importlib.machinery.ModuleSpec(name, None), []
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


def _launched(count: int, made: Any) -> Any:
    SPENT["launches"] += count
    return made


def _quantized(tensor: Any, quantizer: Any, out: Any = None, noop: Any = None) -> Any:
    SPENT["launches"] += _CAST_LAUNCHES.get(type(quantizer).__name__, 1)
    if out is not None:
        return out
    made = quantizer.make_empty(tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)
    if not getattr(quantizer, "internal", False):
        return made
    from transformer_engine.pytorch.tensor.storage.float8_tensor_storage import Float8TensorStorage
    from transformer_engine.pytorch.tensor.storage.mxfp8_tensor_storage import MXFP8TensorStorage

    if hasattr(made, "_rowwise_data"):
        swizzled = getattr(made, "_with_gemm_swizzled_scales", None)  # of 2.12.0
        more = {} if swizzled is None else {"with_gemm_swizzled_scales": swizzled}
        return MXFP8TensorStorage(
            rowwise_data=made._rowwise_data, rowwise_scale_inv=made._rowwise_scale_inv,
            columnwise_data=made._columnwise_data, columnwise_scale_inv=made._columnwise_scale_inv,
            fp8_dtype=made._fp8_dtype, quantizer=quantizer, **more,
        )  # fmt: skip
    return Float8TensorStorage(
        data=made._data, fp8_scale_inv=made._scale_inv, fp8_dtype=made._fp8_dtype, data_transpose=made._transpose,
        quantizer=quantizer,
    )  # fmt: skip


def _split_quantized(tensor: Any, splits: list[int], quantizers: list[Any], **more: Any) -> list[Any]:
    parts = torch.split(tensor, splits)
    return [_quantized(part, quantizer) for part, quantizer in zip(parts, quantizers, strict=True)]


def _gemm(a: Any, is_a_transposed: bool, b: Any, is_b_transposed: bool, out: Any, *rest: Any, **more: Any) -> Any:
    if out is None:
        columns = a.size()[0] if is_a_transposed else a.size()[-1]
        rows = (b.size()[-1],) if is_b_transposed else b.size()[:-1]
        out = torch.empty(*rows, columns, dtype=torch.bfloat16)
    return _launched(1, (out, None, None, None))


def _grouped_gemm(a: Any, *rest: Any) -> Any:
    return _launched(len(a), rest[6])


def _norm(x: Any, weight: Any, eps: float, out: Any, quantizer: Any, *rest: Any) -> Any:
    if out is None:
        out = torch.empty_like(x) if quantizer is None else _quantized(x, quantizer)
    return _launched(1, (out, None, torch.empty(x.shape[0])))


def _norm_backward(dz: Any, x: Any, scale: Any, weight: Any, *rest: Any) -> Any:
    return _launched(2, (torch.empty_like(x), torch.empty_like(weight)))


def _attention(*given: Any) -> Any:
    query = next(one for one in given if isinstance(one, torch.Tensor) and one.dim() == 4)
    return _launched(2, [torch.empty_like(query), torch.empty(1, 1, query.shape[0], 1), torch.empty(2)])


def _attention_backward(*given: Any) -> Any:
    heads = [one for one in given if isinstance(one, torch.Tensor) and one.dim() == 4][:3]
    return _launched(3, [torch.empty_like(one) for one in heads])


def _routed(logits: Any, *rest: Any, **more: Any) -> Any:
    return _launched(1, (torch.zeros_like(logits), ROUTING[logits.shape[1]], torch.zeros_like(logits)))


def _permuted(inp: Any, rows: Any, probs: Any, scale: Any, *rest: Any) -> Any:
    made = [one for one in rest if isinstance(one, int)][2]  # behind tokens and experts; 2.12.0 has one more in front
    weights = None if probs is None else torch.empty(made, dtype=probs.dtype)
    return _launched(1, (torch.empty(made, inp.shape[1], dtype=inp.dtype), None, weights))


def _unpermuted(inp: Any, rows: Any, merging: Any, probs: Any, *rest: Any) -> Any:
    tokens, experts, width = [one for one in rest if isinstance(one, int)][:3]
    weights = None if probs is None else torch.empty(tokens, experts, dtype=probs.dtype)
    return _launched(1, (torch.empty(tokens, width, dtype=inp.dtype), weights))


def _sorted(inp: Any, rows: Any, probs: Any, *rest: Any, **more: Any) -> Any:
    return _launched(1, (torch.empty_like(inp), None if probs is None else torch.empty_like(probs)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantize": _quantized,
    "split_quantize": _split_quantized,
    "generic_gemm": _gemm,
    "te_general_grouped_gemm": _grouped_gemm,
    "rmsnorm_fwd": _norm,
    "layernorm_fwd": _norm,
    "rmsnorm_bwd": _norm_backward,
    "layernorm_bwd": _norm_backward,
    "fused_attn_fwd": _attention,
    "fused_attn_bwd": _attention_backward,
    "fused_rope_forward": lambda t, *rest: _launched(1, torch.empty_like(t)),
    "fused_rope_backward": lambda t, *rest: _launched(1, torch.empty_like(t)),
    "fused_topk_with_score_function_fwd": _routed,
    "fused_topk_with_score_function_bwd": lambda n, e, m, i, g, *rest: _launched(1, torch.empty_like(g)),
    "fused_score_for_moe_aux_loss_fwd": _routed,
    "fused_score_for_moe_aux_loss_bwd": lambda **given: _launched(1, torch.empty_like(given["grad_scores"])),
    "fused_moe_aux_loss_fwd": lambda *given, **more: _launched(1, (torch.zeros(()), torch.zeros(()))),
    "fused_moe_aux_loss_bwd": lambda **given: _launched(1, torch.empty(given["num_rows"], given["num_cols"])),
}
_PERMUTATIONS: dict[str, Callable[..., Any]] = {
    "make_row_id_map": lambda m, n, e: _launched(3, torch.empty(n, 2 * e + 1, dtype=torch.int32)),
    "make_chunk_sort_map": lambda s, i, n, k: _launched(1, torch.empty(n, dtype=torch.int32)),
    "permute_with_mask_map": _permuted,
    "unpermute_with_mask_map": _unpermuted,
    "sort_chunks_by_map": _sorted,
}


def _timed(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*given: Any, **more: Any) -> Any:
        begin = time.process_time()
        try:
            return function(*given, **more)
        finally:
            SPENT["seconds"] += time.process_time() - begin

    return run


class _Stream:
    """A stream or an event that is never waited for."""

    def __init__(self, *given: Any, **more: Any) -> None: ...
    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *given: Any) -> None: ...
    def record_event(self, *given: Any) -> "_Stream":
        return self

    def wait_stream(self, *given: Any) -> None: ...
    def wait(self, *given: Any) -> None: ...
    def record(self, *given: Any) -> None: ...
    def synchronize(self) -> None: ...


@contextlib.contextmanager
def _nothing(*given: Any, **more: Any) -> Iterator[None]:
    yield


def install(capability: tuple[int, int]) -> None:
    """Put the stand-ins where the packages import them from. Args: capability: of the device, (9, 0) or (10, 0)."""
    # Both look for what the stand-ins take the place of, and have to find that it is not there.
    import torch._inductor.runtime.autotune_cache
    import torch.testing._internal.distributed.fake_pg

    formats = _numbered("Float8BlockScaleTensorFormat", "GEMM_READY", "COMPACT", "INVALID")
    inputs = [f"GEMM{n}_{what}" for n in (1, 2, 3) for what in ("INPUT", "WEIGHT", "OUTPUT")]
    gradients = [f"GRAD_{what}{n}" for n in (1, 2, 3) for what in ("OUTPUT", "INPUT")]
    dtypes = _numbered("DType", *(f"k{name}" for name in (*_TYPES, "Float4E2M1")))
    extension: Any = _module(
        "transformer_engine_torch", DType=dtypes, Float8BlockScaleTensorFormat=formats,
        FP8FwdTensors=_numbered("FP8FwdTensors", *inputs), FP8BwdTensors=_numbered("FP8BwdTensors", *gradients),
        FP8TensorMeta=type("FP8TensorMeta", (), {}), get_cudnn_version=lambda: 91300, get_num_cublas_streams=lambda: 4,
        get_stream_priority_range=lambda: (0, -1), __all__=["get_cudnn_version", *_FUNCTIONS],
        **{name: _timed(function) for name, function in _FUNCTIONS.items()},
    )  # fmt: skip
    backends = extension.NVTE_Fused_Attn_Backend
    extension.get_fused_attn_backend = lambda *given: backends.NVTE_F16_arbitrary_seqlen
    for name in ("onnxscript", "onnx", "triton", "triton.language", "triton.language.core"):
        _module(name)
    engine = "transformer_engine.pytorch"
    _module(f"{engine}.onnx_extensions")
    kernels = {name: _timed(function) for name, function in _PERMUTATIONS.items()}
    permutation = _module(f"{engine}.triton.permutation", **kernels)
    _module(f"{engine}.triton", permutation=permutation)
    for name in ("cross_entropy", "pad"):
        _module(f"{engine}.triton.{name}")
    properties = types.SimpleNamespace(
        multi_processor_count=132, major=capability[0], minor=0, total_memory=80 << 30, name="stand-in"
    )
    cuda: Any = torch.cuda
    stream = _Stream()
    for name, member in {
        "current_device": lambda: "cpu", "get_device_capability": lambda *given: capability,
        "get_device_properties": lambda *given: properties, "is_available": lambda: True, "device_count": lambda: 1,
        "is_current_stream_capturing": lambda: False, "device": _Stream, "Stream": _Stream, "Event": _Stream,
        "stream": _Stream, "current_stream": lambda *given: stream,
    }.items():  # fmt: skip
        setattr(cuda, name, member)
    cuda.nvtx.range, cuda.nvtx.range_push, cuda.nvtx.range_pop = _nothing, lambda *given: None, lambda: None
    tensors: Any = torch.Tensor
    tensors.cuda, tensors.record_stream = lambda self, *given, **more: self, lambda *given: None
