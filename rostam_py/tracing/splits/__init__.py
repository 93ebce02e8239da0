"""Legal splits of ATen calls: one rule a family of ops, in tables by op name.

A rule sees shapes only. The pairing of two traces turns its sizes into Affine ones, and names every
axis whose size depends on the batch "sample".
"""

from rostam_py.tracing.splits.call import RawPart, RawSplit, SplitCall
from rostam_py.tracing.splits.table import find_splits

__all__ = ["RawPart", "RawSplit", "SplitCall", "find_splits"]
