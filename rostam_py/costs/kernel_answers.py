"""KernelAnswers: how long kernels take on one accelerator by the kernel tables, of its own and of others.

Model: as ``calibrated`` says: the median of the sources that answer (``kernel_sources``), and what stands in for rows
that no table has.

Example:
    choices = AnswerChoices("best", "fused", "pytorch", is_burst=False)
    answers = KernelAnswers(ACCELERATORS["h100_80gb"], choices, recipe_multiples())
    answers.answer(question).seconds           # None in place of an answer: no table has the kind
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rostam_py.costs.accelerators import ACCELERATORS, Accelerator
from rostam_py.costs.convolutions import Convolution, tilings
from rostam_py.costs.kernel_kinds import kernel_kind
from rostam_py.costs.kernel_readings import (
    Reading,
    log_median,
    on_its_device,
    question_beside,
    question_inside,
    reading_of,
    times_of_origins,
)
from rostam_py.costs.kernel_shapes import KernelQuestion, as_one_product, products_of_groups, stage_of
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
from rostam_py.costs.limits import UNVERIFIED
from rostam_py.costs.power import power_model
from rostam_py.costs.programs import Programs, family_of_programs, of_programs, programs_of
from rostam_py.costs.recipes import RecipeMultiples, recipe_multiples
from rostam_py.costs.sustained import sustained_rates

_ADDING_BYTES = 8.0  # of an fp32 output that is read and written
_WIDER = {"fp8": "bf16", "mxfp8": "bf16", "nvfp4": "bf16"}


@dataclass(slots=True)
class Answer:
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
class AnswerChoices:
    """Whose kernels a program calls, and whether they run at the clocks at which they were measured one by one."""

    attention: str
    norms: str
    batch_norms: str
    is_burst: bool

    def programs(self, *, is_bf16: bool) -> Programs:
        """Return the programs of each family of kernels."""
        return programs_of(self.attention, self.norms, self.batch_norms, is_bf16=is_bf16)


class KernelAnswers:
    """Answer questions about kernels; each is answered once.

    Args:
        recipes: how many times tables' rows products take by their recipes.
        given: a table of the user's own, which is left as it was measured; without one the accelerator's shipped one.
    Attributes: own: the table of the two. power: what kernels draw, None where that is not known or not asked.
    """

    def __init__(
        self, accelerator: Accelerator, choices: AnswerChoices, recipes: RecipeMultiples,
        given: KernelTable | None = None,
    ) -> None:  # fmt: skip
        self.accelerator, self._choices, self._recipes = accelerator, choices, recipes
        self.own = shipped(accelerator.name) if given is None else given
        self._is_burst, self._is_given = choices.is_burst, given is not None
        self.power = None if self._is_burst or self._is_given else power_model(accelerator)
        measured_w = 0.0 if self.power is None else self.power.idle_w + self.power.held_w
        # Under a lower limit it is the step whose kernels are slowed.
        self._timed = replace(accelerator, watts=max(accelerator.watts, measured_w)) if self.power else accelerator
        self._programs, self._programs_of_bf16 = (choices.programs(is_bf16=is_bf16) for is_bf16 in (False, True))
        self._sources, self._sources_of_bf16 = (
            KernelSources(accelerator, self.own, programs, is_given=self._is_given)
            for programs in (self._programs, self._programs_of_bf16)
        )
        self._others: dict[str, KernelAnswers] = {}  # that lend multiples
        self._known: dict[KernelQuestion, Answer | None] = {}

    def answer(self, asked: KernelQuestion) -> Answer | None:
        """Return the median over sources, None where no table has the kind."""
        if asked not in self._known:
            self._known[asked] = self._median(asked)
        return self._known[asked]

    def _asked_for(self, asked: KernelQuestion) -> tuple[KernelSources, Programs]:
        """Return the sources that answer, and the programs whose kernels they should be."""
        if asked.is_bf16:
            return self._sources_of_bf16, self._programs_of_bf16
        return self._sources, self._programs

    def _of_another(self, name: str) -> "KernelAnswers":
        """Return the answers for another accelerator, by its shipped table."""
        return KernelAnswers(ACCELERATORS[name], self._choices, recipe_multiples())

    def _median(self, asked: KernelQuestion) -> Answer | None:
        if self.own is None and not self.accelerator.multiprocessors:
            return None
        if asked.convolution is not None:
            return self._convolution(asked, asked.convolution)
        sources, programs = self._asked_for(asked)
        series = sources.of(asked.kind, asked.precision)
        each = products_of_groups(asked)
        if each is not None and all(one.lender or one.series.distances(asked.columns)[0] for one in series):
            return self._as_products(asked, each)
        if not series:
            return None
        found = self._found(asked, series)
        nearest = min(one.distance for one in found)
        used = [one for one in found if one.distance <= nearest]
        times = times_of_origins(used)
        log_s = log_median(found, nearest, kernel_kind(asked.kind).tolerance)
        spreads = [max(times) / min(times) - 1] if len(times) > 1 else [one.spread for one in found if one.spread > 0]
        how = "interpolated" if nearest == 0 else "extrapolated"
        is_lent = all(one.source.lender for one in used)
        if names := ", ".join(sorted({one.source.lender for one in used if one.source.lender})):
            how += f" {'from' if is_lent else 'with rows of'} {names}"
        kind = used[0].source.series.kind
        how += "" if kind == asked.kind else f" by rows of kind {kind}"
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
        return Answer(
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
            self.answer(KernelQuestion(kind="elementwise", sizes=(moved,), precision="", flops=0.0, traffic=moved))
            for moved in (asked.traffic + asked.extra, asked.traffic)
        )
        times = [0.0 if one is None else one.seconds for one in both]
        return max(times[0] - times[1], asked.extra / self.accelerator.memory_bandwidth_bytes_per_s)

    def _convolution(self, asked: KernelQuestion, convolution: Convolution) -> Answer | None:
        """Return the time of a convolution, of each of its stages one after another.

        Model: as measured in 16 bits, of tf32 by those rows; else that of its product, in tiles where it has several
            taps.
        """
        total = Answer(0.0, "")
        for stage in convolution.stages:
            answer = self.answer(stage_of(asked, convolution, stage))
            if answer is None:
                plain = replace(asked, convolution=None)
                return self._in_tiles(asked, convolution) if convolution.taps > 1 else self.answer(plain)
            total = replace(answer, seconds=answer.seconds + total.seconds, used=(*answer.used, *total.used))
        return replace(total, seconds=total.seconds + asked.count * self._extra_s(asked)) if asked.extra else total

    def _in_tiles(self, asked: KernelQuestion, convolution: Convolution) -> Answer | None:
        """Return the time of a convolution of several taps, each stage in the tiles that are fastest.

        Model: the longer of what its tiles take to load through the level-two cache and of a product of as many outputs
            in a square, which fills whole tiles, and the same contraction, that moves the convolution's bytes and does
            the work of whole tiles. A kernel of few channels is bound by its loads, whatever measured products are.
        """
        rate, total = self.accelerator.cache_bandwidth_bytes_per_s, Answer(0.0, "")
        for stage in convolution.stages:
            found: list[Answer] = []
            for tiling in tilings(convolution, stage, self.accelerator.multiprocessors):
                side = math.sqrt(tiling.outputs)
                sizes = (1.0, side, side, tiling.contraction, *asked.sizes[4:])
                square = replace(asked, sizes=sizes, flops=tiling.flops, count=1, convolution=None)
                answer = self.answer(square)
                if answer is None:
                    return None
                loads_s = tiling.cache_bytes / rate if rate else 0.0
                loaded = Answer(loads_s, f"by loads of tiles from the cache, {UNVERIFIED}", used=answer.used)
                found.append(loaded if loads_s > answer.seconds else replace(answer, how=f"{answer.how}, in tiles"))
            best = min(found, key=lambda one: one.seconds)
            total = replace(best, seconds=best.seconds + total.seconds)
        return total

    def _as_products(self, asked: KernelQuestion, each: KernelQuestion) -> Answer | None:
        """Return the time of a grouped product of no measured size, or on an accelerator where none was measured.

        Model: that of its groups' products one after another, as Transformer Engine calls cuBLAS for each, times what
            measured ones of the nearest size take of that (in 16 bits); once, where none is measured on the same matrix
            units. Never less than one product of all rows.
        Args: each: its groups' products.
        """
        one_by_one = self.answer(each)
        if one_by_one is None:
            return None
        multiple, used, basis = self._multiple(asked) if each.count > 1 else (1.0, (), "of which it has one")
        whole = self.answer(as_one_product(asked))
        least_s = max(asked.count * self._sustained_s(asked), 0.0 if whole is None else whole.seconds)
        seconds = max(one_by_one.seconds * multiple, least_s)
        how = f"as products of each group, {basis or UNVERIFIED}"
        return Answer(seconds, how, one_by_one.spread, one_by_one.fixed_share, (*used, *one_by_one.used))

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
        nearest = question_inside(asked, precision, series)
        each = products_of_groups(nearest)
        measured, loop = self.answer(nearest), None if each is None else self.answer(each)
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
            self._others[name] = self._of_another(name)
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
        if self._is_burst or self._is_given or not asked.flops:
            return 0.0
        rate = sustained_rates().rate(self._timed, asked.precision)
        return asked.flops / rate if rate else 0.0

    def _found(self, asked: KernelQuestion, sources: list[Source]) -> list[Reading]:
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
            own = self.answer(question_beside(asked, beside))
            multiples = [] if own is None else [self._multiple_of(own, one, asked, is_outside) for one in sources]
            if kept := [one for one in multiples if one is not None]:
                return kept
        return found

    def _by_heads(self, asked: KernelQuestion, sources: Sequence[Source], found: list[Reading]) -> list[Reading]:
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
            few, many = ([on_its_device(other.series, which) for other in others] for which in (asked, whole))
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

    def _multiple_of(self, own: Answer, source: Source, asked: KernelQuestion, is_outside: bool) -> Reading | None:
        """Return an own time of the kind beside, times a source's ratio; None where it has no rows of that kind.

        Model: the ratio is that of the device measured, whatever the own one's speed: the time follows the kind beside.
        Args: is_outside: the ratio is that of the nearest size that the source measured.
        """
        one, table = source.series, shipped(source.lender) if source.lender else self.own
        beside = kernel_kind(asked.kind).beside
        pair = [
            other for other in matching(table, beside, one.precision)
            if other.source.split()[0] == one.source.split()[0] and other.program == one.program
        ]  # fmt: skip
        if not pair:
            return None
        columns = (question_inside(asked, asked.precision, [one]) if is_outside else asked).columns
        seconds, beside_s = (it.seconds_of(it.heard(columns))[0] for it in (one, pair[0]))
        distance = float(one.distances(one.heard(asked.columns))[0])
        seconds = own.seconds * float(seconds / beside_s)
        return Reading(source, distance, seconds, one.source_spread, own.fixed_share, own.weight)

    def _asked_here(self, source: Source, asked: KernelQuestion) -> Reading:
        """Return what a source says of a question on the own accelerator, under its limit of power."""
        lender = ACCELERATORS.get(source.lender, self.accelerator)
        speed = 1.0 if self._is_burst else sustained_rates().slowed(self._timed, lender)
        found = reading_of(source, asked, self.accelerator, speed)
        if asked.kind != "product" or asked.sizes[-1] < _ADDING_BYTES or np.ptp(source.series.columns["out_bytes"]) > 0:
            return found
        # A source without such products answers for those that write their output once.
        multiple = self._recipes.of_adding(self.accelerator, asked.precision)
        return replace(found, seconds=found.seconds * multiple)
