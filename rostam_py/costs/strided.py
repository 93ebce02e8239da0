"""Eager PyTorch's element-wise kernels over parts of rows: they compute each element's address, which bounds them.

Model: where an operand is a part of each row (a half of a gated unit's input), TensorIterator's kernel is neither
vectorized nor linear in memory, and takes as long as its elements over a rate of each multiprocessor, if that is longer
than its traffic takes.
"""

# Elements that one multiprocessor works off in a second. Measured by ourselves once (one H100 of 132 of them, PyTorch
# 2.11, CUDA 13.0, torch.profiler), and no table of it was kept: parts_of_rows in calibration/on_gpu.py measures it
# again; kernels_h100_own.csv is older and has no such rows. A clamp of half of rows of 5,760 values of bf16 takes 537
# us of 65,536 rows and 136 us of 16,384: 2.66e9. In the same runs comparisons of such a half took 0.68 of that,
# torch.where with one 1.30: the middle one stands for all. Taken as it is for other devices, whose clocks are within
# some 10%: unverified.
STRIDED_ELEMENTS_PER_S = 2.66e9


def is_clamp(op_type: str) -> bool:
    """Tell whether an op holds what it reads within bounds."""
    return op_type.startswith("aten.clamp")


def strided_seconds(num_elements: float, multiprocessors: int) -> float:
    """Return the least time [s] of such a kernel; 0 where no multiprocessors are known, so that traffic alone counts.

    Args: multiprocessors: of the device (Accelerator.multiprocessors).
    """
    return num_elements / (STRIDED_ELEMENTS_PER_S * multiprocessors) if multiprocessors else 0.0
