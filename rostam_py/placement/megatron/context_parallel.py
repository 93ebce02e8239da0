"""What the ranks that share a sequence exchange for attention, and the kernels in between.

Legend: c ranks; K, V local keys and values and dK, dV their gradients, of one tp rank; L = bytes of K and V together.

ring (Liu et al. 2023): c - 1 shifts of L, each while the attention of the block in hand runs; backward c - 1 of L and c
of dK and dV, which travel with their block and end at its owner. A shift starts when the block before it is done with
and the buffer of the block before that is free. A kernel works on local queries and one block, 1/c of the rank's work,
and behind the first block reads what it adds to: output and statistics, or the gradients so far.
all_gather (Llama 3, 3.3.2): K and V gathered once, c L, and kept until backward (a replay gathers again); dK and dV
reduce-scattered. ulysses (Jacobs et al. 2023): all-to-alls of queries, K, V and the output, L / c to each rank, after
which a rank has all rows of 1/c of the heads; gradients go the same ways back. With fewer key heads than c each is sent
to c / heads ranks.

torch: PyTorch's context_parallel (torch_context.py).

A causal mask leaves every rank the same work, as it takes blocks i and 2c - 1 - i; FLOPs of attention are counted in
full, as everywhere. Ignores the reordering of a sequence into those blocks, and working buffers but those of torch's
backward, which count for what an allocator holds (memory/blocks.py).
"""

import math
from collections.abc import Callable

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.placement.context import SequencePart
from rostam_py.placement.context.attention import Attention
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.op_steps import OpStep
from rostam_py.placement.megatron.torch_context import TorchSteps
from rostam_py.plan.program_rules import CP_ALGORITHMS
from rostam_py.plan.tasks import KernelTime

GROUP = "cp"
_HEADS = -3  # of query, key and value: (..., heads, rows, size)
# Of a sequence that each rank takes, so that causal work is even.
BLOCKS = {"ring": 2, "all_gather": 2, "ulysses": 1, "torch": 2}


