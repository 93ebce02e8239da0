"""Which (dp, mp) a search considers."""

import dataclasses
from collections.abc import Iterator

from rostam_py.plan.divisors import divisors
from rostam_py.plan.searched_axes import Space
from rostam_py.plan.strategy import Strategy

# Algorithm 1 splits an op into parts of about 10 us, so that more devices find little to do; the paper's figures 6
# and 7 stop at 16, and placing takes time in proportion.
MAX_MODEL_PARALLEL = 64


def candidates(base: Strategy, num_accelerators: int, batch: int, space: Space | None = None) -> Iterator[Strategy]:
    """Yield every (dp, mp) on all accelerators that divides the batch, mp up to MAX_MODEL_PARALLEL.

    Args: space: its values of dp hold, where it names some.
    """
    for mp in divisors(num_accelerators):
        if mp > MAX_MODEL_PARALLEL:
            break
        dp = num_accelerators // mp
        if batch % dp == 0 and (space is None or space.takes_dp(dp)):
            # Algorithm 1 runs a group's whole batch at once and keeps its activations.
            yield dataclasses.replace(base.recomputing("none"), dp=dp, mp=mp, tp=1, pp=1, micro_batch=None)
