"""Calibrated: kernel times from measured efficiencies by kind, precision, shape and device.

Model: duration = (ideal time + fixed time) x ratio, never less than the ideal time. Ideal: the longer of useful FLOPs
at the accelerator's peak and bytes at its memory bandwidth, or as a table's fit counts them (``kernel_surface``); ratio
and fixed time: interpolated in the kernel tables (``make calibrate``, or one's own). Which series answer is told in
``kernel_sources``: those of all parts of one die, else lent ones. A source that measured several parts counts once,
with its mean; of several sources the median counts, of those that measured around the shape, else of the nearest (of
attention one that is farther outside counts less and less). What tables lack falls back, in this order:
* fp16 takes the rows of bf16, mxfp8 those of fp8, times its multiple (``recipes``);
* a kind that it lacks is lent, backward attention as its multiple of the forward there; element-wise kernels take the
  device's own casts first;
* backward attention of several programs is such a multiple as well, of the own forward's time;
* an attention program that no part of the die has rows of: its own kernels serve;
* attention in tf32, which no table has, takes the rows of bf16 at tf32's peak: the same units at a lower rate;
* grouped products, measured in bf16 alone, take as long as their groups' products one after another, times what they
  take of that on an accelerator of the same matrix units, if one is measured; in 8 and 4 bits as many times it as in
  bf16;
* a convolution without rows is asked for in its tiles;
* a kernel of no measured kind is asked for as the nearest one (``kernel_shapes``);
* an accelerator that is no GPU (without multiprocessors) and has no table, and what is left, take the roofline's time,
  with half of causal attention's work.
No product runs faster than its accelerator was seen to sustain between other kernels (``sustained``); what a step's
kernels draw together slows it further where it is simulated (``power``).
Ignores concurrent work, caches that an earlier kernel has warmed.
"""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rostam_py.costs.accelerators import ACCELERATORS, Accelerator
from rostam_py.costs.convolutions import Convolution, tilings
from rostam_py.costs.families import op_family
from rostam_py.costs.kernel_kinds import CAUSAL_SHARE, kernel_kind
from rostam_py.costs.kernel_shapes import KernelQuestion, as_one_product, products_of_groups, question_of, stage_of
from rostam_py.costs.kernel_sources import (
    SAME_UNITS,
    KernelSources,
    Source,
    has_same_units,
    lenders,
    matching,
    shipped,
    slower,
)
from rostam_py.costs.kernel_table import KernelSeries, KernelTable, ideal_time
from rostam_py.costs.limits import BY_ROOFLINE, ROOFLINE_RESIDUAL, UNVERIFIED, KernelLimits, Residual, family_of
from rostam_py.costs.model import KernelCall
from rostam_py.costs.power import PRODUCTS, STEPS, power_model
from rostam_py.costs.programs import (
    ATTENTION_PROGRAMS,
    BATCH_NORM_PROGRAMS,
    NORM_PROGRAMS,
    family_of_programs,
    of_programs,
    programs_of,
)
from rostam_py.costs.recipes import AS_TABLED, RecipeMultiples, recipe_multiples
from rostam_py.costs.roofline import RooflineCost
from rostam_py.costs.sustained import CLOCKS, sustained_rates
from rostam_py.costs.times import cost_time
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph

_BYTES = 2.0  # of an element in the precisions that others are taken from
_ADDING_BYTES = 8.0  # of an fp32 output that is read and written
_WIDER = {"fp8": "bf16", "mxfp8": "bf16", "nvfp4": "bf16"}


@dataclass(slots=True)
class _Answer:
    """A kernel's time [s], how it was found, and largest over smallest time of the sources less 1.

    fixed_share: of the time, what neither peak nor bandwidth shortens. used: the series that it is the median of.
    is_own: they are of this kind of kernel and this accelerator. weight: how many times FLOPs at the peak count.
    """

    seconds: float
    how: str
    spread: float | None = None
    fixed_share: float = 0.0
    used: tuple[KernelSeries, ...] = ()
    is_own: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class _Found:
    """What one series says of a question.

    distance: octaves outside its measured sizes. seconds: of one kernel. spread: of its repeats. fixed_share: of the
    time, what neither peak nor bandwidth shortens. weight: how many times FLOPs at the peak count against traffic.
    """

    source: Source
    distance: float
    seconds: float
    spread: float
    fixed_share: float
    weight: float


