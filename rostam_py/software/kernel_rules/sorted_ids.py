"""Ids of spread embedding tables are sorted, and distinct ones told, in front of their gradients.

Source: a pass of a radix sort by 8 bits reads and writes a key and its place, 4 bytes each (Adinets and Merrill 2022,
    arXiv 2206.01784: one pass over memory for each digit, one more for all histograms); then equal ones are marked
    (8 bytes read, 8 written), numbered by a scan (8, 8) and written down (8, 8): HugeCTR's
    embedding/operators/index_calculation.cu, SegmentdUnique.
"""

import math

from rostam_py.costs.families import MAP
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule

_DIGIT_BITS, _PASS_BYTES, _HISTOGRAM_BYTES, _DISTINCT_BYTES = 8, 8.0, 4.0, 24.0  # of each id


class SortedIds(KernelRule):
    """The kernels that sort the ids of spread tables and tell distinct ones."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the kernels."""
        found = []
        for op in ops:
            ids, num_rows = self.local.sorted_ids(op)
            if ids:
                passes = math.ceil(math.log2(num_rows) / _DIGIT_BITS)
                found.append(self.local.apart(op, "digits counted", MAP, _HISTOGRAM_BYTES * ids, 0.0))
                size = _PASS_BYTES * ids
                found += [self.local.apart(op, "ids sorted by a digit", MAP, size, size)] * passes
                size = _DISTINCT_BYTES * ids
                found.append(self.local.apart(op, "distinct ids", MAP, size, size))
        return found
