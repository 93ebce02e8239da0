"""What the fake device says it is, by the accelerator's name."""

from rostam_py.capturing.request import Gpu
from rostam_py.costs.accelerators import ACCELERATORS, get_accelerator
from rostam_py.errors import ConfigError

# Family -> compute capability, which programs choose kernels by. Source: NVIDIA's CUDA C++ Programming Guide.
_CAPABILITIES = {
    "v100": (7, 0), "a100": (8, 0), "h100": (9, 0), "h200": (9, 0), "gh200": (9, 0), "b200": (10, 0), "gb200": (10, 0),
    "b300": (10, 3), "gb300": (10, 3),
}  # fmt: skip


def gpu_of(name: str) -> Gpu:
    """Return the device of an accelerator. Raises: ConfigError for one that is no GPU of NVIDIA, or not known."""
    accelerator = get_accelerator(name)
    family = accelerator.name.partition("_")[0]
    if family not in _CAPABILITIES:
        known = [one for one in ACCELERATORS if one.partition("_")[0] in _CAPABILITIES]
        raise ConfigError(f"gpu is {name!r}; capture has a device of CUDA, and takes one of: {', '.join(known)}")
    return Gpu(
        name=f"NVIDIA {accelerator.name.replace('_', ' ').upper()}", memory_bytes=accelerator.memory_bytes,
        capability=_CAPABILITIES[family], num_sms=accelerator.multiprocessors,
    )  # fmt: skip
