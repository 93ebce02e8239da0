"""Gradient: what a stage reduces of one parameter."""

from dataclasses import dataclass

ALL_DATA = "dp"


@dataclass(frozen=True, slots=True)
class Gradient:
    """A parameter's gradient on one stage: the tensors it is summed from and its local bytes.

    summed_group: tp groups whose members hold summands of it. tied_group: stages that hold the parameter too.
    num_parameters: local ones. weight_bytes: of these, as they are gathered. unit: with which its weights are gathered
    (ZeRO 3), else -1. data_group: replicas that sum it, "" where there is one.
    """

    name: str
    leaves: tuple[int, ...]
    num_bytes: int
    tied_group: str = ""
    summed_group: str = ""
    num_parameters: int = 0
    weight_bytes: int = 0
    unit: int = -1
    data_group: str = ALL_DATA