@dataclass(slots=True)
class _Tally:
    """What a family's kernels rest on."""

    how: Counter[str] = field(default_factory=Counter)
    spreads: list[float] = field(default_factory=list)


class CalibratedCost:
    """Time kernels from measured tables.

    Source: the tables' provenance; docs/calibration.md has their errors on held-out shapes.
    """

    @dataclass(kw_only=True, slots=True)
    class Config:
        """Settings of calibrated costs.

        table: path of a kernel table to use in place of the one shipped for the accelerator; "" takes the shipped one.
        min_kernel_time: minimum duration of a kernel; the default is MODEL B7's (SiP-ML 4.2).
        attention: whose attention kernels the program calls: flash2 (PyTorch's default), flash3, cudnn, or best, the
            fastest that Transformer Engine and inference engines call.
        norms: kernels of norms over rows (LayerNorm, RMSNorm): fused (one pass, as in Transformer Engine, Triton and
            cuDNN) or aten (PyTorch's).
        batch_norms: kernels of batch norms: pytorch (as PyTorch chooses: its own for bf16, otherwise cuDNN's), cudnn or
            native (PyTorch's own).
        clocks: sustained or burst. With sustained no kernel is faster than its accelerator sustains at its power limit,
            as in training, and the power of a step is held to that limit. With burst kernels take the times that were
            measured one by one; rows of ``table`` always do.
        """

        table: str = ""
        attention: str = field(default="best", metadata={"choices": ATTENTION_PROGRAMS})
        norms: str = field(default="fused", metadata={"choices": NORM_PROGRAMS})
        batch_norms: str = field(default="pytorch", metadata={"choices": BATCH_NORM_PROGRAMS})
        clocks: str = field(default="sustained", metadata={"choices": CLOCKS})
        min_kernel_time: str = field(default="1 us", metadata={"unit": "time"})

        def __post_init__(self) -> None:
            cost_time(self.min_kernel_time, "min_kernel_time")
            programs_of(self.attention, self.norms, self.batch_norms)
            if self.clocks not in CLOCKS:
                raise ConfigError(f"cost.clocks is {self.clocks!r}; it must be one of {', '.join(CLOCKS)}")

        def build(self, *, accelerator: Accelerator, graph: OperatorGraph | None = None) -> "CalibratedCost":
            """Return the cost model for ``graph``, whose tensors tell the kernels' shapes."""
            return CalibratedCost(self, accelerator, graph)

    def __init__(
        self, config: Config, accelerator: Accelerator, graph: OperatorGraph | None,
        recipes: RecipeMultiples | None = None,
    ) -> None:  # fmt: skip
        if graph is None:
            raise ConfigError("cost model 'calibrated' needs the traced graph, whose tensors tell the kernels' shapes")
        self.config, self.accelerator, self._graph = config, accelerator, graph
        self._floor_s = cost_time(config.min_kernel_time, "min_kernel_time")
        self._own = _own_table(config.table, accelerator)
        self._power = None if config.clocks == "burst" or config.table else power_model(accelerator)
        measured_w = 0.0 if self._power is None else self._power.idle_w + self._power.held_w
        # Under a lower limit it is the step whose kernels are slowed.
        self._timed = replace(accelerator, watts=max(accelerator.watts, measured_w)) if self._power else accelerator
        self._recipes = recipes or (AS_TABLED if config.table else recipe_multiples())
        choices = config.attention, config.norms, config.batch_norms
        self._programs, self._programs_of_bf16 = (programs_of(*choices, is_bf16=is_bf16) for is_bf16 in (False, True))
        self._sources, self._sources_of_bf16 = (
            KernelSources(accelerator, self._own, programs, is_given=bool(config.table))
            for programs in (self._programs, self._programs_of_bf16)
        )
        plain = RooflineCost.Config(min_kernel_time=config.min_kernel_time, causal_share=CAUSAL_SHARE)
        self._roofline = RooflineCost(plain, accelerator)
        self._ops = {op.name: op for op in graph.ops}  # names outlive clean-up, ids do not
        self._others: dict[str, CalibratedCost] = {}  # that lend multiples
        self._known: dict[KernelQuestion, _Answer | None] = {}
        self._calls: dict[int, tuple[KernelCall, KernelQuestion | None, _Answer | None]] = {}
        self._tallies: dict[str, _Tally] = {}

    def duration_s(self, call: KernelCall) -> float:
        """Return the kernel's duration [s].

        Raises: ConfigError if the accelerator has no peak for the precision.
        """
        main = call.ops[0]
        _, answer = self._asked(call)
        if answer is None:
            answer = _Answer(self._roofline.duration_s(call), BY_ROOFLINE)
        tally = self._tallies.setdefault(op_family(main.op_type, main.role), _Tally())
        tally.how[answer.how] += 1
        if answer.spread is not None:
            tally.spreads.append(answer.spread)
        return max(answer.seconds, self._floor_s)

    def seconds(self, asked: KernelQuestion) -> float:
        """Return how long a kernel of given sizes takes by the tables [s].

        Raises: ConfigError if no table has its kind.
        """
        answer = self._answer(asked)
        if answer is None:
            raise ConfigError(f"no table for {self.accelerator.name} has kernels of kind {asked.kind!r}")
        return answer.seconds

    def limits(self, call: KernelCall) -> KernelLimits:
        """Return what bounds the kernel's duration: the part of its ideal time that is longer, times its ratio.

        Model: of several sources the fixed time, and how many times FLOPs count against traffic, are the means of those
            that the answer is the median of.
        """
        asked, answer = self._asked(call)
        if asked is None or answer is None:
            return self._roofline.limits(call)
        peak = self.accelerator.peak(asked.precision) if asked.precision else 0.0
        arithmetic_s = answer.weight * asked.flops / peak if peak else 0.0
        memory_s = (asked.traffic + asked.extra) / self.accelerator.memory_bandwidth_bytes_per_s
        fixed_s = answer.seconds * answer.fixed_share
        longest_s = max(arithmetic_s, memory_s)
        ratio = (answer.seconds - fixed_s) / longest_s if longest_s else 0.0
        return KernelLimits(
            family_of(call), arithmetic_s * ratio, memory_s * ratio, fixed_s, fixed_s, self._floor_s,
            basis=answer.how, residual=_residual(answer), is_verified=answer.is_own,
        )  # fmt: skip

    def watts(self, call: KernelCall) -> float:
        """Return what the kernel draws above an idle device [W]; 0 where that is not known, and at ``clocks=burst``."""
        if self._power is None:
            return 0.0
        asked, answer = self._asked(call)
        if asked is None or answer is None:
            seconds = max(self._roofline.duration_s(call), self._floor_s)
            return self._power.watts("", "", "", 0.0, call.bytes_read + call.bytes_written, seconds)
        moved = asked.moves_sums and self.accelerator.short_fp8_sums
        precision = f"{asked.precision}, sums moved" if moved else asked.precision
        return self._power.watts(
            asked.kind, self.config.attention, precision, asked.count * asked.flops, asked.count * asked.traffic,
            max(answer.seconds, self._floor_s),
        )  # fmt: skip

    def follows_limit(self) -> str:
        """Return how times follow the accelerator's limit of power, as ``PoweredCost`` says."""
        if self.config.clocks == "burst" or self.config.table:
            return ""
        rates, accelerator = sustained_rates(), self.accelerator
        if self._power is not None:
            return STEPS
        return PRODUCTS if any(rates.rate(accelerator, one) for one in accelerator.peak_flops_per_s) else ""

    def _asked(self, call: KernelCall) -> tuple[KernelQuestion | None, _Answer | None]:
        """Return what the tables are asked about a kernel, and their answer; None where they have none.

        Kept for each call, since what bounds a kernel is asked after its time; the call is held as well, so that no
        other one gets its identity.
        """
        found = self._calls.get(id(call))
        if found is None:
            found = self._calls[id(call)] = (call, *self._look_up(call))
        return found[1:]

    def _look_up(self, call: KernelCall) -> tuple[KernelQuestion | None, _Answer | None]:
        op = self._ops.get(call.ops[0].name)
        known = op if op is not None and op.op_type == call.ops[0].op_type else None
        others = [self._ops[one.name] for one in call.ops[1:] if one.name in self._ops]
        asked = question_of(call, known, self._graph, others)
        return asked, None if asked is None else self._answer(asked)

    def notes(self) -> list[str]:
        """Return for each family how many kernels rest on what, and by how much the sources differ."""
        notes = []
        for family, tally in sorted(self._tallies.items()):
            counts = ", ".join(f"{count} {how}" for how, count in sorted(tally.how.items()))
            differ = f"; sources differ by {statistics.median(tally.spreads):.0%} (median)" if tally.spreads else ""
            notes.append(f"calibrated {family} kernels: {counts}{differ}")
        if any("roofline" in how for tally in self._tallies.values() for how in tally.how):
            notes += self._roofline.notes()
        return notes

    def _answer(self, asked: KernelQuestion) -> _Answer | None:
        """Return the median over sources, None where no table has the kind."""
        if asked not in self._known:
            self._known[asked] = self._median(asked)
        return self._known[asked]

    def _median(self, asked: KernelQuestion) -> _Answer | None:
        if self._own is None and not self.accelerator.multiprocessors:
            return None
        if asked.convolution is not None:
            return self._convolution(asked, asked.convolution)
        sources = self._sources_of_bf16 if asked.is_bf16 else self._sources
        series = sources.of(asked.kind, asked.precision)
        each = products_of_groups(asked)
        if each is not None and all(one.lender or one.series.distances(asked.columns)[0] for one in series):
            return self._as_products(asked, each)
        if not series:
            return None
        found = self._found(asked, series)
        nearest = min(one.distance for one in found)
        used = [one for one in found if one.distance <= nearest]
        times = _of_origins(used)
        log_s = _log_median(found, nearest, kernel_kind(asked.kind).tolerance)
        spreads = [max(times) / min(times) - 1] if len(times) > 1 else [one.spread for one in found if one.spread > 0]
        how = "interpolated" if nearest == 0 else "extrapolated"
        is_lent = all(one.source.lender for one in used)
        if names := ", ".join(sorted({one.source.lender for one in used if one.source.lender})):
            how += f" {'from' if is_lent else 'with rows of'} {names}"
        kind = used[0].source.series.kind
        how += "" if kind == asked.kind else f" by rows of kind {kind}"
        programs = self._programs_of_bf16 if asked.is_bf16 else self._programs
        is_asked = of_programs([one.series for one in series], programs)
        choice = " or ".join(programs.get(family_of_programs(asked.kind), ()))
        how += "" if is_asked else f" from kernels other than {choice}"
        how += f" as the nearest measured kind, {UNVERIFIED}" if asked.is_substitute else ""
        measured = used[0].source.series.precision
        is_slower = measured == slower(asked.kind, asked.precision)
        how += f" as {measured}'s at the peak of {asked.precision}, {UNVERIFIED}" if is_slower else ""
        seconds, fixed_share = math.exp(log_s), [one.fixed_share for one in used]
        least_s = self._sustained_s(asked)
        if seconds < least_s:
            seconds, fixed_share, how = least_s, [0.0], f"{how} above the sustained rate"
        multiple, spread = self._of_recipe(asked)
        if multiple != 1:
            seconds, spreads, how = seconds * multiple, [*spreads, spread], f"{how} times its recipe's multiple"
        seconds += self._extra_s(asked)
        return _Answer(
            asked.count * seconds, how, max(spreads, default=None), statistics.fmean(fixed_share),
            tuple(one.source.series for one in used),
            is_own=not is_lent and not asked.is_substitute and not is_slower and kind == asked.kind,
            weight=statistics.fmean(one.weight for one in used),
        )  # fmt: skip

    def _extra_s(self, asked: KernelQuestion) -> float:
        """Return what ops fused into a kernel add [s]: what a stream of all its bytes takes more than of its own."""
        if not asked.extra:
            return 0.0
        both = (
            self._answer(KernelQuestion(kind="elementwise", sizes=(moved,), precision="", flops=0.0, traffic=moved))
            for moved in (asked.traffic + asked.extra, asked.traffic)
        )
        times = [0.0 if one is None else one.seconds for one in both]
        return max(times[0] - times[1], asked.extra / self.accelerator.memory_bandwidth_bytes_per_s)

    def _convolution(self, asked: KernelQuestion, convolution: Convolution) -> _Answer | None:
        """Return the time of a convolution, of each of its stages one after another.

        Model: as measured in 16 bits, of tf32 by those rows; else that of its product, in tiles where it has several
            taps.
        """
        total = _Answer(0.0, "")
        for stage in convolution.stages:
            answer = self._answer(stage_of(asked, convolution, stage))
            if answer is None:
                plain = replace(asked, convolution=None)
                return self._in_tiles(asked, convolution) if convolution.taps > 1 else self._answer(plain)
            total = replace(answer, seconds=answer.seconds + total.seconds, used=(*answer.used, *total.used))
        return replace(total, seconds=total.seconds + asked.count * self._extra_s(asked)) if asked.extra else total

    def _in_tiles(self, asked: KernelQuestion, convolution: Convolution) -> _Answer | None:
        """Return the time of a convolution of several taps, each stage in the tiles that are fastest.

        Model: the longer of what its tiles take to load through the level-two cache and of a product of as many outputs
            in a square, which fills whole tiles, and the same contraction, that moves the convolution's bytes and does
            the work of whole tiles. A kernel of few channels is bound by its loads, whatever measured products are.
        """
        rate, total = self.accelerator.cache_bandwidth_bytes_per_s, _Answer(0.0, "")
        for stage in convolution.stages:
            found: list[_Answer] = []
            for tiling in tilings(convolution, stage, self.accelerator.multiprocessors):
                side = math.sqrt(tiling.outputs)
                sizes = (1.0, side, side, tiling.contraction, *asked.sizes[4:])
                square = replace(asked, sizes=sizes, flops=tiling.flops, count=1, convolution=None)
                answer = self._answer(square)
                if answer is None:
                    return None
                loads_s = tiling.cache_bytes / rate if rate else 0.0
                loaded = _Answer(loads_s, f"by loads of tiles from the cache, {UNVERIFIED}", used=answer.used)
                found.append(loaded if loads_s > answer.seconds else replace(answer, how=f"{answer.how}, in tiles"))
            best = min(found, key=lambda one: one.seconds)
            total = replace(best, seconds=best.seconds + total.seconds)
        return total

    def _as_products(self, asked: KernelQuestion, each: KernelQuestion) -> _Answer | None:
        """Return the time of a grouped product of no measured size, or on an accelerator where none was measured.

        Model: that of its groups' products one after another, as Transformer Engine calls cuBLAS for each, times what
            measured ones of the nearest size take of that (in 16 bits); once, where none is measured on the same matrix
            units. Never less than one product of all rows.
        Args: each: its groups' products.
        """
        one_by_one = self._answer(each)
        if one_by_one is None:
            return None
        multiple, used, basis = self._multiple(asked) if each.count > 1 else (1.0, (), "of which it has one")
        whole = self._answer(as_one_product(asked))
        least_s = max(asked.count * self._sustained_s(asked), 0.0 if whole is None else whole.seconds)
        seconds = max(one_by_one.seconds * multiple, least_s)
        how = f"as products of each group, {basis or UNVERIFIED}"
        return _Answer(seconds, how, one_by_one.spread, one_by_one.fixed_share, (*used, *one_by_one.used))

    def _multiple(self, asked: KernelQuestion) -> tuple[float, tuple[KernelSeries, ...], str]:
        """Return how many times its groups' products a grouped product takes, by what series, and on what accelerator.

        Model: of the nearest measured size in the precision that was measured, of the accelerator or else of the
            nearest one of the same matrix units; 1 where there is none.
        """
        wide = _WIDER.get(asked.precision, asked.precision)
        tried = dict.fromkeys((asked.precision, wide, SAME_UNITS.get(wide, wide)))
        own = {precision: found for precision in tried if (found := self._sources.own_series(asked.kind, precision))}
        if not own:
            return self._lent_multiple(asked, tuple(tried)[-1])
        precision, series = next(iter(own.items()))
        nearest = _inside(asked, precision, series)
        each = products_of_groups(nearest)
        measured, loop = self._answer(nearest), None if each is None else self._answer(each)
        if measured is None or loop is None:
            return 1.0, (), ""
        return measured.seconds / loop.seconds, measured.used, "multiple of the nearest measured"

    def _lent_multiple(self, asked: KernelQuestion, precision: str) -> tuple[float, tuple[KernelSeries, ...], str]:
        """Return ``_multiple`` of the nearest accelerator that has the same kinds of peaks and rows in a precision."""
        alike = [
            name for name in lenders(asked.kind, precision) if has_same_units(self.accelerator, ACCELERATORS[name])
        ]  # fmt: skip
        if not alike:
            return 1.0, (), ""
        name = self._sources.nearest(alike, precision, precision)
        if name not in self._others:
            self._others[name] = CalibratedCost(replace(self.config, table=""), ACCELERATORS[name], self._graph)
        multiple, used, _ = self._others[name]._multiple(asked)
        return multiple, used, f"multiple from {name}"

    def _of_recipe(self, asked: KernelQuestion) -> tuple[float, float]:
        """Return how many times tables' rows a product takes by its recipe, and the spread of that.

        A table of the user's own is left as it was measured.
        """
        if asked.kind != "product":
            return 1.0, 0.0
        return self._recipes.of(self.accelerator, asked.precision, moves_sums=asked.moves_sums)

    def _sustained_s(self, asked: KernelQuestion) -> float:
        """Return how long a kernel takes at the rate that the accelerator sustains; 0 where none is known or asked.

        A table of the user's own is left as it was measured.
        """
        if self.config.clocks == "burst" or self.config.table or not asked.flops:
            return 0.0
        rate = sustained_rates().rate(self._timed, asked.precision)
        return asked.flops / rate if rate else 0.0

    def _found(self, asked: KernelQuestion, sources: list[Source]) -> list[_Found]:
        """Return what each source says of a question.

        Model: of a kind that has another beside it, sources of named programs, and those that another table lends
            than the one with that kind, say how many times as long as that one it takes: time = own time of the kind
            beside x (their time of the kind / of that kind, from the same file and program). So do all where none has
            measured such sizes, by the nearest measured one: two kinds extrapolated apart would not fit each other.
        """
        beside = kernel_kind(asked.kind).beside
        found = [self._asked_here(one, asked) for one in sources]
        if not beside:
            return self._by_heads(asked, sources, found)
        is_outside = all(one.distance for one in found)
        if is_outside or self._is_relative(sources, self._sources.of(beside, asked.precision)):
            own = self._answer(_beside(asked, beside))
            multiples = [] if own is None else [self._multiple_of(own, one, asked, is_outside) for one in sources]
            if kept := [one for one in multiples if one is not None]:
                return kept
        return found

    def _by_heads(self, asked: KernelQuestion, sources: Sequence[Source], found: list[_Found]) -> list[_Found]:
        """Return what sources say of attention, those told apart by length alone at other numbers of heads.

        Model: their rows have heads enough to fill the device. Fewer leave multiprocessors idle, and under a causal
            mask wait for the longest block: such a source takes as many times its own time as those take that measured
            lengths and heads, of whatever program, and is as far from its sizes as they are, by the heads, from theirs.
        """
        others = [
            one for one in self._sources.of_all_programs(asked.kind, asked.precision) if not one.series.is_by_length
        ]
        if not others or not any(one.series.is_by_length for one in sources):
            return found
        _, sequence, heads, kv_heads, size, _ = asked.sizes
        result = []
        for source, one in zip(sources, found, strict=True):
            batch, full = source.series.filling(sequence, size) if source.series.is_by_length else (0.0, 0.0)
            share = batch * full / (asked.sizes[0] * heads)
            if share <= 1:  # others say as much themselves; more heads than fill the device run at the same rate
                result.append(one)
                continue
            whole = replace(
                asked, sizes=(batch, sequence, full, full * kv_heads / heads, *asked.sizes[4:]),
                flops=asked.flops * share, traffic=asked.traffic * share,
            )  # fmt: skip
            few, many = ([_on_its_device(other.series, which) for other in others] for which in (asked, whole))
            times = math.exp(statistics.fmean(math.log(a[0] / b[0]) for a, b in zip(few, many, strict=True)))
            own = self._asked_here(source, whole)
            further = max(0.0, min(one[1] for one in few) - min(one[1] for one in many))
            peak = self.accelerator.peak(asked.precision)
            least_s = float(ideal_time(asked.flops, asked.traffic, peak, self.accelerator))
            result.append(replace(own, seconds=max(own.seconds * times, least_s), distance=own.distance + further))
        return result

    @staticmethod
    def _is_relative(sources: Sequence[Source], others: Sequence[Source]) -> bool:
        is_named = any(one.series.program for one in sources)
        return is_named or {one.lender for one in sources} != {one.lender for one in others}

    def _multiple_of(self, own: _Answer, source: Source, asked: KernelQuestion, is_outside: bool) -> _Found | None:
        """Return an own time of the kind beside, times a source's ratio; None where it has no rows of that kind.

        Model: the ratio is that of the device measured, whatever the own one's speed: the time follows the kind beside.
        Args: is_outside: the ratio is that of the nearest size that the source measured.
        """
        one, table = source.series, shipped(source.lender) if source.lender else self._own
        beside = kernel_kind(asked.kind).beside
        pair = [
            other for other in matching(table, beside, one.precision)
            if other.source.split()[0] == one.source.split()[0] and other.program == one.program
        ]  # fmt: skip
        if not pair:
            return None
        columns = (_inside(asked, asked.precision, [one]) if is_outside else asked).columns
        seconds, beside_s = (it.seconds_of(it.heard(columns))[0] for it in (one, pair[0]))
        distance = float(one.distances(one.heard(asked.columns))[0])
        seconds = own.seconds * float(seconds / beside_s)
        return _Found(source, distance, seconds, one.source_spread, own.fixed_share, own.weight)

    def _asked_here(self, source: Source, asked: KernelQuestion) -> _Found:
        """Return what a source says of a question on the own accelerator, under its limit of power."""
        is_burst, lender = self.config.clocks == "burst", ACCELERATORS.get(source.lender, self.accelerator)
        speed = 1.0 if is_burst else sustained_rates().slowed(self._timed, lender)
        found = _asked_of(source, asked, self.accelerator, speed)
        if asked.kind != "product" or asked.sizes[-1] < _ADDING_BYTES or np.ptp(source.series.columns["out_bytes"]) > 0:
            return found
        # A source without such products answers for those that write their output once.
        multiple = self._recipes.of_adding(self.accelerator, asked.precision)
        return replace(found, seconds=found.seconds * multiple)


