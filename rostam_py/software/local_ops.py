"""LocalOps: what a kernel rule sees of the ops of a sharded graph, as one device runs them.

Placement implements it (placement/kernels.py), so that rules lie below it.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from rostam_py.graph import Op, OperatorGraph
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.module_epilogues import Epilogues
from rostam_py.software.rules import Rules
from rostam_py.software.wide_ops import WideOps


class LocalOps(Protocol):
    """Ops on one device at one micro-batch; all bytes are its own, in the run's precision.

    multiprocessors: the device's, 0 where they are not known. wide: ops that compute in 32 bits. wide_factor: bytes of
    32 bits over those of the run's activations. rank_share: rows that ranks receive over those of their experts, where
    one goes to each rank; else 0.
    """

    graph: OperatorGraph
    batch: float
    rules: Rules
    multiprocessors: int
    rank_share: float

    @property
    def wide(self) -> WideOps: ...
    @property
    def wide_factor(self) -> float: ...
    @property
    def epilogues(self) -> Epilogues: ...
    @property
    def merged_sums(self) -> Collection[int]: ...
    @property
    def joint_forward(self) -> Sequence[tuple[int, ...]]: ...
    @property
    def fused_kinds(self) -> Sequence[str]: ...

    def apart(self, op: Op, what: str, op_type: str, read: float, written: float, launches: int = 1) -> KernelTime:
        """Return a kernel next to an op's, which moves so many bytes. Args: what: it does, for its name."""

    def tensor_bytes(self, tensor: int) -> float:
        """Return the bytes of a tensor."""

    def num_elements(self, tensor: int) -> float:
        """Return the elements of a tensor."""

    def held_share(self, tensor: int) -> float:
        """Return the part of a tensor that one member of a tensor-parallel group holds."""

    def read_bytes(self, ops: tuple[Op, ...], tensor: int) -> float:
        """Return the bytes that a kernel reads of a tensor: of what narrow products multiply their copies'."""

    def wide_read_bytes(self, ops: tuple[Op, ...], tensor: int) -> float:
        """Return the bytes that a kernel reads of a tensor as other kernels have it."""

    def readers_of(self, tensor: int) -> list[int]:
        """Return the ops that read a tensor or a view of it, views apart."""

    def is_loss(self, op: Op) -> bool:
        """Tell whether an op is of a loss that moves fp32."""

    def loss_factor(self, tensor: int) -> float:
        """Return how wide what a loss makes is, over an activation."""

    def leaves_loss(self, tensor: int) -> bool:
        """Tell whether others than the loss read what it makes."""

    def is_widened(self, tensor: int) -> bool:
        """Tell whether the loss reads in fp32 what an op next to it made in the run's precision: the logits."""

    def num_products(self, op: Op) -> int:
        """Return the products of one expert each that a device runs for a grouped product; 1 for other ops."""

    def sent_bytes(self, tensor: int) -> float:
        """Return the bytes of a tensor's rows that the busiest rank exchanges with the others."""

    def are_sent_rows(self, tensor: int) -> bool:
        """Tell whether a tensor is rows, not their weights, that are dispatched to experts or combined."""

    def sent_way(self, tensor: int) -> str:
        """Return "dispatch" or "combine" of rows that go to experts or back, "" of others."""

    def has_several_experts(self) -> bool:
        """Tell whether a device has several experts of one layer."""

    def sorted_ids(self, op: Op) -> tuple[float, int]:
        """Return the ids of spread tables that are sorted in front of an op, and how many they tell apart."""
