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

import statistics
from collections import Counter
from dataclasses import dataclass, field

from rostam_py.costs.accelerators import Accelerator
from rostam_py.costs.families import op_family
from rostam_py.costs.kernel_answers import Answer, AnswerChoices, KernelAnswers
from rostam_py.costs.kernel_kinds import CAUSAL_SHARE
from rostam_py.costs.kernel_shapes import KernelQuestion, question_of
from rostam_py.costs.kernel_table import KernelTable
from rostam_py.costs.limits import BY_ROOFLINE, ROOFLINE_RESIDUAL, KernelLimits, Residual, family_of
from rostam_py.costs.model import KernelCall
from rostam_py.costs.power import PRODUCTS, STEPS
from rostam_py.costs.programs import ATTENTION_PROGRAMS, BATCH_NORM_PROGRAMS, NORM_PROGRAMS, programs_of
from rostam_py.costs.recipes import AS_TABLED, RecipeMultiples, recipe_multiples
from rostam_py.costs.roofline import RooflineCost
from rostam_py.costs.sustained import CLOCKS, sustained_rates
from rostam_py.costs.times import cost_time
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph


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
        choices = AnswerChoices(config.attention, config.norms, config.batch_norms, config.clocks == "burst")
        given = _given_table(config.table, accelerator) if config.table else None
        recipes = recipes or (AS_TABLED if config.table else recipe_multiples())
        self.answers = KernelAnswers(accelerator, choices, recipes, given)
        plain = RooflineCost.Config(min_kernel_time=config.min_kernel_time, causal_share=CAUSAL_SHARE)
        self._roofline = RooflineCost(plain, accelerator)
        self._ops = {op.name: op for op in graph.ops}  # names outlive clean-up, ids do not
        self._calls: dict[int, tuple[KernelCall, KernelQuestion | None, Answer | None]] = {}
        self._tallies: dict[str, _Tally] = {}

    def duration_s(self, call: KernelCall) -> float:
        """Return the kernel's duration [s].

        Raises: ConfigError if the accelerator has no peak for the precision.
        """
        main = call.ops[0]
        _, answer = self._asked(call)
        if answer is None:
            answer = Answer(self._roofline.duration_s(call), BY_ROOFLINE)
        tally = self._tallies.setdefault(op_family(main.op_type, main.role), _Tally())
        tally.how[answer.how] += 1
        if answer.spread is not None:
            tally.spreads.append(answer.spread)
        return max(answer.seconds, self._floor_s)

    def seconds(self, asked: KernelQuestion) -> float:
        """Return how long a kernel of given sizes takes by the tables [s].

        Raises: ConfigError if no table has its kind.
        """
        answer = self.answers.answer(asked)
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
        if self.answers.power is None:
            return 0.0
        asked, answer = self._asked(call)
        if asked is None or answer is None:
            seconds = max(self._roofline.duration_s(call), self._floor_s)
            return self.answers.power.watts("", "", "", 0.0, call.bytes_read + call.bytes_written, seconds)
        moved = asked.moves_sums and self.accelerator.short_fp8_sums
        precision = f"{asked.precision}, sums moved" if moved else asked.precision
        return self.answers.power.watts(
            asked.kind, self.config.attention, precision, asked.count * asked.flops, asked.count * asked.traffic,
            max(answer.seconds, self._floor_s),
        )  # fmt: skip

    def follows_limit(self) -> str:
        """Return how times follow the accelerator's limit of power, as ``PoweredCost`` says."""
        if self.config.clocks == "burst" or self.config.table:
            return ""
        rates, accelerator = sustained_rates(), self.accelerator
        if self.answers.power is not None:
            return STEPS
        return PRODUCTS if any(rates.rate(accelerator, one) for one in accelerator.peak_flops_per_s) else ""

    def _asked(self, call: KernelCall) -> tuple[KernelQuestion | None, Answer | None]:
        """Return what the tables are asked about a kernel, and their answer; None where they have none.

        Kept for each call, since what bounds a kernel is asked after its time; the call is held as well, so that no
        other one gets its identity.
        """
        found = self._calls.get(id(call))
        if found is None:
            found = self._calls[id(call)] = (call, *self._look_up(call))
        return found[1:]

    def _look_up(self, call: KernelCall) -> tuple[KernelQuestion | None, Answer | None]:
        op = self._ops.get(call.ops[0].name)
        known = op if op is not None and op.op_type == call.ops[0].op_type else None
        others = [self._ops[one.name] for one in call.ops[1:] if one.name in self._ops]
        asked = question_of(call, known, self._graph, others)
        return asked, None if asked is None else self.answers.answer(asked)

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


def _residual(answer: Answer) -> Residual:
    """Return the error of an answer that is the median of some series.

    Model: the mean over the series of their errors on held-out rows, and the sources' spread. Of another kind of
        kernel, of another accelerator, or of too few rows to hold any out, the error is at least that of the roofline.
    """
    judged = [one.held_out for one in answer.used if one.held_out is not None]
    least = 0.0 if answer.is_own and judged else ROOFLINE_RESIDUAL.absolute
    signed = statistics.fmean(one.signed for one in judged) if judged else 0.0
    absolute = statistics.fmean(one.absolute for one in judged) if judged else least
    return Residual(signed, max(absolute, least), answer.spread or 0.0)


def _given_table(path: str, accelerator: Accelerator) -> KernelTable:
    """Return a table of the user's own.

    Raises: ConfigError if the table is of another accelerator.
    """
    table = KernelTable.load(path)
    if table.accelerator != accelerator.name:
        raise ConfigError(
            f"cost.table {path!r} was measured on {table.accelerator or 'an unnamed device'}, the machine has"
            f" {accelerator.name}"
        )
    return table
