"""Splits of matrix products: rows of A ("feature"), columns of B ("column"), the inner dim ("row").

The bias of an addmm split along the inner dim stays WHOLE and must be added by one member only, so
that the output's partial sums add up.
"""

from rostam_py.graph import PARTIAL, WHOLE
from rostam_py.tracing.splits.call import RawSplit, SplitCall


def mm(call: SplitCall) -> list[RawSplit]:
    """A (M, K) times B (K, N)."""
    (m, k), (_, n) = call.inputs[0], call.inputs[1]
    return _kept(
        RawSplit("feature", (0, WHOLE), (0,), m),
        RawSplit("column", (WHOLE, 1), (1,), n),
        RawSplit("row", (1, 0), (PARTIAL,), k),
    )


def addmm(call: SplitCall) -> list[RawSplit]:
    """bias + A (M, K) times B (K, N)."""
    bias, (m, k), (_, n) = call.inputs[0], call.inputs[1], call.inputs[2]
    bias_m = 0 if len(bias) == 2 and bias[0] == m else WHOLE
    bias_n = len(bias) - 1 if bias and bias[-1] == n else WHOLE
    return _kept(
        RawSplit("feature", (bias_m, 0, WHOLE), (0,), m),
        RawSplit("column", (bias_n, WHOLE, 1), (1,), n),
        RawSplit("row", (WHOLE, 1, 0), (PARTIAL,), k),
    )


def bmm(call: SplitCall) -> list[RawSplit]:
    """A (G, M, K) times B (G, K, N), G independent products."""
    (g, m, k), (_, _, n) = call.inputs[0], call.inputs[1]
    return _kept(
        RawSplit("head", (0, 0), (0,), g),
        RawSplit("feature", (1, WHOLE), (1,), m),
        RawSplit("column", (WHOLE, 2), (2,), n),
        RawSplit("row", (2, 1), (PARTIAL,), k),
    )


def baddbmm(call: SplitCall) -> list[RawSplit]:
    """bias + A (G, M, K) times B (G, K, N)."""
    bias, (g, m, k), (_, _, n) = call.inputs[0], call.inputs[1], call.inputs[2]

    def own(dim: int, size: int) -> int | None:
        place = dim - (3 - len(bias))
        return place if place >= 0 and bias[place] == size else WHOLE

    return _kept(
        RawSplit("head", (own(0, g), 0, 0), (0,), g),
        RawSplit("feature", (own(1, m), 1, WHOLE), (1,), m),
        RawSplit("column", (own(2, n), WHOLE, 2), (2,), n),
        RawSplit("row", (WHOLE, 2, 1), (PARTIAL,), k),
    )


def grouped_mm(call: SplitCall) -> list[RawSplit]:
    """Rows sorted by group: A (S, K) with B (G, K, N), or A (M, S) with B (S, N) grouped along S, to (G, M, N).

    Members of a "feature" split of the rows hold rows of every group, members of an "expert" split whole groups.
    """
    a, b, y = call.inputs[0], call.inputs[1], call.outputs[0]
    if (len(a), len(b)) == (2, 3):
        return _kept(
            RawSplit("feature", call.dims({0: 0}), (0,), a[0]),
            RawSplit("expert", call.dims({0: 0, 1: 0, 2: 0}), (0,), b[0]),
            RawSplit("column", call.dims({1: 2}), (1,), b[2]),
            RawSplit("row", call.dims({0: 1, 1: 1}), (PARTIAL,), b[1]),
        )
    if (len(a), len(b)) == (2, 2):
        return _kept(
            RawSplit("feature", call.dims({0: 1, 1: 0}), (PARTIAL,), b[0]),
            RawSplit("expert", call.dims({0: 1, 1: 0, 2: 0}), (0,), y[0]),
            RawSplit("column", call.dims({1: 1}), (2,), b[1]),
            RawSplit("row", call.dims({0: 0}), (1,), a[0]),
        )
    return []


def mv(call: SplitCall) -> list[RawSplit]:
    """A (M, K) times v (K,)."""
    m, k = call.inputs[0]
    return _kept(RawSplit("feature", (0, WHOLE), (0,), m), RawSplit("row", (1, 0), (PARTIAL,), k))


def dot(call: SplitCall) -> list[RawSplit]:
    """u (K,) times v (K,)."""
    return _kept(RawSplit("row", (0, 0), (PARTIAL,), call.inputs[0][0]))


def _kept(*splits: RawSplit) -> list[RawSplit]:
    return [split for split in splits if split.size > 1]
