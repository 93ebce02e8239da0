"""Kernels that bring what the model is given to where its first kernel reads it (plan.graph_inputs)."""

from dataclasses import replace

from rostam_py.costs.families import CONVERT, MAP
from rostam_py.graph import Op
from rostam_py.placement.kernel import Kernel
from rostam_py.plan.graph_inputs import GRAPH_INPUTS
from rostam_py.plan.host_calls import INPUT, REPLAY
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.local_ops import LocalOps


def with_inputs(local: LocalOps, kernels: list[Kernel]) -> list[Kernel]:
    """Return kernels, the first that reads what the model is given behind those that bring it there.

    The first kernel behind these is where a host replays a graph, if it does (plan.host_calls.REPLAY).
    """
    given, roots = [t.id for t in local.graph.tensors if t.kind == "input"], local.graph.view_roots
    for place, kernel in enumerate(kernels):
        read = [] if kernel.is_view else [t for t in given if t in {roots[one] for one in kernel.inputs}]
        if not read:
            continue
        first, *others = (*kernel.casts, kernel.time)
        *casts, time = (replace(first, calls=first.calls or REPLAY), *others)
        brought = _brought(local, local.graph.ops[kernel.ops[0]], given, read)
        kernels[place] = replace(kernel, casts=(*brought, *casts), time=time)
        break
    return kernels


def _brought(local: LocalOps, op: Op, given: list[int], read: list[int]) -> list[KernelTime]:
    """Return the kernels that make the model's inputs of what arrives, and copy them to where a graph reads them.

    Args: op: the first that reads any. given: all of the model's inputs. read: those that it reads.
    """
    found = []
    wide = local.wide_factor if local.rules.autocast else 1.0
    for t in given:
        is_real = local.graph.tensors[t].dtype == "float32"
        size = local.tensor_bytes(t) * (wide if is_real else 1.0)
        if GRAPH_INPUTS[local.rules.inputs].is_widened and is_real and t in read:
            found.append(local.apart(op, "input widened", CONVERT, 2 * local.num_elements(t), size))
        if GRAPH_INPUTS[local.rules.inputs].is_copied:
            found.append(local.apart(op, "input copied", MAP, size, size))
    return [replace(one, calls=INPUT) for one in found]
