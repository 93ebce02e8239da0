"""Auto: the program that a job of this kind would most likely run."""

from dataclasses import dataclass

from rostam_py.costs.precision import get_precision
from rostam_py.plan.strategy import Strategy
from rostam_py.software.names import STACKS
from rostam_py.software.stack import Stack

_DEGREES = ("tp", "pp", "cp", "ep")
_FSDP = 3
_NARROW = ("fp8", "mxfp8", "nvfp4")


@dataclass(kw_only=True)
class Auto(Stack):
    """megatron_core for language models split by tp, pp, cp or ep; pytorch otherwise; ideal where no program is known.

    Model: weights sharded by FSDP (strategy.shard=3) are PyTorch's, however the rest is split; a distributed optimizer
        (shard 1 or 2) and products of 8 and 4 bits without FSDP are Megatron-Core's. None is known of the placer
        sip_ml, of cost=constant, and of accelerators that run no CUDA. A search, whose candidates are split in any way,
        compares all of them by one program.
    """

    SOURCES = "own: what most published jobs with these degrees run"

    def chosen(
        self, strategy: Strategy, precision: str, *, is_of_language: bool, is_known: bool, is_searched: bool
    ) -> Stack:
        """Return the program that a strategy takes. Args: precision: of training.

        Args: is_known: cost, accelerator and placer are those of programs that are known.
        """
        if not is_known:
            return self._made("ideal")
        if not is_of_language or (strategy.shard == _FSDP and not is_searched):
            return self._made("pytorch")
        is_split = strategy.sequence_parallel or any(getattr(strategy, key) > 1 for key in _DEGREES)
        is_narrow = get_precision(precision).matrix_peak in _NARROW
        is_megatrons = is_split or is_searched or strategy.shard > 0 or is_narrow
        return self._made("megatron_core" if is_megatrons else "pytorch")

    def _made(self, name: str) -> Stack:
        found: Stack = STACKS.get(name)(rules=self.rules)
        return found
