"""Sizes: which buffers a size sweep runs, in whole elements, as nccl-tests counts them.

Example:
    sizes_between(8, 1024, 2)                               # [8, 16, ..., 1024]
    whole_elements("all_gather", 1000, 4, num_ranks=8)      # (896, 28): 28 elements of each rank
"""

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError

# Bytes of an element, by the names that nccl-tests have for NCCL's data types (src/common.cu, test_typenames).
ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8,
    "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip
# Where every rank has a part of the buffer, and how many bytes a part is a multiple of: nccl-tests'
# src/reduce_scatter.cu (ReduceScatterGetCollByteCount), and those of all_gather and alltoall.
_IN_PARTS = ("reduce_scatter", "all_gather", "all_to_all")
_PART_BYTES = 16


def sizes_between(begin: int, end: int, factor: int) -> list[int]:
    """Return begin, begin x factor, ... up to end [bytes].

    Raises: ConfigError naming the key of ``sizes`` that is wrong.
    """
    if begin < 1:
        raise ConfigError(f"sizes.begin is {begin} B; it must be >= 1 B")
    if end < begin:
        raise ConfigError(f"sizes.end is {end} B; it must be >= sizes.begin, which is {begin} B")
    if not is_integer(factor) or factor < 2:
        raise ConfigError(f"sizes.factor is {factor!r}; it must be an integer >= 2")
    sizes = [begin]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * int(factor))
    return sizes


def whole_elements(collective: str, num_bytes: int, element_bytes: int, *, num_ranks: int) -> tuple[int, int]:
    """Return the bytes of whole elements that fit a size, and the count that a rank hands to NCCL.

    Model: reduce_scatter, all_gather and all_to_all split the buffer into a part of each rank, of a multiple of 16
        bytes, and count the elements of a part; other collectives count those of the buffer.
    Returns: (bytes, elements); zeros where not one element fits.
    """
    if collective in _IN_PARTS:
        part = num_bytes // num_ranks // _PART_BYTES * _PART_BYTES
        return part * num_ranks, part // element_bytes
    count = num_bytes // element_bytes
    return count * element_bytes, count
