"""Layouts: how tensors lie over the parts of the op that made them, and what a partition says of ops and tensors.

Example:
    Layout(dim=0, parts=4)                     # each of four parts has a quarter of the rows
    relation_of(Layout(0, 4), WHOLE, parts=4)  # "all": a sub-op that wants all of it reads every part
"""

from dataclasses import dataclass, field

from rostam_py.errors import InternalError
from rostam_py.graph import WHOLE, Op, Split

SLICES = -3  # parts hold disjoint slices along no dimension that a split can name
ALIGNED, ALL, EXCHANGE, SAME_PART = "aligned", "all", "exchange", "same_part"


@dataclass(frozen=True, slots=True)
class Layout:
    """dim: WHOLE (every part has a copy), PARTIAL (a summand), SLICES or a dimension. parts: how many."""

    dim: int | None
    parts: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sub-ops of one op need of one tensor.

    source: the tensor a computing op made, seen through views. relation: ALIGNED (sub-op j of n the parts
        that overlap [j/n, (j+1)/n)), ALL (every sub-op the whole tensor), EXCHANGE (every sub-op 1/n of each
        part), SAME_PART (sub-op j part j). is_summed: the parts read are those of the tensor's sum.
    num_bytes: of what is read, at the batch, in the traced dtype.
    key: names what is read: readings with one key, relation and number of sub-ops read the same bytes.
    """

    source: int
    relation: str
    num_bytes: float
    is_summed: bool
    key: str


@dataclass(frozen=True, slots=True)
class Share:
    """How one op is shared: among ``parts`` sub-ops by ``split``, or (``is_partial``) summand by summand."""

    parts: int
    split: Split | None = None
    is_partial: bool = False


@dataclass(slots=True)
class Partition:
    """The outcome for one graph, batch and group size.

    shares: per op, None for views. layouts: computed tensor -> as its producer leaves it. sums: tensor with
        partial parts -> its layout once added up. parameters: name -> layout. gradients: name -> how the gradient
        is made, in the parameter's dimensions. readings: per op.
    """

    shares: list[Share | None]
    layouts: dict[int, Layout] = field(default_factory=dict)
    sums: dict[int, Layout] = field(default_factory=dict)
    parameters: dict[str, Layout] = field(default_factory=dict)
    gradients: dict[str, Layout] = field(default_factory=dict)
    readings: list[tuple[Reading, ...]] = field(default_factory=list)
    num_unsplit: int = 0

    def share(self, op: int) -> Share:
        """Return how a computing op is shared."""
        share = self.shares[op]
        if share is None:
            raise InternalError(f"op {op} only changes how a tensor is seen; it has no share")
        return share


def plain_splits(op: Op) -> list[Split]:
    """Return the splits after which parts are slices, which is all that a Layout can say."""
    return [split for split in op.splits if not split.has_parts]


def relation_of(held: Layout, want: int | None, parts: int) -> str:
    """Return how ``parts`` sub-ops that want ``want`` (WHOLE or a dimension) read a tensor that lies as ``held``."""
    if held.dim is WHOLE and held.parts == parts:
        return SAME_PART if want is WHOLE else ALIGNED
    if want is WHOLE:
        return ALL
    return ALIGNED if held.dim == want else EXCHANGE
