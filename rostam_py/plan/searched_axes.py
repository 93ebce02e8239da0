"""Axes of a strategy that a search may vary: which values they take, and where a value makes sense.

An axis joins with one line of SEARCHED_AXES; what a Strategy refuses, a search leaves out with that reason.

Example:
    space = Space({"tp": (1, 2, 4, 8), "pp": None, "shard": (0, 1)}, {"sequence_parallel": True})
    list(space.strategies(Strategy(precision="bf16_mixed"), Site(64, 1_024)))
    space.left_out                              # Counter({"strategy.pp is 3: ...": 4})
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.plan.divisors import divisors
from rostam_py.plan.open_strategy import split_wanted, with_wanted
from rostam_py.plan.state_sharding import SHARD_LEVELS
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import RECOMPUTE, key_of

# Of a sequence on each rank, if no cp is named. Below, parts of kernels are shorter than their launches; the longest
# sequences that are published have 8 times as many (Llama 3 405B: 131,072 tokens on cp 16).
LEAST_TOKENS = 1_024

Fields = Mapping[str, Any]  # of a strategy, as far as they are chosen


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What of a model the axes' own values depend on; 0 for what it has not.

    num_heads: members over which its attention can be split. num_experts: of a layer. num_blocks: repeated ones.
    sequence_length: tokens of a sample.
    """

    num_heads: int = 0
    num_experts: int = 0
    num_blocks: int = 0
    sequence_length: int = 0


NO_FACTS = ModelFacts()


@dataclass(frozen=True, slots=True)
class Site:
    """What a search has to fill: accelerators, samples of an iteration, and the model."""

    num_accelerators: int
    batch: int
    facts: ModelFacts = NO_FACTS


@dataclass(frozen=True, slots=True)
class SearchedAxis:
    """One key of a strategy, its rules' among them, that may be searched.

    neutral: the value that means "not used". values: those tried if none are named, given the site and the fields
    chosen before. applies: whether another value than the neutral one makes sense with the fields chosen before;
    where it does not, the neutral one is taken, and nothing is left out. words: which values, in a line.
    """

    name: str
    neutral: Any
    values: Callable[[Site, Fields], Sequence[Any]]
    words: str
    applies: Callable[[Fields], bool] = lambda fields: True


def _tp(site: Site, fields: Fields) -> list[int]:
    limit = site.facts.num_heads or site.num_accelerators
    return [d for d in divisors(site.num_accelerators) if d <= limit]