def _beside(asked: KernelQuestion, kind: str) -> KernelQuestion:
    """Return the question for another kind of the same sizes, its work in proportion."""
    kinds = kernel_kind(kind), kernel_kind(asked.kind)
    flops, moved = (
        float(work[0] / all_work[0])
        for work, all_work in (
            [one.flops(asked.columns) for one in kinds], [one.traffic(asked.columns, 1.0) for one in kinds]
        )
    )  # fmt: skip
    return replace(asked, kind=kind, flops=asked.flops * flops, traffic=asked.traffic * moved)


def _log_median(found: Sequence[_Found], nearest: float, tolerance: float) -> float:
    """Return the logarithm of the median time over origins, of those no farther outside their sizes than the nearest.

    Model: give or take up to a tolerance [octaves], all up to it alike: a source that has just not measured a shape
        counts for nearly as much as one that just has, and times go on smoothly where one leaves off.
    """
    edges = sorted({min(one.distance - nearest, tolerance) for one in found} | {tolerance})
    total = 0.0
    for edge, after in itertools.pairwise(edges) if tolerance else ((0.0, 1.0),):
        times = _of_origins([one for one in found if one.distance - nearest <= edge])
        total += (after - edge) / (tolerance or 1.0) * statistics.median(map(math.log, times))
    return total


