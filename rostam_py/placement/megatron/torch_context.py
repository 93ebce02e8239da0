"""Attention by PyTorch's context_parallel: keys and values gathered at once, blocks merged in fp32, gradients shifted.

Legend: c ranks; L = bytes of local keys and values, and of their gradients, in 16 bits; O = of an output, or of the
gradient of queries.

Model: forward and backward join keys and values (L + L) and gather all ranks' (c L). Eager code has the first block's
attention during the gather; compiled code waits for what it sends where it sends it. Each of c kernels works on local
queries and one block. What it makes is merged in fp32: outputs by kernels behind all blocks but the first, gradients of
queries behind all. Gradients of keys and values are added to those that have come, joined in fp32 and shifted behind
every block, 2 L each time, the last time back to their owner. Compiled code merges, adds and joins in one kernel each,
eager code op by op. A block of later ranks' keys has half of the queries and all of its keys, one of earlier ranks' all
queries and half of the keys: the same work, counted as the second.
Source: _templated_ring_attention, its backward and _SDPAMerger in pytorch/pytorch, late 2024,
torch/distributed/tensor/experimental/_attention.py, with its defaults (rotate_method ALL_GATHER, convert_to_f32,
enable_load_balance); _maybe_wrap_tensor in torch/distributed/_functional_collectives.py, which waits at once under a
compiler.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from rostam_py.costs.precision import get_precision
from rostam_py.graph import Op
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.op_steps import OpStep


class TorchSteps:
    """Write the steps of one attention op.

    Args: group: label of the ranks that share a sequence.
    """

    def __init__(self, builder: KernelBuilder, kernel: Kernel, op: Op, degree: int, group: str) -> None:
        self.builder, self.kernel, self.op = builder, kernel, op
        self.degree, self.group = degree, group
        self.is_eager = not builder.rules.is_fused(op)
        self.wide = 4 / get_precision(builder.rules.precision).tensor_bytes  # fp32 over the run's precision
        self.steps: list[OpStep] = []

    def forward(self, keys: tuple[int, ...]) -> list[OpStep]:
        """Return the steps of an attention's forward. Args: keys: keys and values."""
        gather, size = self._gather(keys), self._bytes(self.op.outputs[:1])
        wide = self.wide * size
        for block in range(self.degree):
            self._block(block, gather)
            if self.is_eager:
                # To fp32; behind the first block out - share x (out - new), op by op.
                more = (5 * wide, 3 * wide) if block else (0.0, 0.0)
                self._move("outputs merged", size + more[0], wide + more[1])
            elif block:
                is_last = block == self.degree - 1
                self._move("outputs merged", size + (size if block == 1 else wide), size if is_last else wide)
        if self.is_eager:
            self._move("outputs", wide, size)
        return self._made(self.op.outputs)

    def backward(self, keys: tuple[int, ...], query: int, summed: tuple[int, ...]) -> list[OpStep]:
        """Return the steps of a backward. Args: query, summed: gradients of queries; of keys and values."""
        gather = self._gather(keys)
        queries, pair = self._bytes((query,)), self._bytes(summed)
        shift: tuple[int, ...] = ()
        for block in range(self.degree):
            self._block(block, gather, () if self.is_eager else shift)
            joined = self._move("gradients of keys and values joined", *self._joined(pair, block), after=shift)
            sent = math.ceil(self.wide * pair - 1e-6)
            shift = (self._send("shift gradients of keys and values", "shift", sent, (joined, *shift)),)
            self._move("gradients of queries added", *self._added(queries, block))
        if self.is_eager:
            self._move("gradients of queries", self.wide * queries, queries)
        self._move("gradients of keys and values", self.wide * pair, pair, after=shift)
        return self._made(self.op.outputs)

    def bytes_inside(self, query: int, summed: tuple[int, ...]) -> float:
        """Return the most bytes that steps of a backward hand to one another, besides what the op makes.

        Model: all ranks' keys and values; a block's gradients; those of queries so far, in fp32; of keys and values in
            fp32 what has come, and what it is joined into. Eager code holds keys and values joined as well, and halves
            joined of their own.
        Args: query, summed: gradients of queries; of keys and values.
        """
        queries, pair = self._bytes((query,)), self._bytes(summed)
        eager = pair + self.wide * pair if self.is_eager else 0.0
        return self.degree * pair + queries + pair + self.wide * queries + 2 * self.wide * pair + eager

    def _joined(self, pair: float, block: int) -> tuple[float, float]:
        """Return what is read and written to add a block's gradients of keys and values, and to join the two."""
        wide = self.wide * pair
        if not self.is_eager:  # half of what has come gets something
            return (wide + pair / 2 if block else pair), wide
        if not block:  # zeros, a sum in place, and both joined
            return pair + 2 * wide, 3 * wide
        return pair / 2 + wide / 2 + 2 * wide, wide / 2 + 2 * wide  # a half's sum in place, halves joined, both joined

    def _added(self, queries: float, block: int) -> tuple[float, float]:
        """Return what is read and written to add a block's gradients of queries."""
        wide = self.wide * queries
        if self.is_eager:
            return queries + wide, wide + (0 if block else wide)  # zeros first
        return queries + (wide if block else 0), queries if block == self.degree - 1 else wide

    def _gather(self, keys: tuple[int, ...]) -> int:
        """Join keys and values and gather those of all ranks; return the place of the gather."""
        size = self._bytes(keys)
        if self.is_eager:
            self._move("keys and values made contiguous", size, size, reads=keys)
        joined = self._move("keys and values joined", size, size, reads=keys)
        return self._send("gather keys and values", "all_gather", math.ceil(self.degree * size - 1e-6), (joined,))

    def _block(self, block: int, gather: int, waits: Sequence[int] = ()) -> None:
        name = f"block {block + 1} of {self.degree}"
        time = self.builder.piece_time(self.kernel, name, self.degree)
        after = (*waits, *((gather,) if block or not self.is_eager else ()))
        self.steps.append(OpStep(time.name, time, reads=self.op.inputs, after=after))

    def _move(
        self, what: str, read: float, written: float, *, after: Sequence[int] = (), reads: tuple[int, ...] = ()
    ) -> int:
        time = self.builder.moved(self.op, what, read, written)
        self.steps.append(OpStep(time.name, time, reads=reads, after=tuple(after)))
        return len(self.steps) - 1

    def _send(self, name: str, kind: str, num_bytes: int, after: tuple[int, ...]) -> int:
        self.steps.append(OpStep(name, None, kind, self.group, num_bytes, (), after))
        return len(self.steps) - 1

    def _made(self, tensors: tuple[int, ...]) -> list[OpStep]:
        """Return the steps, the last of which ends with the op's results."""
        self.steps.append(replace(self.steps.pop(), makes=tensors))
        return self.steps

    def _bytes(self, tensors: Sequence[int]) -> float:
        return sum(self.builder.tensor_bytes(t) for t in tensors)
