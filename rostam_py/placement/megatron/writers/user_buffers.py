"""Templates in which Transformer Engine's products overlap with the collectives of their tensor-parallel group.

Model: products of repeated blocks communicate through user buffers, others as without overlap: Megatron-Core's output
layer and embedding are its own.
* Every gather begins with a copy of a member's own part, cast, into the buffer.
* What feeds a product (qkv and fc1; output gradients of proj and fc2) goes round a ring in t parts (ring_writer), by
  copy engines, which take no multiprocessor.
* A reduce-scatter behind a product of 8 bits is a ring exchange: the product runs in t parts of its rows,
  each of the first t - 1 is sent to the member that adds it up, in 16 bits, and a kernel reads t parts and writes one.
  Products leave one multiprocessor out.
* A reduce-scatter behind a wider product is a pipeline: the product runs in four parts of its columns, on all rows, and
  a kernel reduce-scatters each while the next is computed, reading from all members at once. All four leave that
  kernel's multiprocessors out, whether it runs or not. Nothing hides the last part's.
* Inputs gathered again and reduce-scatters of input gradients stay whole and hold their kernels' multiprocessors.
* Scales of blocks (mxfp8) are gathered in front of the data by NCCL, which kernels wait for, and output gradients come
  a second time, by columns, concurrently with the product that reads them by rows.
Parts run one after the other: each is
put on one of three streams, so that the next may fill what the last wave leaves idle, but in a pipeline on Hopper it is
queued behind the part before, and PyTorch's parts on two streams are no faster for it (tests/validation).
Memory: ten buffers, as large as a gathered input of a block each: six are gathered into (inputs of qkv and fc1, forward
and again; output gradients of proj and fc2), of 1 byte an element with products of 8 bits; four are scattered from, in
activations' width, of which those of a ring exchange, forward, hold 2 t - 1 parts instead of t.
Ignored: ``aggregate``, which recipes of pretraining leave off, and 8-bit buffers of sums, which those of LoRA set.
Source: split_overlap_ag and split_overlap_rs of CommOverlapP2PBase, split_overlap_rs of CommOverlapBase, in
transformer_engine/common/comm_gemm_overlap/comm_gemm_overlap.cpp at 015939ab, reduce_bf16_cuda in its
userbuffers/userbuffers.cu at 029eb960, CommOverlapP2PBase::initialize (buffers), initialize_ub and
fill_userbuffers_buffer_for_all_gather in transformer_engine/pytorch/module/base.py, all of NVIDIA/TransformerEngine;
its pull requests 1311 (parts queued), 1711 (scales) and bulk_overlap_ag_with_external_gemm in layernorm_mlp.py
(gradients by columns). Recipes: src/megatron/bridge/training/comm_overlap.py of NVIDIA-NeMo/Megatron-Bridge at
0685ff5d.
"""

import math
from dataclasses import replace
from functools import cached_property

from rostam_py.costs.precision import get_precision
from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.kernels import Kernel
from rostam_py.placement.megatron.writers.ring_writer import RingWriter, no_less_than_share, weight_bytes
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.placement.megatron.writers.template_writer import portion
from rostam_py.placement.sharding import Gather
from rostam_py.plan.program_rules import MCORE
from rostam_py.plan.tasks import KernelTime

# Of a collective during a whole product, the means of: 4 and 2 multiprocessors gather the inputs of qkv and fc1 again,
# 24 and 4 scatter their input gradients. Source: userbuffers_bf16_h100_h8192_tp4_mbs1_seqlen8192 and its fp8 twin;
# others set 2 to 32, and 16 each are taken where no recipe says.
_BULK = {"all_gather": 3, "reduce_scatter": 14}
# Left out by products whose result is reduce-scattered. A ring exchange: num_sm=1, set_sm_margin=True of proj_fprop and
# fc2_fprop in the recipes of 8 bits (that of GPT-3 20B has a pipeline). A pipeline: Transformer Engine's default; the
# recipes of 16 bits set 8 to 32, 21 on average, and some of Blackwell or of 12,288 and more features ring exchanges.
_RING_MARGIN = 1
_PIPELINE_MARGIN = 16
_NUM_SPLITS = 4  # num_splits of all of these recipes, and the default


# Buffers of initialize_ub (methods and layers_all_gather_overlap there): gathered into; that parts of a product are
# scattered from; that whole input gradients are.
_GATHERED, _SCATTERED, _BULK_SCATTERED = 6, 2, 2


