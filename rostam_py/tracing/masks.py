"""What a FlexAttention mask keeps: a function of positions is asked, block lists of fake tensors tell nothing."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

_ROWS = 64  # queries that are asked, evenly spread from the first to the last


def kept_positions(mask_mod: Callable[..., Any], num_queries: int, num_keys: int) -> int | None:
    """Return how many keys up to its own position each query sees: all of them are causal attention, fewer a window.

    Model: the mask is asked for all keys of up to 64 queries, in sample 0 and head 0.
    Returns: None for any other mask, one that reads data, and unequal numbers of queries and keys.
    """
    if num_queries != num_keys:
        return None
    with torch._C._DisableTorchDispatch(), no_dispatch():
        rows = torch.linspace(0, num_queries - 1, min(_ROWS, num_queries), dtype=torch.float64).round().long()[:, None]
        keys = torch.arange(num_keys)[None]
        zero = torch.zeros((), dtype=torch.int64)
        try:
            kept = torch.as_tensor(mask_mod(zero, zero, rows, keys)).broadcast_to(len(rows), num_keys)
            window = int(kept[-1].sum())
            is_band = torch.equal(kept, (keys <= rows) & (keys > rows - window))
        except (RuntimeError, TypeError, ValueError):  # it reads tensors of the trace, or branches on positions
            return None
    return window if is_band and window else None
