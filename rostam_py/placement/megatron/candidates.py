"""Which (dp, tp, pp, micro_batch) a search considers; cp is what the strategy says, virtual stages where they fit.

Legend: m = micro-batches.
"""

import dataclasses
from collections.abc import Iterator

from rostam_py.plan.divisors import divisors
from rostam_py.plan.strategy import Strategy

# m as multiples of the pipeline's depth: a bubble of (pp - 1) / m is about 1, 1/2, 1/4, 1/8 of the work.
MICROBATCHES_PER_STAGE = (1, 2, 4, 8)


def candidates(base: Strategy, num_accelerators: int, batch: int) -> Iterator[Strategy]:
    """Yield every (dp, tp, pp, micro_batch) on all accelerators that divides the batch.

    Without a pipeline the micro-batch is left open: the largest that fits in memory.
    """
    if num_accelerators % base.cp:
        return
    parts = num_accelerators // base.cp
    for tp in divisors(parts):
        for pp in divisors(parts // tp):
            dp = parts // (tp * pp)
            if batch % dp or (dp * base.cp) % base.ep:
                continue
            chunks = base.virtual_stages if pp > 1 else 1
            for micro_batch in _micro_batches(base, pp, batch // dp):
                if chunks > 1 and micro_batch is not None and batch // dp // micro_batch % pp:
                    continue
                is_split = base.sequence_parallel and tp > 1
                yield dataclasses.replace(
                    base, dp=dp, tp=tp, pp=pp, micro_batch=micro_batch, sequence_parallel=is_split,
                    virtual_stages=chunks, tp_overlap=base.tp_overlap and is_split,
                )  # fmt: skip


def _micro_batches(base: Strategy, pp: int, local: int) -> list[int | None]:
    if base.micro_batch is not None:
        return [base.micro_batch] if local % base.micro_batch == 0 else []
    if pp == 1:
        return [None]
    counts = {pp * factor for factor in MICROBATCHES_PER_STAGE if local % (pp * factor) == 0}
    if not counts:  # too few samples to fill the pipeline, or an odd number of them
        counts = {max(m for m in divisors(local) if m <= max(local, pp))}
    return [local // m for m in sorted(counts)]
