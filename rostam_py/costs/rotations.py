"""Transformer Engine's kernels that rotate queries and keys: element by element, which bounds them on fast memory.

Model: a thread loads an element, its partner and two entries of a table, 2 to 4 bytes at a time, so that a kernel takes
as long as its elements over a rate of each multiprocessor, if that is longer than its traffic takes.
Source: fused_rope_block_forward and fused_rope_block_backward in transformer_engine/common/fused_rope/fused_rope.cu of
NVIDIA/TransformerEngine, as they were up to 2025-12.
"""

# Elements that one multiprocessor rotates in a second, forward and backward. NVIDIA/TransformerEngine, pull request
# 2508 ("Tested on GB200", baseline): [4096, 1, 128, 128] takes 95 and 92 us, 2.86 and 2.93 TB/s, on 152 of them
# ([512, 32, 24, 128] reaches 2.55 and 2.85). With vectors, which that request adds, 67 and 57 us; whether a release has
# them is not known. Taken as it is for other devices, whose clocks are within some 10%: unverified.
_MEASURED = 4096 * 128 * 128 / 152
ROTATED_ELEMENTS_PER_S = {"forward": _MEASURED / 95e-6, "backward": _MEASURED / 92e-6}


def rotation_seconds(num_elements: float, multiprocessors: int, phase: str) -> float:
    """Return the least time [s] of such a kernel; 0 where no multiprocessors are known, so that traffic alone counts.

    Args: multiprocessors: of the device (Accelerator.multiprocessors). phase: forward or backward.
    """
    return num_elements / (ROTATED_ELEMENTS_PER_S[phase] * multiprocessors) if multiprocessors else 0.0
