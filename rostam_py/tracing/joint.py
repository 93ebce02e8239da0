"""Route 1: the AOTAutograd joint graph, a torch.fx graph of ATen ops with forward and backward.

The aot_* and annotate functions are unstable: this is the only module that calls them, and
``tests/tracing/test_joint.py`` is the contract test behind the torch pin.
"""

import contextlib
import operator
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import fx
from torch._export.utils import _compiling_state_context
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    GradAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    PlainAOTOutput,
)
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.utils import _pytree as pytree

from rostam_py.errors import TracingError
from rostam_py.tracing.checkpoints import Regions, recompute
from rostam_py.tracing.raw import Call, RawTrace, Ref
from rostam_py.tracing.step import ModuleTrail, Step, module_path, parameter_names


def trace_joint(
    step: Step, inputs: tuple[Any, ...], mode: FakeTensorMode, trail_out: list[ModuleTrail], as_exported: bool = False
) -> RawTrace:
    """Trace forward and backward of ``step`` whose tensors are fake ones of ``mode``.

    Args:
        inputs: fake inputs.
        trail_out: receives the module trail, which names a failing module.
        as_exported: tell the program that it is being exported, so that it avoids branches on values.
    Raises: TracingError if the graph has no backward; whatever torch raises on an untraceable module.
    """
    regions = Regions(lambda number: fx_traceback.annotate({"checkpoint": number}))
    with regions.watch():
        graph = _export(step, inputs, mode, trail_out, as_exported)
    trained = {name for name, p in step.named_parameters() if p.requires_grad}
    reader = _GraphReader(parameter_names(step), trained)
    for node in graph.nodes:
        reader.read(node)
    if not reader.raw.gradients:
        raise TracingError("no parameter receives a gradient: the loss does not depend on the parameters")
    return recompute(reader.raw, regions.all)


def _export(
    step: Step, inputs: tuple[Any, ...], mode: FakeTensorMode, trail_out: list[ModuleTrail], as_exported: bool
) -> fx.Graph:
    with contextlib.ExitStack() as stack:
        stack.enter_context(mode)
        stack.enter_context(fx_traceback.preserve_node_meta())
        stack.enter_context(_use_lazy_graph_module(True))  # its code is never run: none is generated
        if as_exported:
            stack.enter_context(_compiling_state_context())
        trail = ModuleTrail(step, lambda name: fx_traceback.annotate({"module": name}))
        trail_out.append(trail)
        stack.callback(trail.remove)
        joint = aot_export_joint_with_descriptors(stack, step, inputs)
        graph = joint.graph_module.graph
        graph.eliminate_dead_code()
        return graph


class _GraphReader:
    """Turns fx nodes, one by one, into a RawTrace."""

    def __init__(self, names: dict[str, str], trained: set[str]) -> None:
        self.raw = RawTrace()
        self._names = names
        self._trained = trained
        self._ids: dict[fx.Node, Any] = {}  # value id, or a list of them for an op with several results
        self._by_name: dict[str, int] = {}

    def read(self, node: fx.Node) -> None:
        """Read one node; nodes come in graph order."""
        if node.op == "placeholder":
            self._placeholder(node)
        elif node.op == "output":
            self._output(node)
        elif node.op == "get_attr":  # a tensor the module keeps as a plain attribute
            self._ids[node] = self.raw.add_value(node.meta["val"], "constant", str(node.target))
        elif node.target is operator.getitem:
            source, place = node.args
            self._ids[node] = self._ids[source][place]  # type: ignore[index]
        elif "val" in node.meta:  # a number that a program read out of a tensor is a constant of the trace
            self._call(node)

    def _placeholder(self, node: fx.Node) -> None:
        described = node.meta["desc"]
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return
        if isinstance(described, (ParamAOTInput, BufferAOTInput)):
            name = self._names[described.target]
            untrained = "frozen" if isinstance(described, ParamAOTInput) else "buffer"
            kind = "parameter" if name in self._trained else untrained
            if name not in self._by_name:
                self._by_name[name] = self.raw.add_value(value, kind, module_path(name))
            self._ids[node] = self._by_name[name]
        elif isinstance(described, PlainAOTInput):
            self._ids[node] = self.raw.add_value(value, "input", f"input_{described.idx}")
        else:
            self._ids[node] = self.raw.add_value(value, "constant", "loss_gradient")

    def _call(self, node: fx.Node) -> None:
        values = pytree.tree_map_only(fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs))
        refs = pytree.tree_map_only(fx.Node, self._ref, (node.args, node.kwargs))
        custom = node.meta.get("custom") or {}
        path = custom.get("module")
        call = Call(
            args=tuple(values[0]),
            kwargs=dict(values[1]),
            result=node.meta["val"],
            phase="backward" if node.meta.get("partitioner_tag") == "is_backward" else "forward",
            module=None if path is None else module_path(path),
            sequence_number=node.meta.get("seq_nr"),
            region=custom.get("checkpoint"),
            repeat=custom.get("repeat"),
        )
        ids = self.raw.add_op(node.target, tuple(refs[0]), dict(refs[1]), call)
        self._ids[node] = ids[0] if isinstance(call.result, torch.Tensor) else ids

    def _ref(self, node: fx.Node) -> Any:
        value = self._ids[node]
        return [Ref(v) for v in value] if isinstance(value, list) else Ref(value)

    def _output(self, node: fx.Node) -> None:
        results: Any = node.args[0]
        for described, result in zip(node.meta["desc"], results, strict=True):
            if result is None:
                continue
            if isinstance(described, PlainAOTOutput):
                self.raw.loss = self._ids[result]
            elif isinstance(described, GradAOTOutput) and isinstance(described.grad_of, ParamAOTInput):
                name = module_path(self._names[described.grad_of.target])
                self.raw.gradients.setdefault(name, []).append(self._ids[result])