def _of_origins(found: Sequence[_Found]) -> list[float]:
    """Return the time by each origin, the mean over the parts of the die that it measured [s]."""
    logs: dict[tuple[str, str], list[float]] = {}
    for one in found:
        logs.setdefault(one.source.origin, []).append(math.log(one.seconds))
    return [math.exp(statistics.fmean(each)) for each in logs.values()]


def _on_its_device(series: KernelSeries, asked: KernelQuestion) -> tuple[float, float]:
    """Return what a series says on the device that it measured [s], and how far a shape is outside [octaves]."""
    columns = series.heard(asked.columns)
    return float(series.seconds_of(columns)[0]), float(series.distances(columns)[0])


def _asked_of(source: Source, asked: KernelQuestion, device: Accelerator, speed: float = 1.0) -> _Found:
    """Return what a source says of a question on ``device``, whose arithmetic runs at a share of its speed."""
    one = source.series
    columns = one.heard(asked.columns)
    peak = device.peak(asked.precision) * speed if asked.precision else 0.0
    told = one.predicted(columns, np.array([asked.flops]), asked.traffic, peak, device)
    seconds, distance = float(told.seconds[0]), float(one.distances(columns)[0])
    fixed_share = one.fit.fixed_s / float(told.ideal_s[0]) if seconds > told.least_s[0] else 0.0
    return _Found(source, distance, seconds, one.source_spread, fixed_share, float(told.weights[0]))


