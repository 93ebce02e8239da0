"""Context parallelism: the part of a model that each of c ranks runs, which share its sequences.

Example:
    part = split_sequences(graph, 4)
    part.graph                             # as one rank sees it: every op on a quarter of the rows
"""

from rostam_py.placement.context.part import SequencePart, split_sequences

__all__ = ["SequencePart", "split_sequences"]
