"""Megatron-Core copies rows that go to experts or back: sorted by expert, and padded for narrow products.

Model: a device of several experts sorts rows by them that all-to-alls bring, and back (sort_chunks_by_idxs in
    megatron/core/transformer/moe/token_dispatcher.py at 0014f137). Rows of each expert are padded for narrow products,
    and what these make is cut (quantization_padding of TEGroupedMLP in experts.py there, as long as the router does
    not pad), but HybridEP's kernels do that as they spread rows (permuted_rows.py); the rows of padding are not
    counted. Both are counted where rows are sent.
"""

from rostam_py.costs.families import MAP
from rostam_py.costs.precision import get_precision
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule


class RowCopies(KernelRule):
    """The copies of rows that go to experts or back."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the copies."""
        local, rules = self.local, self.local.rules
        copies = ["sorted"] if rules.by_sender and local.has_several_experts() else []
        copies += ["padded"] if rules.pads_rows and get_precision(rules.precision).casts is not None else []
        found = []
        for op in ops if copies else ():
            for t in op.outputs:
                if local.are_sent_rows(t):
                    size = local.sent_bytes(t)
                    found += [local.apart(op, what, MAP, size, size) for what in copies]
        return found
