"""Find repeated blocks of a module: runs of equal children in ModuleLists and Sequentials."""

from itertools import groupby

from torch import nn


def find_block_groups(model: nn.Module) -> list[list[str]]:
    """Return, for each run of at least two equal blocks, their module paths in order.

    Model: children are equal if their classes and the names and shapes of their parameters are; the
    outermost run wins, blocks inside blocks are not listed.
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
    for signature, run in groupby(children, key=lambda item: _signature(item[1])):
        members = list(run)
        if len(members) > 1 and signature[1]:
            groups.append([name for name, _ in members])
        else:
            for name, child in members:
                _search(child, name, groups)


def _signature(module: nn.Module) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]:
    parameters = tuple((name, tuple(p.shape)) for name, p in module.named_parameters())
    return type(module).__qualname__, parameters
