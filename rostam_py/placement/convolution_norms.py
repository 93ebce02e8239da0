"""Norms of channels inside the convolutions around them: which ops make one, and what its kernels move (MODEL B7).

Example: a residual unit, x -> conv1, norm1, relu, conv2, norm2, relu, conv3, norm3, + x, relu
    convolution_norms(graph)       # norm1 and norm2: applied by conv2 and conv3; norm3: by a kernel that adds x

Model: a convolution sums what it makes and its squares for each channel, so that no kernel reads that for the norm's
statistics; a small kernel makes a scale and a bias of them. Behind a norm and its activation alone the next convolution
applies both to what it reads, forward and for its weight's gradient. At the end of a unit one kernel reads the last
convolution's result and the shortcut (or two results that have norms each), and writes their sum, cut at zero, and a
bit for each element. With S the bytes of a tensor, bits aside, read + written on top of the convolutions' own traffic:

    way      norm             forward   backward
    forward  between two      0         2 S + S, activation and norm in one kernel
    forward  end of a unit    2 S + S   2 S + 2 S, of the norm's input and the shortcut's; a second norm's as apart
    both     between two      0         S by the kernel of the input's gradient behind it; then 2 S + S
    both     end of a unit    2 S + S   2 S by that, the norm's input and the shortcut, of which it knows signs again;
                                        then 2 S + S, or with two norms 3 S + 2 S

Gradients of what several ops read are added by a convolution's kernel, which reads S for each summand but its own.
Kernels are of 16 bits (Supports() below). Ignores what applying a scale costs a convolution's inner loop: times of
these kernels are not published.
Source: of "forward" NVIDIA's MXNet (sneaxiy/NVIDIA-MxNet at ce30b182, src/operator/nn/cudnn: Backward and Supports of
cudnn_norm_convolution-inl.h, cudnn_scale_bias_add_relu-inl.h); of "both" cuDNN's patterns ConvBNfprop, ConvBNwgrad,
DgradDreluBNBwdWeight and DualDBNApply as NVIDIA put them into PaddlePaddle (pull 50196; fused_dconv_drelu_dbn).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rostam_py.costs.families import is_batch_norm, is_cut_at_zero, op_family
from rostam_py.graph import WEIGHT_KINDS, Op, OperatorGraph

_FILTERS, _CHANNELS = (1, 9), 32  # taps of filters, and of what channels are a multiple (Supports() of MXNet's)


@dataclass(frozen=True, slots=True)
class ConvolutionNorm:
    """One norm between convolutions, or two that are added.

    norms: forward ops. activation, addition: the ops behind; addition is None between two convolutions. backward,
    cut: of norms, in their order, and of the activation, those of their gradients; empty and None without training.
    sums: backward ops that each add a summand to the gradient of what it makes. gradient: backward op of a convolution
    that makes that gradient, or the last summand of it; None where none does.
    """

    norms: tuple[Op, ...]
    activation: Op
    addition: Op | None
    backward: tuple[Op, ...]
    cut: Op | None
    sums: tuple[Op, ...]
    gradient: Op | None


def convolution_norms(graph: OperatorGraph) -> list[ConvolutionNorm]:
    """Return the norms that convolutions around them make and apply, in the order in which they run."""
    return list(_Finder(graph).find())


class _Finder:
    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self.backward_of: dict[int, list[Op]] = {}
        for op in graph.ops:
            if op.phase == "backward" and op.forward_op is not None:
                self.backward_of.setdefault(op.forward_op, []).append(op)

    def find(self) -> Iterator[ConvolutionNorm]:
        added = set[int]()
        for op in self.graph.ops:
            if not self._is_norm(op):
                continue
            readers = self._forward_readers(op.outputs[0])
            if len(readers) != 1:
                continue
            (behind,) = readers
            if _is_relu(behind):
                after = self._forward_readers(behind.outputs[0])
                if len(after) == 1 and self._is_joinable(after[0]):
                    yield self._found((op,), behind, None)
            elif behind.role == "sum" and len(behind.inputs) == 2 and behind.id not in added:
                added.add(behind.id)
                after = self._forward_readers(behind.outputs[0])
                if len(after) == 1 and _is_relu(after[0]):
                    makers = (self._maker(t) for t in behind.inputs)
                    norms = tuple(one for one in makers if one is not None and self._is_only_added(one, behind))
                    yield self._found(norms, after[0], behind)

    def _found(self, norms: tuple[Op, ...], activation: Op, addition: Op | None) -> ConvolutionNorm:
        backward = tuple(self._gradient_of(norm) for norm in norms)
        sums, summands = self._summands(activation)
        gradients = [one for one in summands if op_family(one.op_type, one.role) == "convolution"]
        return ConvolutionNorm(
            norms, activation, addition, tuple(one for one in backward if one is not None),
            next(iter(self.backward_of.get(activation.id, ())), None), sums,
            max(gradients, key=lambda one: one.id, default=None),
        )  # fmt: skip

    def _summands(self, activation: Op) -> tuple[tuple[Op, ...], list[Op]]:
        """Return the ops that add up the gradient behind an activation, and those that make what they add up."""
        sums, summands = list[Op](), list[Op]()
        pending = [one.inputs[0] for one in self.backward_of.get(activation.id, ())[:1]]
        while pending:
            op = self._maker(pending.pop())
            if op is not None and op.is_accumulation:
                sums.append(op)
                pending += op.inputs
            elif op is not None:
                summands.append(op)
        return tuple(sums), summands

    def _gradient_of(self, norm: Op) -> Op | None:
        return next((op for op in self.backward_of.get(norm.id, ()) if is_batch_norm(op.op_type)), None)

    def _is_norm(self, op: Op) -> bool:
        """Tell whether an op is a norm of what a convolution makes that can sum it for its statistics."""
        if op.phase != "forward" or op.is_recomputed or not is_batch_norm(op.op_type) or not op.outputs:
            return False
        maker = self._maker(op.inputs[0])
        return maker is not None and self._is_joinable(maker) and len(self._forward_readers(maker.outputs[0])) == 1

    def _is_only_added(self, op: Op, addition: Op) -> bool:
        return self._is_norm(op) and self._forward_readers(op.outputs[0]) == [addition]

    def _is_joinable(self, op: Op) -> bool:
        """Tell whether a convolution can apply a norm and make another's statistics."""
        if op.role != "convolution" or op.phase != "forward":
            return False
        tensors, roots = self.graph.tensors, self.graph.view_roots
        weight = next((tensors[t] for t in op.inputs if tensors[roots[t]].kind in WEIGHT_KINDS), None)
        if weight is None or len(weight.shape) != 4:
            return False
        outputs, channels, height, width = (dim.at(1) for dim in weight.shape)
        is_whole = channels == tensors[op.inputs[0]].shape[1].at(1)  # else in groups
        return is_whole and height * width in _FILTERS and not channels % _CHANNELS and not outputs % _CHANNELS

    def _maker(self, tensor: int) -> Op | None:
        producer = self.graph.tensors[self.graph.view_roots[tensor]].producer
        return None if producer is None else self.graph.ops[producer]

    def _forward_readers(self, tensor: int) -> list[Op]:
        ops = (self.graph.ops[u] for u in self.graph.readers.get(self.graph.view_roots[tensor], ()))
        return [op for op in ops if op.phase == "forward" and not op.is_metadata]


def _is_relu(op: Op) -> bool:
    return is_cut_at_zero(op.op_type) and len(op.inputs) == 1
