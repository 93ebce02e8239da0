"""Find repeated blocks of a module: runs of like children in ModuleLists and Sequentials."""

import math

from torch import nn

_Named = tuple[str, nn.Module]
_Signature = dict[str, tuple[int, ...]]


def find_block_groups(model: nn.Module) -> list[list[str]]:
    """Return, for each run of at least two like blocks, their module paths in order.

    Model: children are alike if their classes are, and the names and shapes of all parameters of one are among the
    other's, which has fewer scalars more than it shares: T5's first block holds the table that shifts all blocks'
    scores. The outermost run wins, blocks inside blocks are not listed.
    """
    groups: list[list[str]] = []
    _search(model, "", groups)
    return groups


def _search(module: nn.Module, path: str, groups: list[list[str]]) -> None:
    children = [(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]
    if not isinstance(module, (nn.ModuleList, nn.Sequential)):
        for name, child in children:
            _search(child, name, groups)
        return
    for run, has_parameters in _runs(children):
        if len(run) > 1 and has_parameters:
            groups.append([name for name, _ in run])
        else:
            for name, child in run:
                _search(child, name, groups)


def _runs(children: list[_Named]) -> list[tuple[list[_Named], bool]]:
    """Return the children as runs of like ones, and whether those of a run have parameters in common."""
    runs: list[tuple[list[_Named], _Signature]] = []
    for name, child in children:
        own = {key: tuple(p.shape) for key, p in child.named_parameters()}
        if runs and type(child) is type(runs[-1][0][-1][1]) and _are_alike(own, runs[-1][1]):
            run, common = runs.pop()
            runs.append(([*run, (name, child)], min(own, common, key=len)))
        else:
            runs.append(([(name, child)], own))
    return [(run, bool(common)) for run, common in runs]


def _are_alike(one: _Signature, other: _Signature) -> bool:
    less, more = sorted((one, other), key=len)
    return less.items() <= more.items() and _num_scalars(more) <= 2 * _num_scalars(less)


def _num_scalars(signature: _Signature) -> int:
    return sum(math.prod(shape) for shape in signature.values())