def _inside(asked: KernelQuestion, precision: str, series: Sequence[KernelSeries]) -> KernelQuestion:
    """Return the question nearest to one among the sizes that series measured, in another precision."""
    kind = kernel_kind(asked.kind)
    sizes = []
    for name, size in zip(kind.fields, asked.sizes, strict=True):
        measured = np.concatenate([one.columns[name] for one in series])
        sizes.append(float(np.clip(size, measured.min(), measured.max())))
    columns = {name: np.array([size]) for name, size in zip(kind.fields, sizes, strict=True)}
    moved = float(kind.traffic(columns, _BYTES)[0])
    return KernelQuestion(
        kind=asked.kind, sizes=tuple(sizes), precision=precision, flops=float(kind.flops(columns)[0]), traffic=moved
    )


def _residual(answer: _Answer) -> Residual:
    """Return the error of an answer that is the median of some series.

    Model: the mean over the series of their errors on held-out rows, and the sources' spread. Of another kind of
        kernel, of another accelerator, or of too few rows to hold any out, the error is at least that of the roofline.
    """
    judged = [one.held_out for one in answer.used if one.held_out is not None]
    least = 0.0 if answer.is_own and judged else ROOFLINE_RESIDUAL.absolute
    signed = statistics.fmean(one.signed for one in judged) if judged else 0.0
    absolute = statistics.fmean(one.absolute for one in judged) if judged else least
    return Residual(signed, max(absolute, least), answer.spread or 0.0)


def _own_table(path: str, accelerator: Accelerator) -> KernelTable | None:
    """Return the table given, or the accelerator's shipped one, None where it has none.

    Raises: ConfigError if the table is of another accelerator.
    """
    if path:
        table = KernelTable.load(path)
        if table.accelerator != accelerator.name:
            raise ConfigError(
                f"cost.table {path!r} was measured on {table.accelerator or 'an unnamed device'}, the machine has"
                f" {accelerator.name}"
            )
        return table
    return shipped(accelerator.name)