class ContextExchange:
    """The steps of attention ops in a part of a model."""

    def __init__(self, part: SequencePart, algorithm: str, builder: KernelBuilder, is_kept: bool) -> None:
        self.part, self.algorithm, self.builder, self.is_kept = part, algorithm, builder, is_kept
        self._steps: dict[str, Callable[[Kernel, Attention], list[OpStep]]] = dict(
            zip(CP_ALGORITHMS, (self._ring, self._all_gather, self._ulysses, self._torch), strict=True)
        )
        if algorithm == "ulysses":
            for attention in part.attentions.values():
                self._check_heads(attention)
        elif algorithm == "torch" and any(attention.mask is not None for attention in part.attentions.values()):
            raise ConfigError(
                f"software.rules.cp_algorithm is 'torch', but attention of {part.graph.name} reads a mask, which"
                " PyTorch's context_parallel does not take; it must be 'ring' or 'all_gather'"
            )

    def barriers(self) -> set[int]:
        """Return the tensors that attention reads and makes, which no kernel may fuse across."""
        ops = self.part.graph.ops
        return {t for index in self.part.attentions for t in (*ops[index].inputs, *ops[index].outputs)}

    def steps(self, kernel: Kernel) -> list[OpStep]:
        """Return the steps of a kernel, none if it exchanges nothing over the sequence."""
        attention = self.part.attentions.get(kernel.ops[0])
        return [] if attention is None else self._steps[self.algorithm](kernel, attention)

    def bytes_inside(self, kernel: Kernel) -> float:
        """Return the most bytes that the steps of a backward by ``torch`` hand to one another, 0 of other kernels."""
        attention = self.part.attentions.get(kernel.ops[0])
        if attention is None or self.algorithm != "torch" or not attention.is_backward:
            return 0.0
        query, *summed = (rows.tensor for rows in attention.made)
        return self._torch_steps(kernel, attention).bytes_inside(query, tuple(summed))

    def kept_times(self) -> dict[int, float]:
        """Return, for tensors kept for backward in another form than the part's, how many times as many bytes."""
        found: dict[int, float] = {}
        for attention in self.part.attentions.values():
            for tensor in (attention.key.tensor, attention.value.tensor):
                if self.algorithm == "all_gather" and self.is_kept:
                    found[tensor] = self.part.degree
                elif self.algorithm == "ulysses":
                    found[tensor] = self._copies(attention)
        return found

    def notes(self) -> list[str]:
        """Return what a reader of the plan should know."""
        found = [f"sequences shared by cp={self.part.degree} ranks, {self.algorithm} attention"]
        if self.part.unsplit:
            whole = ", ".join(f"{name} x{count}" for name, count in sorted(self.part.unsplit.items()))
            found.append(f"run whole on every member of a cp group: {whole}")
        return found

    # The algorithms

    def _ring(self, kernel: Kernel, attention: Attention) -> list[OpStep]:
        c, op = self.part.degree, self.part.graph.ops[attention.op]
        keys = (attention.key.tensor, attention.value.tensor)
        size = self._bytes(*keys)
        arrived = (*op.inputs[:1], *keys) if attention.is_backward else keys
        summed = tuple(rows.tensor for rows in attention.made[1:]) if attention.is_backward else ()
        steps: list[OpStep] = []
        shifts: list[int] = []
        blocks: list[int] = []
        sums: list[int] = []
        for step in range(c):
            if step < c - 1:
                after = (*shifts[-1:], *blocks[-1:])
                steps.append(self._collective("shift keys and values", "shift", size, arrived, after))
                shifts.append(len(steps) - 1)
            if summed and step:
                after = (blocks[-1], *sums[-1:])
                steps.append(self._collective("shift gradients of keys and values", "shift", self._bytes(*summed),
                                              (), after))  # fmt: skip
                sums.append(len(steps) - 1)
            time = self._block(kernel, attention, step)
            after = (shifts[step - 1],) if step else ()
            is_last = step == c - 1
            made = tuple(t for t in op.outputs if t not in summed) if is_last else ()
            steps.append(OpStep(time.name, time, reads=op.inputs, after=after, makes=made))
            blocks.append(len(steps) - 1)
        if summed:
            steps.append(self._collective("shift gradients of keys and values", "shift", self._bytes(*summed),
                                          (), (blocks[-1], *sums[-1:]), summed))  # fmt: skip
        return steps

    def _all_gather(self, kernel: Kernel, attention: Attention) -> list[OpStep]:
        c, op = self.part.degree, self.part.graph.ops[attention.op]
        keys = (attention.key.tensor, attention.value.tensor)
        more = (c - 1) * self._bytes(*keys)  # of the other ranks' keys and values
        if not attention.is_backward:
            time = self.builder.piece_time(kernel, "", 1, read=more)
            gather = self._collective("gather keys and values", "all_gather", c * self._bytes(*keys), keys)
            return [gather, OpStep(time.name, time, reads=op.inputs, after=(0,), makes=op.outputs)]
        summed = tuple(rows.tensor for rows in attention.made[1:])
        time = self.builder.piece_time(kernel, "", 1, read=more, written=(c - 1) * self._bytes(*summed))
        made = tuple(t for t in op.outputs if t not in summed)
        size = c * self._bytes(*summed)
        return [
            OpStep(time.name, time, reads=op.inputs, makes=made),
            self._collective("scatter gradients of keys and values", "reduce_scatter", size, (), (0,), summed),
        ]

    def _ulysses(self, kernel: Kernel, attention: Attention) -> list[OpStep]:
        op, copies = self.part.graph.ops[attention.op], self._copies(attention)
        keys = (attention.key.tensor, attention.value.tensor)
        more = (copies - 1) * self._bytes(*keys)
        if not attention.is_backward:
            sent = [(attention.query.tensor, 1.0, "queries"), (keys[0], copies, "keys"), (keys[1], copies, "values")]
            made = [(op.outputs[0], 1.0, "outputs")]
            time = self.builder.piece_time(kernel, "", 1, read=more)
        else:
            names = ("gradients of queries", "gradients of keys", "gradients of values")
            sent = [(op.inputs[0], 1.0, "gradients of outputs")]
            made = [(rows.tensor, n, name) for rows, n, name in zip(attention.made, (1.0, copies, copies), names,
                                                                     strict=True)]  # fmt: skip
            time = self.builder.piece_time(kernel, "", 1, read=more, written=more)
        steps = [self._collective(f"exchange {name}", "all_to_all", self._bytes(t) * n, (t,)) for t, n, name in sent]
        exchanged = {t for t, _, _ in made}
        others = tuple(t for t in op.outputs if t not in exchanged)
        work = len(steps)
        steps.append(OpStep(time.name, time, reads=op.inputs, after=tuple(range(work)), makes=others))
        for t, n, name in made:
            steps.append(self._collective(f"exchange {name}", "all_to_all", self._bytes(t) * n, (), (work,), (t,)))
        return steps

    def _torch(self, kernel: Kernel, attention: Attention) -> list[OpStep]:
        steps = self._torch_steps(kernel, attention)
        keys = (attention.key.tensor, attention.value.tensor)
        if not attention.is_backward:
            return steps.forward(keys)
        query, *summed = (rows.tensor for rows in attention.made)
        return steps.backward(keys, query, tuple(summed))

    def _torch_steps(self, kernel: Kernel, attention: Attention) -> TorchSteps:
        return TorchSteps(self.builder, kernel, self.part.graph.ops[attention.op], self.part.degree, GROUP)

    # Sizes and times

    def _block(self, kernel: Kernel, attention: Attention, step: int) -> KernelTime:
        c, ops = self.part.degree, self.part.graph.ops
        behind = self._bytes(*ops[attention.op].outputs) if step else 0.0
        mask = attention.mask  # a rank's rows of a mask lie there for all keys: a block reads a part
        less = 0.0 if mask is None else (1 - 1 / c) * self.builder.tensor_bytes(mask, whole=True)
        return self.builder.piece_time(kernel, f"block {step + 1} of {c}", c, read=behind - less)

    def _bytes(self, *tensors: int) -> float:
        return sum(self.builder.tensor_bytes(t) for t in tensors)

    def _collective(
        self, name: str, kind: str, num_bytes: float, reads: tuple[int, ...], after: tuple[int, ...] = (),
        makes: tuple[int, ...] = (),
    ) -> OpStep:  # fmt: skip
        return OpStep(name, None, kind, GROUP, math.ceil(num_bytes - 1e-6), reads, after, makes)

    def _local_heads(self, tensor: int) -> int:
        shape = self.part.graph.tensors[tensor].shape
        heads = shape[_HEADS].at(self.builder.batch) * self.builder.sharding.tensor_fraction(tensor)
        return round(heads)

    def _copies(self, attention: Attention) -> float:
        """Return to how many ranks a key head is sent."""
        return max(1.0, self.part.degree / self._local_heads(attention.key.tensor))

    def _check_heads(self, attention: Attention) -> None:
        c, t = self.part.degree, self.builder.sharding.degree
        name = self.part.graph.name
        if len(self.part.graph.tensors[attention.query.tensor].shape) < -_HEADS:
            raise ConfigError(
                f"software.rules.cp_algorithm is 'ulysses', but attention of {name} has no dimension of heads"
            )
        if attention.mask is not None:
            raise ConfigError(
                f"software.rules.cp_algorithm is 'ulysses', but attention of {name} reads a mask, whose rows would have"
                " to be exchanged for its heads; it must be 'ring' or 'all_gather'"
            )
        queries, keys = (self._local_heads(rows.tensor) for rows in (attention.query, attention.key))
        if queries % c:
            raise DegreeError(
                f"strategy.cp x tp is {c} x {t} = {c * t}; with software.rules.cp_algorithm=ulysses it must divide the"
                f" {queries * t} query heads of {name}"
            )
        if keys % c and c % keys:
            raise DegreeError(
                f"strategy.cp is {c}; with software.rules.cp_algorithm=ulysses it must divide the {keys} key heads of a"
                f" tp rank of {name}, or be a multiple of them"
            )
