"""GPipe: all forwards, then all backwards."""

from rostam_py.placement.schedule import Schedule, in_turn
from rostam_py.plan.program import Program


class GPipe(Schedule):
    """All forwards, then all backwards.

    Model: with equal stages and free communication m micro-batches on p stages last (m + p - 1) (F + B), a bubble of
        (p - 1) / m of the work; a stage holds the activations of all of them.
    Source: Huang et al. 2019.
    """

    def program(self, stage: int, num_stages: int, num_microbatches: int, num_chunks: int) -> Program:
        """Return what a stage runs; without a pipeline a micro-batch's backward follows its forward."""
        return in_turn(num_microbatches if num_stages > 1 else 0, num_microbatches)
