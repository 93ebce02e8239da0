"""OpenStrategy: what all candidates of a search share, before any has degrees.

Keys such as sequence_parallel need a degree that a search varies: they hold for the candidates that allow them.

Example:
    base = OpenStrategy.of(sequence_parallel=True, ep_overlap=True)   # a Strategy refuses both: tp and ep are 1
    settled, wanted = split_wanted(base)                              # wanted: {"ep_overlap": True}
    with_wanted(replace(settled, dp=4, ep=2), wanted).rules.ep_overlap      # True
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.plan.placing import Placing
from rostam_py.plan.strategy import Strategy, default_settings

# Degrees that are tried on a strategy: if it is legal with some of them, a search may find candidates.
_DEGREES = {"tp": 2, "ep": 2, "pp": 2, "cp": 2, "virtual_stages": 2}


@dataclass(kw_only=True, slots=True)
class OpenStrategy(Strategy):
    """A strategy whose degrees are open: legal where it is with any degrees.

    Raises: ConfigError for what no degrees make legal.
    """

    def __post_init__(self) -> None:
        given = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        checked = _legal(given)
        for name, value in given.items():  # as a Strategy keeps them, except the degrees that were tried
            setattr(self, name, value if name in _DEGREES else getattr(checked, name))


def _legal(given: Mapping[str, Any]) -> Strategy:
    """Return a strategy of these fields with the fewest degrees that make it legal."""
    refused: list[ConfigError] = []
    layout = Placing.of(given["placing"]).layout
    degrees = _DEGREES | ({} if layout is None else {"pp": layout.num_chunks})
    for count in range(len(degrees) + 1):
        for names in itertools.combinations(degrees, count):
            has_no_pipeline = "virtual_stages" in names and given["pp"] == 1 and "pp" not in names
            if has_no_pipeline or any(given[name] != 1 for name in names):
                continue
            try:
                return Strategy(**{**given, **{name: degrees[name] for name in names}})
            except ConfigError as error:
                refused.append(error)
    # What a degree does not mend is said about the values themselves.
    raise next((error for error in refused if str(error) != str(refused[0])), refused[0])


def split_wanted(base: Strategy, neutral: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
    """Return a base with neutral axes as a strategy that is legal by itself, and the keys left out of it.

    Args: neutral: axis -> its neutral value.
    Raises: ConfigError if leaving keys out does not help.
    """
    default = default_settings()
    given = base.settings() | dict(neutral)
    changed = [name for name, value in given.items() if name not in neutral and value != default[name]]
    first: ConfigError | None = None
    for names in _fewest_first(changed):
        try:
            settled = Strategy.of(**given | {name: default[name] for name in names})
        except ConfigError as error:
            first = first or error
            continue
        return settled, {name: given[name] for name in names}
    raise first or ConfigError("strategy is refused")


def with_wanted(strategy: Strategy, wanted: Mapping[str, Any]) -> Strategy:
    """Return a strategy with all of the wanted keys that it allows."""
    for names in _fewest_first(list(wanted)):
        try:
            return strategy.with_keys(**{name: value for name, value in wanted.items() if name not in names})
        except ConfigError:
            continue
    return strategy


def _fewest_first(names: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield all parts of a list, the smallest first."""
    for count in range(len(names) + 1):
        yield from itertools.combinations(names, count)
