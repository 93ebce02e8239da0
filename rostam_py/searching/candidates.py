"""Candidates: which strategies a search considers, cheapest bound first.

Legend: N = accelerators, B = global batch, m = micro-batches.
"""

import dataclasses
from collections.abc import Iterator

from rostam_py.convergence import Curve
from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy

# m as multiples of the pipeline's depth: a bubble of (pp - 1) / m is about 1, 1/2, 1/4, 1/8 of the work.
MICROBATCHES_PER_STAGE = (1, 2, 4, 8)

# Algorithm 1 splits an op into parts of about 10 us, so that more devices find little to do; the paper's figures 6
# and 7 stop at 16, and placing takes time in proportion.
MAX_MODEL_PARALLEL = 32


def default_batches(curve: Curve) -> tuple[int, ...]:
    """Return the powers of two inside a curve's measured range [samples], or its smallest batch if there is none."""
    low, high = curve.sample_range
    found = [2**k for k in range(high.bit_length()) if low <= 2**k <= high]
    return tuple(found) or (low,)


def check_batches(batches: tuple[int, ...], curve: Curve | None, extrapolate: bool) -> None:
    """Raise ConfigError for batches that are no counts, or lie outside the curve unless ``extrapolate``."""
    for batch in batches:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise ConfigError(f"batches holds {batch!r}; it must be integers >= 1")
        if curve is not None:
            curve.iterations(batch, extrapolate=extrapolate)
    if not batches:
        raise ConfigError(
            "batches is empty; name global batches, or a convergence curve, whose measured ones are taken"
        )


def divisors(count: int) -> list[int]:
    """Return the divisors of a count, ascending."""
    return [d for d in range(1, count + 1) if count % d == 0]


def megatron_strategies(base: Strategy, num_accelerators: int, batch: int) -> Iterator[Strategy]:
    """Yield every (dp, tp, pp, micro_batch) on all accelerators that divides the batch.

    Without a pipeline the micro-batch is left open: the largest that fits in memory.
    """
    for tp in divisors(num_accelerators):
        for pp in divisors(num_accelerators // tp):
            dp = num_accelerators // (tp * pp)
            if batch % dp:
                continue
            for micro_batch in _micro_batches(base, pp, batch // dp):
                yield dataclasses.replace(base, placer="megatron", dp=dp, tp=tp, pp=pp, micro_batch=micro_batch)


def sip_ml_strategies(base: Strategy, num_accelerators: int, batch: int) -> Iterator[Strategy]:
    """Yield every (dp, mp) on all accelerators that divides the batch, mp up to MAX_MODEL_PARALLEL."""
    for mp in divisors(num_accelerators):
        if mp > MAX_MODEL_PARALLEL:
            break
        dp = num_accelerators // mp
        if batch % dp == 0:
            # Algorithm 1 runs a group's whole batch at once and keeps its activations.
            yield dataclasses.replace(
                base, placer="sip_ml", dp=dp, mp=mp, tp=1, pp=1, micro_batch=None, recompute="none"
            )


def _micro_batches(base: Strategy, pp: int, local: int) -> list[int | None]:
    if base.micro_batch is not None:
        return [base.micro_batch] if local % base.micro_batch == 0 else []
    if pp == 1:
        return [None]
    counts = {pp * factor for factor in MICROBATCHES_PER_STAGE if local % (pp * factor) == 0}
    if not counts:  # too few samples to fill the pipeline, or an odd number of them
        counts = {max(m for m in divisors(local) if m <= max(local, pp))}
    return [local // m for m in sorted(counts)]


def largest_micro_batch(local: int, limit: int) -> int | None:
    """Return the largest divisor of ``local`` that is at most ``limit``, None if there is none."""
    return max((d for d in divisors(local) if d <= limit), default=None)
