"""Failed parts of a fabric: which there are, by id, and how they are drawn at random (MODEL A1).

Example:
    RandomFailures(links="5%", scope="network", seed=1).applied_to(fabric)
"""

from dataclasses import dataclass
from typing import Any

from rostam_py.checks import check_seed, is_integer
from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer

# Parts that can be drawn to fail, and what that means.
FAILURE_KINDS = {
    "links": "cables that fail, as a count or a share such as 5%",
    "switches": "switches that fail, as a count or a share",
    "accelerators": "accelerators that fail, as a count or a share",
    "boards": "boards that fail, with all on them, of a fabric that has any, as a count or a share",
}
# Which cables are drawn from.
FAILURE_SCOPES = {
    "network": "every cable except those of accelerators that do not forward",
    "host": "cables of accelerators that do not forward",
    "all": "every cable",
}
# Where a failure strikes.
FAILURE_PLANES = {"one": "each failure in one plane, drawn too", "all": "the same parts in every plane"}


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed parts by id, each tuple sorted.

    switches, links: of all planes, plane by plane: number k of plane p is p x (how many a plane has) + k.
    accelerators: those that failed and those that are cut off in every plane, which are listed in cut_off, too.
    """

    switches: tuple[int, ...] = ()
    links: tuple[int, ...] = ()
    accelerators: tuple[int, ...] = ()
    cut_off: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.switches or self.links or self.accelerators)

    def counts(self) -> dict[str, int]:
        """Return how many parts of each kind have failed, those that are cut off apart."""
        failed = {"switches": self.switches, "links": self.links}
        counts = {f"{kind} failed": len(ids) for kind, ids in failed.items()}
        counts["accelerators failed"] = len(self.accelerators) - len(self.cut_off)
        counts["accelerators cut off"] = len(self.cut_off)
        return {what: count for what, count in counts.items() if count}


_MOST_DIGITS = 18  # of a count


def share_of(key: str, value: Any) -> float | None:
    """Return a share such as "5%" as a number in [0, 1], None for a count.

    Raises: ConfigError for anything else than a count or a share.
    """
    if is_integer(value):
        check_integer(key, value, 0)
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) <= _MOST_DIGITS:
        return None
    text = value.strip() if isinstance(value, str) else ""
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"{key} is {value!r}; it must be an integer >= 0 or a share from 0% to 100%")
    return share


def count_of(key: str, value: Any, num_parts: int) -> int:
    """Return how many of ``num_parts`` a count or share means, a share rounded to the nearest part.

    Raises: ConfigError for no count or share.
    """
    share = share_of(key, value)
    return check_integer(key, int(value), 0) if share is None else int(share * num_parts + 0.5)


def check_choice(key: str, value: Any, allowed: dict[str, str]) -> str:
    """Return ``value``, one of ``allowed``.

    Raises: ConfigError listing the allowed values.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{key} is {value!r}; it must be one of: {', '.join(allowed)}")
    return value


@dataclass(kw_only=True, slots=True)
class RandomFailures:
    """Parts that fail before the run, drawn at random.

    links, switches, accelerators, boards: number of failed parts, a count or a share such as "5%". scope: the cables
    to draw from: network (all except those of accelerators that do not forward), host (those), all. planes: one
    (a failure affects one plane, also drawn) or all (the same parts in every plane). seed: seed of the draw.
    """

    links: Any = 0
    switches: Any = 0
    accelerators: Any = 0
    boards: Any = 0
    scope: str = "network"
    planes: str = "one"
    seed: int = 0

    def __post_init__(self) -> None:
        for kind in FAILURE_KINDS:
            share_of(f"failures.{kind}", getattr(self, kind))
        check_choice("failures.scope", self.scope, FAILURE_SCOPES)
        check_choice("failures.planes", self.planes, FAILURE_PLANES)
        self.seed = check_seed("failures.seed", self.seed)

    def applied_to(self, fabric: Any) -> Any:
        """Return a Fabric with these failures, kind by kind in the order of ``FAILURE_KINDS``.

        Raises: as ``Fabric.with_random_failures``.
        """
        for kind in FAILURE_KINDS:
            value = getattr(self, kind)
            share = share_of(f"failures.{kind}", value)
            if int(value) > 0 if share is None else share > 0:
                fabric = fabric.with_random_failures(kind, value, self.seed, scope=self.scope, planes=self.planes)
        return fabric
