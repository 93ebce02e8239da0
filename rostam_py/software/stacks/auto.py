"""Auto: the program that a job of this kind would most likely run."""

from dataclasses import dataclass

from rostam_py.plan.strategy import Strategy
from rostam_py.software.stack import STACKS, Stack

_DEGREES = ("tp", "pp", "cp", "ep")


@dataclass(kw_only=True)
class Auto(Stack):
    """megatron_core for models of language split by tp, pp, cp or ep; pytorch otherwise; ideal where none is known.

    Model: none is known of the placer sip_ml, of cost=constant, and of accelerators that run no CUDA. A search, whose
        candidates are split in any way, compares all of them by one program.
    """

    SOURCES = "own: what most published jobs with these degrees run"

    def chosen(self, strategy: Strategy, *, is_of_language: bool, is_known: bool, is_searched: bool) -> Stack:
        """Return the program that a strategy takes.

        Args: is_known: cost, accelerator and placer are those of programs that are known.
        """
        if not is_known:
            return self._made("ideal")
        is_split = is_searched or strategy.sequence_parallel or any(getattr(strategy, key) > 1 for key in _DEGREES)
        return self._made("megatron_core" if is_split and is_of_language else "pytorch")

    def _made(self, name: str) -> Stack:
        found: Stack = STACKS.get(name)(rules=self.rules)
        return found
