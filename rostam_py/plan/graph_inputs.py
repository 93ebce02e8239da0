"""How an iteration's inputs get to where forward reads them, by name (MODEL B7)."""

from typing import NamedTuple


class GraphInputs(NamedTuple):
    """Kernels in front of a micro-batch's forward.

    is_copied: each input is copied into a tensor of a captured graph's own. is_widened: what forward reads first comes
    in 2 bytes an element, and a kernel makes what the model takes of it.
    """

    what: str
    is_copied: bool = False
    is_widened: bool = False


READ_IN_PLACE = "in_place"
GRAPH_INPUTS = {
    READ_IN_PLACE: GraphInputs("read where they arrive"),
    "copied": GraphInputs("each copied into a captured graph's own tensor", is_copied=True),
    "widened": GraphInputs(
        "what forward reads first arrives in 2 bytes an element, of which a kernel makes the model's (a logarithm, a"
        " normalization); then each is copied into a captured graph's own tensor",
        is_copied=True, is_widened=True,
    ),
}  # fmt: skip
