"""Kernels that PyTorch's compiler makes of torchao's scales for each row: they compute a scale for each element.

Model: the scale of a row is a power of 2 below 448 over its largest value, which torchao computes in 64 bits. Compiled,
it is a part of whatever kernel multiplies by it, element by element: a division in 64 bits, a logarithm, a power and a
division in 32, so that the kernel's instructions bound it. Each multiprocessor issues 4 x 32 of them a cycle.
Source: amax_to_scale in torchao/float8 of pytorch/ao, 0.11; machine code that PyTorch 2.13 and Triton 3.4 make of a
block of torchtitan's for compute capability 9.0 (cuobjdump -sass): 142 to 162 instructions for each element that a
kernel finds rows' largest values of and casts, 149 to 153 for each element of a product's gradient that it multiplies
by the two scales.
"""

_INSTRUCTIONS = 150.0  # for each element
# 128 a cycle at the clock of H100's peak: 989.4 TFLOP/s of 132 multiprocessors, 4,096 FLOPs a cycle (its whitepaper).
# Other devices' are within some 10%: unverified, as is that a limit of power lowers it.
_INSTRUCTIONS_PER_S = 128 * 1.83e9


def row_scaled_seconds(num_elements: float, multiprocessors: int) -> float:
    """Return the least time [s] of such a kernel; 0 where no multiprocessors are known, so that traffic alone counts.

    Args: multiprocessors: of the device (Accelerator.multiprocessors).
    """
    return num_elements * _INSTRUCTIONS / (_INSTRUCTIONS_PER_S * multiprocessors) if multiprocessors else 0.0
