"""What training code does to the buffer of gradients besides accumulating and reducing them, by name (MODEL B7)."""

from typing import NamedTuple


class GradientBuffer(NamedTuple):
    """Passes over a device's gradients in an iteration.

    is_zeroed: written with zeros before the first micro-batch, which adds to them as the others do.
    num_scalings: read and written again before they are reduced. num_checks: read before that. is_copied: each
    parameter's is copied into what is reduced, and back behind that, by kernels of its own.
    """

    what: str
    is_zeroed: bool = False
    num_scalings: int = 0
    num_checks: int = 0
    is_copied: bool = False


NO_BUFFER = "none"
GRADIENT_BUFFERS = {
    NO_BUFFER: GradientBuffer("nothing: the first micro-batch writes gradients, the collective averages them"),
    "zeroed": GradientBuffer(
        "zeroed once an iteration; averaged by the collective (Megatron-Core's average_in_collective)", is_zeroed=True
    ),
    "scaled": GradientBuffer(
        "zeroed, and divided by the replicas before they are reduced (Megatron-LM of 2021; Megatron-Core by default)",
        is_zeroed=True, num_scalings=1,
    ),
    "checked": GradientBuffer(
        "scaled, and their norm read before that (Megatron-LM by default, check_for_nan_in_loss_and_grad)",
        is_zeroed=True, num_scalings=1, num_checks=1,
    ),
    "copied": GradientBuffer(
        "each parameter's divided and copied into its bucket, and copied back after the reduction (PyTorch's DDP"
        " without gradient_as_bucket_view)",
        is_copied=True,
    ),
}  # fmt: skip
