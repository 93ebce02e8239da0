"""Which strategies a search considers: those of its space, with micro-batches that fill a pipeline where it names none.

Legend: m = micro-batches.
"""

import dataclasses
from collections.abc import Iterator

from rostam_py.errors import ConfigError
from rostam_py.plan.divisors import divisors
from rostam_py.plan.searched_axes import Site, Space
from rostam_py.plan.strategy import Strategy

# m as multiples of the pipeline's depth: a bubble of (pp - 1) / m is about 1, 1/2, 1/4, 1/8 of the work.
MICROBATCHES_PER_STAGE = (1, 2, 4, 8)


def candidates(base: Strategy, site: Site, space: Space) -> Iterator[Strategy]:
    """Yield the strategies of a space on all accelerators that divide the batch.

    A micro-batch that the space leaves open stays so without a pipeline: the largest that fits in memory.
    Args: base: with neutral axes.
    """
    for strategy in space.strategies(base, site):
        local = site.batch // strategy.dp
        for micro_batch in _micro_batches(strategy, local):
            made = dataclasses.replace(strategy, micro_batch=micro_batch)
            try:
                made.batches(site.batch)
            except ConfigError as error:
                space.leave_out(str(error))
                continue
            yield made


def _micro_batches(strategy: Strategy, local: int) -> list[int | None]:
    pp = strategy.pp
    if strategy.micro_batch is not None or pp == 1:
        return [strategy.micro_batch]
    counts = {pp * factor for factor in MICROBATCHES_PER_STAGE if local % (pp * factor) == 0}
    if not counts:  # too few samples to fill the pipeline, or an odd number of them
        counts = {max(m for m in divisors(local) if m <= max(local, pp))}
    return [local // m for m in sorted(counts)]
