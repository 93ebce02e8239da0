"""ZB-H1: 1F1B whose weight gradients wait for the bubbles."""

from rostam_py.placement.schedule import Schedule, in_turn
from rostam_py.plan.program import Program


class ZeroBubbleH1(Schedule):
    """1F1B with weight gradients (W) apart from input gradients (B), stage r running W r micro-batches behind B.

    Model: with equal stages, free communication, F = B = W and m >= 2 p the bubble is (p - 1) (F + B - W), that of 1F1B
        (p - 1) (F + B + W). No stage holds more than p micro-batches, those that wait for W alone included. One stage
        has no bubble: its backwards stay whole, as in 1F1B.
    Source: Qi et al. 2023 (arXiv 2401.10241), section 3.
    """

    splits_backward = True

    def program(self, stage: int, num_stages: int, num_microbatches: int, num_chunks: int) -> Program:
        """Return what a stage runs."""
        if not self.splits(num_stages):
            return in_turn(0, num_microbatches)
        return in_turn(min(num_stages - stage - 1, num_microbatches), num_microbatches, min(stage, num_microbatches))