def user_buffer_bytes(context: TemplateContext) -> int:
    """Return the bytes of a device's user buffers, 0 where there are none."""
    sharding, builder, graph = context.sharding, context.builder, context.graph
    if not (context.is_tp_overlapped and context.tp_style == MCORE):
        return 0
    readers = (op for op in sharding.gathers if graph.ops[op].role == "product" and is_in_block(graph, graph.ops[op]))
    whole = max((builder.part_bytes(one.tensor, 1.0) for op in readers for one in sharding.gathers[op]), default=0.0)
    precision, degree = get_precision(builder.rules.precision), sharding.degree
    is_narrow = precision.product_bytes < precision.tensor_bytes
    gathered = whole / precision.tensor_bytes if is_narrow else whole
    scattered = whole * (2 * degree - 1) / degree if is_narrow else whole
    return math.ceil(_GATHERED * gathered + _SCATTERED * scattered + _BULK_SCATTERED * whole)


def is_in_block(graph: OperatorGraph, op: Op) -> bool:
    """Tell whether an op is of a module of Transformer Engine: of a repeated block, if there are any."""
    return op.block >= 0 or not graph.block_names


class UserBufferWriter(RingWriter):
    """A RingWriter as Transformer Engine's user buffers have it."""

    def __init__(self, context: TemplateContext, phase: str, adds_gradients: bool = False) -> None:
        super().__init__(context, phase, adds_gradients)
        precision = get_precision(context.builder.rules.precision)
        self._is_pipelined = precision.product_bytes >= precision.tensor_bytes
        self._scale_share = precision.scale_bytes / precision.product_bytes  # of what products read
        self._is_bulk = False  # the collective that is being appended goes through a user buffer, whole
        self._open: Kernel | None = None  # the one that is run
        self._is_cast = False  # what it reads has been
        self._reduced: dict[int, int] = {}  # tensor that a pipeline has made -> its last reduce-scatter

    def run(self, kernel: Kernel, is_replay: bool = False) -> None:
        """Run a kernel, in parts if it is a product, then the collectives its outputs ask for."""
        self._open, self._is_cast = kernel, False
        super().run(kernel, is_replay)

    def _may_cut(self, op: Op) -> bool:
        return self._is_in_block(op)

    def _is_in_block(self, op: Op) -> bool:
        return is_in_block(self.context.graph, op)

    @cached_property
    def _for_products(self) -> frozenset[int]:
        """Gathered tensors that a product of Transformer Engine reads; rows of experts NCCL gathers."""
        ops, gathers = self.context.graph.ops, self.context.sharding.gathers
        readers = (op for op in gathers if ops[op].role == "product" and self._is_in_block(ops[op]))
        read = {gather.tensor for op in readers for gather in gathers[op]}
        return frozenset(read.difference(self.context.builder.experts.exchanged))

    def _append_casts(self, kernel: Kernel) -> None:
        if not self._is_cast:
            super()._append_casts(kernel)

    def _stays_whole_again(self) -> bool:
        return True

    def _go_through_buffers(self, is_bulk: bool) -> None:
        """Let whole collectives of the group go through user buffers from now on, or no longer."""
        self._is_bulk, self.log.held = is_bulk, _BULK if is_bulk else {}

    def _gather(self, gather: Gather, behind: tuple[int, ...], is_replay: bool) -> int:
        is_new = self._key(gather, is_replay) not in self._gathers
        if is_new and gather.tensor in self._for_products:
            self._fill(gather)
            self._go_through_buffers(True)
        task = super()._gather(gather, behind, is_replay)
        self._go_through_buffers(False)
        return task

    def _gathered_bytes(self, gather: Gather, share: float) -> float:
        scales = self._scale_share if self._is_bulk and self._is_narrow(gather) else 0.0
        return super()._gathered_bytes(gather, share) * (1 - scales)

    def _is_narrow(self, gather: Gather) -> bool:
        builder = self.context.builder
        return builder.gathered_bytes(gather, 1.0) < builder.part_bytes(gather.tensor, 1.0)

    def _fill(self, gather: Gather) -> None:
        """Copy a member's own part into the buffer, and gather what scales it."""
        sharding, builder, tensor = self.context.sharding, self.context.builder, gather.tensor
        whole = builder.gathered_bytes(gather, sharding.gathered_fraction(gather))
        scales = whole * self._scale_share if self._is_narrow(gather) else 0.0
        own = (whole - scales) / math.prod(sharding.levels[place].degree for place in gather.levels)
        self.log.wait_for((tensor,), [])
        self.log.provider[tensor] = self.log.move(tensor, "copied into its buffer", own, own)
        if scales:
            name = f"all_gather {self.log.origin(tensor)} {self.phase} (scales)"
            group, deps = sharding.group(gather.levels), self.log.deps_on([tensor])
            self.log.provider[tensor] = self.log.collective(name, group, "all_gather", math.ceil(scales), deps)
            self.log.wait_for((tensor,), [])

    def _copy_round(self, gather: Gather) -> list[int]:
        if self._open is not None:
            self._append_casts(self._open)
            self._is_cast = True
        self._fill(gather)
        width = self.context.builder.gathered_bytes(gather, 1 / self.context.sharding.degree)
        scales = self._scale_share if self._is_narrow(gather) else 0.0
        return self._copies(gather.tensor, math.ceil(width * (1 - scales)))

    def _brings(self, gather: Gather, steps: list[int]) -> int:
        """Return the task behind which other products read what a ring brings: by columns that comes again."""
        if self._is_forward or not self._scale_share or not self._is_narrow(gather):
            return super()._brings(gather, steps)
        size = math.ceil(self.context.builder.gathered_bytes(gather, 1 / self.context.sharding.degree))
        return self._copies(gather.tensor, size, " by columns")[-1]

    def _part_of(self, whole: KernelTime, *, is_scattered: bool) -> KernelTime:
        part = super()._part_of(whole, is_scattered=is_scattered)
        return self._leaving_out(part, _RING_MARGIN if is_scattered else 0)

    def _leaving_out(self, part: KernelTime, margin: int) -> KernelTime:
        """Return a part that is longer by the multiprocessors it leaves out, a tenth of them kept (MODEL B8)."""
        all_of_them = self.context.multiprocessors
        return part.stretched(all_of_them / max(all_of_them - margin, all_of_them / 10)) if all_of_them else part

    def _numbered(self, part: KernelTime, number: int, parts: int) -> KernelTime:
        found = super()._numbered(part, number, parts)
        return replace(found, calls=part.calls if number == 1 else "")  # one call of a module launches all parts

    def _append_parts(self, kernel: Kernel, halos: list[int], gathered: list[int]) -> None:
        scattered = None if self._steps or not self._is_pipelined else self._scatters(kernel)
        if scattered is None:
            super()._append_parts(kernel, halos, gathered)
            return
        self.log.wait_for(kernel.inputs, halos + gathered)
        self._append_casts(kernel)
        whole, degree = self._time_of(kernel), self.context.sharding.degree
        part = self._leaving_out(self._columns_of(whole), _PIPELINE_MARGIN)
        received = self.context.builder.part_bytes(scattered, (degree - 1) / degree / _NUM_SPLITS)
        name = f"reduce_scatter {self.log.origin(scattered)} {self.phase}"
        for number in range(1, _NUM_SPLITS + 1):
            self.log.add(self._numbered(part, number, _NUM_SPLITS))
            self.log.close()
            behind = (len(self.log.tasks) - 1,)
            self._reduced[scattered] = self._copy(name, math.ceil(received), behind, number, _NUM_SPLITS)

    def _columns_of(self, whole: KernelTime) -> KernelTime:
        """Return a kernel on one of the parts of its columns, as its cost model times it."""
        call = whole.call
        if call is None or whole.cost is None:
            return portion(whole, 1 / _NUM_SPLITS, "")
        part = replace(
            call, flops=call.flops / _NUM_SPLITS, bytes_written=call.bytes_written / _NUM_SPLITS, columns=_NUM_SPLITS,
            bytes_read=call.bytes_read - weight_bytes(call) * (1 - 1 / _NUM_SPLITS),
        )  # fmt: skip
        return no_less_than_share(KernelTime.of(whole.cost, part, whole.name, module=whole.module), whole, _NUM_SPLITS)

    def make_whole(self, tensor: int) -> None:
        """Start the collectives that make a tensor whole, unless its product's parts have done so."""
        if tensor in self._reduced:
            self.log.close()
            self.log.provider[tensor] = self._reduced.pop(tensor)
            return
        producer = self.context.graph.tensors[tensor].producer
        self._go_through_buffers(producer is not None and self._is_in_block(self.context.graph.ops[producer]))
        super().make_whole(tensor)
        self._go_through_buffers(False)
