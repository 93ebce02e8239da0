"""Which placers and batches a search considers; a placer says which strategies of it (``Placer.candidates``)."""

from collections.abc import Sequence

from rostam_py.convergence import Curve, Target
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.plan import PLACERS
from rostam_py.plan.searched_axes import ModelFacts
from rostam_py.plan.software import IDEAL
from rostam_py.software.program import Given, ideal_where_open, stack_of
from rostam_py.software.stacks.ideal import Ideal


def check_placers(names: Sequence[str] | None, key: str = "placers", *, software: Given = IDEAL) -> tuple[str, ...]:
    """Return the placers that a search considers, in the registry's order; None takes all whose plans software runs.

    Raises: ConfigError for anything except a list of registered names, or for an empty one.
    """
    if names is None:
        stack = stack_of(software)
        return tuple(name for name in PLACERS if isinstance(stack, Ideal) or PLACERS.get(name).runs_programs)
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ConfigError(f"{key} is {names!r}; it must be a list of: {', '.join(PLACERS)}")
    for name in names:
        if name not in PLACERS:
            raise ConfigError(f"{key} holds {name!r}; it must be of: {', '.join(PLACERS)}")
    return tuple(name for name in PLACERS if name in names)


def not_searched(placers: Sequence[str], software: Given) -> tuple[str, ...]:
    """Return a note on the placers that were left out because no program runs their plans."""
    others = [name for name in PLACERS if name not in placers and not PLACERS.get(name).runs_programs]
    if not others or isinstance(stack_of(software), Ideal):
        return ()
    return (f"not searched: strategy.placer={' or '.join(others)}, whose plans no program runs (software=ideal)",)


def one_program(software: Given, placers: Sequence[str]) -> Given:
    """Return what plans of all placers are compared on: ideal in place of auto, where one runs no other."""
    runs_all = all(PLACERS.get(name).runs_programs for name in placers)
    return software if runs_all else ideal_where_open(software)


def facts_of(graph: OperatorGraph) -> ModelFacts:
    """Return what the values of the axes depend on: heads and experts are the splits that ops of that kind have."""
    sizes: dict[str, int] = {}
    for op in graph.ops:
        for split in op.splits:
            if split.kind in ("head", "expert"):
                sizes[split.kind] = max(sizes.get(split.kind, 0), round(split.size.at(1)))
    return ModelFacts(
        num_heads=sizes.get("head", 0), num_experts=sizes.get("expert", 0), num_blocks=len(graph.block_names),
        sequence_length=graph.sequence_length,
    )  # fmt: skip


def default_batches(curve: Curve) -> tuple[int, ...]:
    """Return the powers of two inside a curve's measured range [samples], or its smallest batch if there is none."""
    low, high = curve.sample_range
    found = [2**k for k in range(high.bit_length()) if low <= 2**k <= high]
    return tuple(found) or (low,)


def check_batches(batches: tuple[int, ...], curve: Curve | Target | None, extrapolate: bool) -> None:
    """Raise ConfigError for batches that are no counts, or lie outside the curve unless ``extrapolate``."""
    for batch in batches:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise ConfigError(f"batches holds {batch!r}; it must be integers >= 1")
        if curve is not None:
            curve.iterations(batch, extrapolate=extrapolate)
    if not batches:
        raise ConfigError(
            "batches is empty; name global batches, or a convergence curve, whose measured ones are taken"
        )
