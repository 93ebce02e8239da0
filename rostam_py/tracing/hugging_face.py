"""What Hugging Face's transformers does otherwise under a tracer, set to what it does in a training run.

Its expert modules run by one of several backends: all are traced as the grouped one, one balanced product for all
experts. Its masks are left out where the program could know that nothing is masked, as in eager training.
Nothing is imported: where transformers is not loaded, no module of it can be traced.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from rostam_py.tracing.balance import BalancedMode, knows

_EXPERTS = "transformers.integrations.moe"
_MASKS = "transformers.masking_utils"


@contextlib.contextmanager
def as_in_training(mode: BalancedMode) -> Iterator[None]:
    """Trace transformers' modules as they train, while the context lasts."""
    with contextlib.ExitStack() as stack:
        experts = sys.modules.get(_EXPERTS)
        if experts is not None and hasattr(experts, "ALL_EXPERTS_FUNCTIONS"):
            run = _with_capacity(experts.grouped_mm_experts_forward, mode)
            interface = type(experts.ALL_EXPERTS_FUNCTIONS)
            stack.enter_context(mock.patch.object(interface, "get_interface", return_value=run))
            stack.enter_context(mock.patch.object(experts, "_grouped_mm", _grouped_mm))
        masks = sys.modules.get(_MASKS)
        if masks is not None and hasattr(masks, "is_tracing"):
            stack.enter_context(mock.patch.object(masks, "is_tracing", _is_tracing))
        yield


def _grouped_mm(rows: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(rows.to(weight.dtype), weight, offs=offs)


def _is_tracing(tensor: Any = None) -> bool:
    return torch.compiler.is_compiling() or (isinstance(tensor, torch.Tensor) and not knows(tensor))


def _with_capacity(forward: Any, mode: BalancedMode) -> Any:
    """Return the experts' forward on as many rows as their capacity holds: padded, or dropped."""
    capacity_factor = mode.capacity_factor
    if capacity_factor in (None, 1):
        return forward

    def run(self: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        mode.has_capacity = True
        num_tokens = hidden.shape[0]
        slots = torch.arange(round(num_tokens * capacity_factor)) % num_tokens
        rows = forward(self, hidden[slots], index[slots], weights[slots])
        kept = rows[:num_tokens]
        return kept if len(kept) == num_tokens else torch.nn.functional.pad(kept, (0, 0, 0, num_tokens - len(kept)))

    return run
