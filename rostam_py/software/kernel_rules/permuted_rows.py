"""Where a row goes to each rank once, kernels spread rows over experts, and add those of a token up.

Model: ranks spread what they have received over their experts, and add up for each sender what their experts have made:
    the model's own gather in front of a dispatch stands for the one, reading received rows, its sum behind a combine
    for the other, which writes as many and begins with no zeros. They are counted on the model's side of the exchange.
    Ignored: rows of padding, and probabilities.
Source: permute_kernel and unpermute_kernel of deepseek-ai/DeepEP, csrc/hybrid_ep/extension/permute.cu;
    get_permuted_hidden_states_by_experts of _DeepepManager in Megatron-Core's token_dispatcher.py.
"""

from rostam_py.costs.families import is_row_sum, makes_zeros
from rostam_py.graph import Op
from rostam_py.software.kernel_rule import KernelRule


class PermutedRows(KernelRule):
    """What kernels read and write that spread rows over experts, or add those of a token up."""

    def moved(self, ops: tuple[Op, ...], read: float, written: float) -> tuple[float, float]:
        """Return what such a kernel reads and writes."""
        local, share = self.local, self.local.rank_share
        if not share:
            return read, written
        for op in ops:
            for t in op.outputs:
                if local.sent_way(t) == "dispatch" and op.role == "gather":
                    size, sent = local.tensor_bytes(t), local.sent_bytes(t)
                    read, written = read + share * sent - size, written + sent - size
            begun = self._begun_sum(op)
            if begun is not None:
                base, t = begun
                size, sent = local.tensor_bytes(t), local.sent_bytes(t)
                read += sent - size - local.tensor_bytes(base)
                written += share * sent - local.tensor_bytes(op.outputs[0])
            elif any(self._begins_sum(t) for t in op.outputs):
                return 0.0, 0.0
        return max(0.0, read), max(0.0, written)

    def _begun_sum(self, op: Op) -> tuple[int, int] | None:
        """Return (what it adds to, combined rows) of an op that adds rows up by token, else None."""
        if not is_row_sum(op.op_type):
            return None
        rows = next((t for t in op.inputs[1:] if self.local.sent_way(t) == "combine"), None)
        return None if rows is None else (op.inputs[0], rows)

    def _begins_sum(self, tensor: int) -> bool:
        """Tell whether a tensor is zeros that rows are added to."""
        graph = self.local.graph
        producer = graph.tensors[tensor].producer
        if producer is None or not makes_zeros(graph.ops[producer].op_type):
            return False
        found = (self._begun_sum(graph.ops[reader]) for reader in self.local.readers_of(tensor))
        return any(begun is not None and graph.view_roots[begun[0]] == tensor for begun in found)
