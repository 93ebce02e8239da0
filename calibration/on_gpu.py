"""Times kernels of image networks, and what products and attention hold at a power limit, on the GPU at hand.

    python calibration/on_gpu.py FOLDER

writes kernels.csv and held.csv there; needs PyTorch with CUDA, and nvidia-ml-py for power and clocks. Those of one H100
are calibration/measured/kernels_h100_own.csv and held_h100_own.csv. Kernels: CUDA graphs of 10 calls, the median of 8
replays, so that no launch counts. Held: 8 ms after a second's rest, then the last quarter of four seconds.
"""

import csv
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

aten = torch.ops.aten
Call = Callable[[], object]
Row = tuple[object, ...]
DEVICE, CALLS, REPLAYS = "cuda", 10, 8
REST_S, BURST_MS, HELD_S = 1.2, 8.0, 4.0
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
BATCHES = (1, 16, 64, 400)
# Channels in and out, side, filter, stride.
RESNET = tuple(
    conv
    for width, side, before, stride in ((64, 56, 64, 1), (128, 56, 256, 2), (256, 28, 512, 2), (512, 14, 1024, 2))
    for conv in (
        (before, width, side, 1, 1), (width, width, side, 3, stride), (width, 4 * width, side // stride, 1, 1),
        (before, 4 * width, side, 1, stride), (4 * width, width, side // stride, 1, 1),
        (width, width, side // stride, 3, 1),
    )
)  # fmt: skip
OTHERS = ((3, 64, 224, 7, 2), (96, 96, 35, 3, 1), (48, 64, 35, 5, 1), (192, 320, 17, 3, 1), (320, 320, 14, 1, 1))
COSMOFLOW = ((4, 32, 128), (32, 64, 64), (64, 128, 32), (128, 256, 16), (256, 512, 8))  # channels in and out, side
NORMS = ((64, 112), (64, 56), (256, 56), (128, 56), (128, 28), (512, 28), (256, 28), (256, 14), (1024, 14), (512, 14),
         (512, 7), (2048, 7))  # fmt: skip
LIMIT = 7.0  # of GPT-OSS's clamps
PRODUCTS = {
    torch.bfloat16: ((8192, 8192, 8192), (4096, 4096, 4096), (16384, 8192, 3584), (4096, 8192, 2048),
                     (4096, 2048, 2048), (4096, 131072, 2048), (8192, 28672, 8192)),
    torch.float8_e4m3fn: ((8192, 8192, 8192), (8192, 28672, 4096), (4096, 16384, 4096), (16384, 8192, 3584)),
}  # fmt: skip


def kernel_us(call: Call) -> float:
    """Return the time of one call [us]."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    return statistics.median(_calls_us(graph.replay, 1) / CALLS for _ in range(REPLAYS))


def _calls_us(call: Call, number: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(number):
        call()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / number


def _images(batch: int, channels: int, side: int, dims: int, dtype: torch.dtype) -> torch.Tensor:
    shape = (batch, channels, *[side] * dims)
    return torch.randn(shape, device=DEVICE, dtype=dtype).contiguous(memory_format=FORMATS[dims])


def convolution(batch: int, sizes: tuple[int, ...], dims: int, dtype: torch.dtype) -> list[Row]:
    """Time a convolution and both gradients."""
    before, after, side, filter_, stride = sizes
    x = _images(batch, before, side, dims, dtype)
    w = _images(after, before, filter_, dims, dtype) * 0.05
    how = ([stride] * dims, [filter_ // 2] * dims, [1] * dims, False, [0] * dims, 1)
    gradient = torch.randn_like(aten.convolution(x, w, None, *how))
    calls: dict[str, Call] = {"forward": lambda: aten.convolution(x, w, None, *how)}
    for name, mask in (("input gradient", [True, False, False]), ("weight gradient", [False, True, False])):
        calls[name] = lambda mask=mask: aten.convolution_backward(gradient, x, w, None, *how, mask)  # type: ignore[misc]
    label = f"n{batch} c{before}>{after} s{side} k{filter_} st{stride} d{dims}"
    return [(f"convolution {name}", str(dtype)[6:], label, kernel_us(call)) for name, call in calls.items()]


def norm(batch: int, channels: int, side: int, dtype: torch.dtype) -> list[Row]:
    """Time a batch norm by PyTorch and by cuDNN, and the element-wise kernels behind it."""
    x = _images(batch, channels, side, 2, dtype)
    gradient = torch.randn_like(x)
    w, b, mean, var = (torch.ones(channels, device=DEVICE) for _ in range(4))
    _, m, v = aten.native_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5)
    _, cm, cv, kept = aten.cudnn_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5)
    every = [True, True, True]
    calls: dict[str, Call] = {
        "batch norm forward, native": lambda: aten.native_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5),
        "batch norm backward, native": lambda: aten.native_batch_norm_backward(
            gradient, x, w, mean, var, m, v, True, 1e-5, every
        ),
        "batch norm forward, cudnn": lambda: aten.cudnn_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5),
        "batch norm backward, cudnn": lambda: aten.cudnn_batch_norm_backward(
            x, gradient, w, mean, var, cm, cv, 1e-5, kept
        ),
        "relu": lambda: torch.relu(x),
        "relu backward": lambda: aten.threshold_backward(gradient, x, 0),
        "add": lambda: x + gradient,
    }
    label = f"n{batch} c{channels} s{side} d2"
    return [(name, str(dtype)[6:], label, kernel_us(call)) for name, call in calls.items()]


def pool(batch: int, channels: int, side: int, dims: int, how: tuple[int, int, int], dtype: torch.dtype) -> list[Row]:
    """Time max pooling and its gradient. Args: how: filter, stride, padding."""
    x = _images(batch, channels, side, dims, dtype)
    run = aten.max_pool2d_with_indices if dims == 2 else aten.max_pool3d_with_indices
    back = aten.max_pool2d_with_indices_backward if dims == 2 else aten.max_pool3d_with_indices_backward
    filter_, stride, padding = ([size] * dims for size in how)
    y, places = run(x, filter_, stride, padding)
    gradient, ones = torch.randn_like(y), [1] * dims
    label = f"n{batch} c{channels} s{side} k{how[0]} st{how[1]} d{dims}"
    forward_us = kernel_us(lambda: run(x, filter_, stride, padding))
    backward_us = kernel_us(lambda: back(gradient, x, filter_, stride, padding, ones, False, places))
    return [
        ("max pool forward", str(dtype)[6:], label, forward_us),
        ("max pool backward", str(dtype)[6:], label, backward_us),
    ]


def sums(parts: int, rows: int, columns: int) -> list[Row]:
    """Time the sum of a few parts, as behind reduce-scatters that are exchanges, and one that streams."""
    x = torch.randn(parts, rows, columns, device=DEVICE, dtype=torch.bfloat16)
    label = f"{parts} x {rows} x {columns}"
    calls: dict[str, Call] = {"sum over the first dimension": lambda: x.sum(0), "stream: scale": lambda: x * 2}
    return [(name, "bfloat16", label, kernel_us(call)) for name, call in calls.items()]


def parts_of_rows(rows: int, columns: int) -> list[Row]:
    """Time element-wise kernels over the first half of each row, as of a gated unit's input, and over whole tensors."""
    x = torch.randn(rows, columns, device=DEVICE, dtype=torch.bfloat16)
    half = x[:, : columns // 2]
    whole, chosen = half.contiguous(), half > 0
    calls: dict[str, Call] = {
        "clamp of parts of rows": lambda: half.clamp(max=LIMIT),
        "comparison of parts of rows": lambda: half <= LIMIT,
        "selection of parts of rows": lambda: torch.where(chosen, half, 0.0),
        "clamp": lambda: whole.clamp(max=LIMIT),
    }
    label = f"{rows} x {columns // 2} of {columns}"
    return [(name, "bfloat16", label, kernel_us(call)) for name, call in calls.items()]


def held(name: str, dtype: str, label: str, call: Call) -> Row:
    """Time calls on a device that has rested, and held for seconds, with its power [W], clock [MHz], temperature."""
    import pynvml  # type: ignore[import-not-found]

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    once_us = _calls_us(call, 3)
    time.sleep(REST_S)
    cool_us = _calls_us(call, max(2, int(1e3 * BURST_MS / once_us)))
    begin, windows = time.monotonic(), list[float]()
    while time.monotonic() - begin < HELD_S:
        windows.append(_calls_us(call, max(2, int(1e5 / once_us))))
    for _ in range(max(2, int(1e5 / once_us))):
        call()
    time.sleep(0.05)  # while these run
    watts = pynvml.nvmlDeviceGetPowerUsage(device) // 1000
    clock = pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM)
    celsius = pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)
    torch.cuda.synchronize()
    held_us = statistics.median(windows[-max(3, len(windows) // 4) :])
    return name, dtype, label, f"{cool_us:.2f}", f"{held_us:.2f}", watts, clock, celsius


def attention_rows(program: str) -> list[Row]:
    """Time causal attention and its gradient, by the program that is set."""
    sizes, run = (2, 32, 8192, 128), torch.nn.functional.scaled_dot_product_attention
    of = [torch.randn(sizes, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    query, key, value = (one.detach() for one in of)
    out = run(of[0], of[1], of[2], is_causal=True)
    gradient, label = torch.randn_like(out), f"{'x'.join(map(str, sizes))} causal"
    calls: dict[str, Call] = {
        "forward": lambda: run(query, key, value, is_causal=True),
        "backward": lambda: torch.autograd.grad(out, of, gradient, retain_graph=True),
    }
    return [held(f"attention {name}, {program}", "bf16", label, call) for name, call in calls.items()]


def held_rows() -> list[Row]:
    """Time products, attention and a copy, cool and held."""
    rows: list[Row] = []
    one = torch.ones((), device=DEVICE)
    for m, n, k in PRODUCTS[torch.bfloat16]:
        x, w = (torch.randn(side, k, device=DEVICE, dtype=torch.bfloat16) for side in (m, n))
        rows.append(held("product", "bf16", f"{m}x{n}x{k}", lambda x=x, w=w: x @ w.t()))  # type: ignore[misc]
    for (m, n, k), fast in itertools.product(PRODUCTS[torch.float8_e4m3fn], (True, False)):
        x, w = (torch.randn(side, k, device=DEVICE).to(torch.float8_e4m3fn) for side in (m, n))
        name = "product, sums not moved" if fast else "product, sums moved"
        call = lambda x=x, w=w, fast=fast: torch._scaled_mm(  # noqa: E731
            x, w.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast
        )
        rows.append(held(name, "fp8", f"{m}x{n}x{k}", call))
    for backend, program in ((SDPBackend.FLASH_ATTENTION, "flash2"), (SDPBackend.CUDNN_ATTENTION, "cudnn")):
        with sdpa_kernel(backend):
            rows += attention_rows(program)
    x = torch.randn(2**29, device=DEVICE, dtype=torch.bfloat16)
    rows.append(held("copy", "bf16", "1 GiB", x.clone))
    return rows


def kernel_rows() -> list[Row]:
    """Time kernels of ResNet-50 and of CosmoFlow, sums of parts, and kernels over parts of rows."""
    half, rows = torch.float16, list[Row]()
    for batch in BATCHES:
        for sizes in dict.fromkeys((*RESNET, *OTHERS)):
            rows += convolution(batch, sizes, 2, half)
        for channels, side in NORMS:
            rows += norm(batch, channels, side, half)
        rows += pool(batch, 64, 112, 2, (3, 2, 1), half)
    for batch, (before, after, side) in itertools.product((1, 2, 4, 8), COSMOFLOW):
        rows += convolution(batch, (before, after, side, 3, 1), 3, half)
        rows += pool(batch, after, side, 3, (2, 2, 0), half)
    for parts, num_rows in itertools.product((4, 8), (4096, 16384, 131072)):
        rows += sums(parts, num_rows // parts, 8192)
    for num_rows in (4096, 16384, 65536):
        rows += parts_of_rows(num_rows, 5760)  # a gated unit's input in GPT-OSS
    return rows


def main(folder: Path) -> None:
    """Write both tables."""
    torch.backends.cudnn.benchmark = True
    for name, columns, rows in (
        ("held.csv", ("kernel", "dtype", "shape", "cool_us", "held_us", "watts", "sm_mhz", "celsius"), held_rows()),
        ("kernels.csv", ("kind", "dtype", "shape", "us"), kernel_rows()),
    ):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