def _pp(site: Site, fields: Fields) -> list[int]:
    limit = site.facts.num_blocks or site.num_accelerators
    return [d for d in divisors(site.num_accelerators // fields["tp"]) if d <= limit]


def _cp(site: Site, fields: Fields) -> list[int]:
    rest = site.num_accelerators // (fields["tp"] * fields["pp"])
    tokens = site.facts.sequence_length  # two blocks of it for each rank, as a ring that balances causal attention has
    return [d for d in divisors(rest) if d == 1 or (tokens >= d * LEAST_TOKENS and tokens % (2 * d) == 0)]


def _ep(site: Site, fields: Fields) -> list[int]:
    experts = divisors(site.facts.num_experts) if site.facts.num_experts else [1]
    return [d for d in experts if (fields["dp"] * fields["cp"]) % d == 0]


def _virtual_stages(site: Site, fields: Fields) -> list[int]:
    per_stage = site.facts.num_blocks // fields["pp"]
    return divisors(per_stage) if per_stage else [1]


def _micro_batches(site: Site, fields: Fields) -> list[int]:
    local = site.batch // fields["dp"]
    return [d for d in divisors(local) if local // d >= fields["pp"] or d == 1]


def _only(*values: Any) -> Callable[[Site, Fields], Sequence[Any]]:
    return lambda site, fields: values


def _data_ranks(fields: Fields) -> int:
    return int(fields["dp"] * fields["cp"])


# In the order in which they are chosen; dp is what they leave of the machine, right behind cp.
SEARCHED_AXES: dict[str, SearchedAxis] = {
    axis.name: axis
    for axis in (
        SearchedAxis("tp", 1, _tp, "divisors of the machine, up to the attention heads"),
        SearchedAxis("pp", 1, _pp, "divisors of the machine, up to the repeated blocks"),
        SearchedAxis("cp", 1, _cp, f"divisors of the machine, with parts of {LEAST_TOKENS:,} tokens at least"),
        SearchedAxis("dp", 1, lambda site, fields: [fields["dp"]], "the rest of the machine after tp, pp and cp"),
        SearchedAxis("ep", 1, _ep, "divisors of the experts of a layer and of dp x cp"),
        SearchedAxis(
            "sequence_parallel", False, _only(True), "wherever tp > 1", lambda fields: fields["tp"] > 1
        ),
        SearchedAxis("tp_overlap", False, _only(False), "false", lambda fields: bool(fields["sequence_parallel"])),
        SearchedAxis(
            "virtual_stages", 1, _virtual_stages, "divisors of a stage's blocks, where pp > 1",
            lambda fields: fields["pp"] > 1,
        ),
        SearchedAxis("micro_batch", None, _micro_batches, "divisors of a replica's samples that fill the pipeline"),
        SearchedAxis("recompute", "none", _only(*RECOMPUTE), ", ".join(RECOMPUTE)),
        SearchedAxis(
            "recompute_modules", None, _only(None), "null: the attention core",
            lambda fields: fields["recompute"] == "selective",
        ),
        SearchedAxis(
            "recompute_blocks", None, _only(None), "null: all", lambda fields: fields["recompute"] == "full"
        ),
        SearchedAxis(
            "shard", 0, _only(*SHARD_LEVELS), "ZeRO 0 to 3, where dp x cp > 1", lambda fields: _data_ranks(fields) > 1
        ),
        SearchedAxis(
            "shard_group", None, _only(None), "null: all of dp x cp", lambda fields: bool(fields["shard"])
        ),
        SearchedAxis("prefetch", 1, _only(1), "1", lambda fields: fields["shard"] == 3),
        SearchedAxis("reshard_after_forward", True, _only(True), "true", lambda fields: fields["shard"] == 3),
        SearchedAxis("overlap_param_gather", False, _only(False), "false", lambda fields: fields["shard"] in (1, 2)),
        SearchedAxis("reduce_every_microbatch", True, _only(True), "true", lambda fields: fields["shard"] in (2, 3)),
    )
}  # fmt: skip

DEGREES = {"tp": None, "pp": None, "dp": None}  # what a search varies if no axes are named
_DERIVED = "dp"


def check_axes(axes: Any, key: str = "axes") -> dict[str, tuple[Any, ...] | None]:
    """Return what a search varies: axis -> values, None for the axis's own.

    Args: axes: "all", a list of names, or a mapping of names to values; None takes the degrees.
    Raises: ConfigError for an unknown axis, or for what are no values.
    """
    if axes is None:
        return dict(DEGREES)
    if axes == "all":
        return dict.fromkeys(SEARCHED_AXES)
    if not isinstance(axes, (Mapping, Sequence)) or isinstance(axes, str) or not axes:
        raise ConfigError(
            f"{key} is {axes!r}; it must be all, a list of axes ({', '.join(SEARCHED_AXES)}), or values of them such as"
            f" {key}.tp=[1,2,4,8]"
        )
    named = dict(axes) if isinstance(axes, Mapping) else dict.fromkeys(axes)
    for name, values in named.items():
        if name not in SEARCHED_AXES:
            raise ConfigError(f"{key} names {name!r}; a search varies: {', '.join(SEARCHED_AXES)}")
        if values is not None:
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise ConfigError(
                    f"{key}.{name} is {values!r}; it must be a list of values of {key_of(name)}, or null for its own:"
                    f" {SEARCHED_AXES[name].words}"
                )
            named[name] = tuple(dict.fromkeys(values))
    return named


def settled(base: Strategy) -> tuple[Strategy, dict[str, Any]]:
    """Return a strategy with all axes at their neutral values, and the keys left out since they need others."""
    return split_wanted(base, {"mp": 1} | {name: axis.neutral for name, axis in SEARCHED_AXES.items()})


def without_axes(base: Strategy) -> Strategy:
    """Return a strategy with all axes at their neutral values, which any degrees can take."""
    return settled(base)[0]


def fitted(fields: Mapping[str, Any], base: Strategy) -> Strategy:
    """Return a strategy of some fields in which axes that do not apply are neutral.

    Args: base: with neutral axes.
    Raises: ConfigError for fields that exclude each other.
    """
    found = {name: axis.neutral for name, axis in SEARCHED_AXES.items()} | dict(fields)
    for name, axis in SEARCHED_AXES.items():
        if not axis.applies(found):
            found[name] = axis.neutral
    return base.with_keys(**found)


@dataclass(slots=True)
class Space:
    """What a search varies, what it does not, and what it found that cannot be.

    varied: axis -> values, None for the axis's own. fixed: values of the other axes. wanted: other keys of the base
    that hold for the strategies that allow them. left_out: how often each reason met, filled as strategies are drawn.
    """

    varied: Mapping[str, Sequence[Any] | None]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    wanted: Mapping[str, Any] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, base: Strategy, axes: Any = None, key: str = "axes") -> "Space":
        """Return the space of a search around a strategy; degrees that are not varied are as it has them."""
        varied = check_axes(axes, key)
        if any(name not in DEGREES for name in varied):  # what memory asks for is among what is ranked
            if base.micro_batch is None:
                varied.setdefault("micro_batch", None)
            varied.setdefault("recompute", RECOMPUTE[RECOMPUTE.index(base.recompute) :])
        fixed = {name: base.value(name) for name in SEARCHED_AXES if name not in varied and name != _DERIVED}
        return cls(varied, fixed, settled(base)[1])

    def strategies(self, base: Strategy, site: Site) -> Iterator[Strategy]:
        """Yield all strategies that fill the machine and divide the batch. Args: base: with neutral axes."""
        for fields in self.fields(site):
            try:
                yield self.strategy(base, fields)
            except ConfigError as error:
                self.leave_out(str(error))

    def strategy(self, base: Strategy, fields: Fields) -> Strategy:
        """Return the strategy of some fields, with the wanted keys that it allows. Args: base: with neutral axes."""
        return with_wanted(base.with_keys(**fields), self.wanted)

    def idle_keys(self, found: Collection[Strategy]) -> list[str]:
        """Return the keys that are held fixed and that none of the strategies found has."""
        asked = {name: value for name, value in self.fixed.items() if value != SEARCHED_AXES[name].neutral}
        asked |= self.wanted
        return [name for name, value in asked.items() if all(one.value(name) != value for one in found)]

    def fields(self, site: Site) -> Iterator[dict[str, Any]]:
        """Yield the axes' values of all strategies, also of those that a Strategy refuses."""
        others = [name for name in SEARCHED_AXES if name not in ("tp", "pp", "cp", "dp")]
        for fields in self._grids(site):
            yield from self._inside(fields, site, others)

    @property
    def is_wide(self) -> bool:
        """Whether more is varied than the degrees, so that strategies are too many to be placed."""
        return any(name not in DEGREES for name in self.varied)

    def words(self) -> list[str]:
        """Return what a reader should know of a wide space: what each axis takes, and what is not tried."""
        if not self.is_wide:
            return []
        tried = [
            f"{name} ({SEARCHED_AXES[name].words if values is None else ', '.join(map(str, values))})"
            for name, values in self.varied.items()
        ]
        fixed = [f"{name}={value}" for name, value in self.fixed.items() if value != SEARCHED_AXES[name].neutral]
        unused = [name for name, value in self.fixed.items() if value == SEARCHED_AXES[name].neutral]
        found = [f"searched: {'; '.join(tried)}; algorithms: the one with the least predicted time for each size"]
        found.append(f"not searched: {', '.join([*fixed, *unused, 'every other key of strategy, as given'])}")
        return found

    def unknown_to(self, known: Collection[str]) -> list[str]:
        """Return the axes with a fixed value that is not neutral and that are not among those known."""
        axes = SEARCHED_AXES
        return [name for name, value in self.fixed.items() if name not in known and value != axes[name].neutral]

    def leave_out(self, reason: str) -> None:
        """Count what is left out; reasons that differ in their numbers alone are one."""
        self.left_out[_kind(reason)] += 1

    def _grids(self, site: Site) -> Iterator[dict[str, Any]]:
        """Yield the degrees that fill the machine."""
        for tp in self._values("tp", site, {}):
            for pp in self._values("pp", site, {"tp": tp}):
                for cp in self._values("cp", site, {"tp": tp, "pp": pp}):
                    fields = {"tp": tp, "pp": pp, "cp": cp}
                    dp, left = divmod(site.num_accelerators, tp * pp * cp)
                    if left:
                        self.left_out[f"tp x pp x cp does not divide {site.num_accelerators:,} accelerators"] += 1
                        continue
                    if not self.takes_dp(dp):
                        continue
                    if site.batch % dp:
                        self.left_out[f"dp does not divide the global batch of {site.batch:,}"] += 1
                        continue
                    yield fields | {"dp": dp}

    def takes_dp(self, dp: int) -> bool:
        """Tell whether strategies of this dp degree are searched: those named, else all."""
        named = self.varied.get(_DERIVED)
        return named is None or dp in named

    def _inside(self, fields: dict[str, Any], site: Site, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the fields with all values of the axes that are left to choose."""
        if not names:
            yield fields
            return
        name, *others = names
        for value in self._values(name, site, fields):
            yield from self._inside(fields | {name: value}, site, others)

    def _values(self, name: str, site: Site, fields: Fields) -> Sequence[Any]:
        axis = SEARCHED_AXES[name]
        if not axis.applies(fields):
            return (axis.neutral,)
        if name not in self.varied:
            return (self.fixed.get(name, axis.neutral),)
        named = self.varied[name]
        return tuple(axis.values(site, fields)) if named is None else named


def _kind(reason: str) -> str:
    """Return what reasons that differ in numbers alone have in common."""
    return re.sub(r"\b\d[\d,]*\b", "N", reason)
