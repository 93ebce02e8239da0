"""Role: ranks that run the same, what they run, in which order, and what memory that takes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.plan.program import Entry, Segment
from rostam_py.plan.program import Program as Order
from rostam_py.plan.tasks import MEMORY_PARTS
from rostam_py.programs.steps import PREVIOUS, STREAM, Step
from rostam_py.units import parse_size

ONE_PHASE = "iteration"  # what the phase of a role is called that has one alone
TOTAL = "total"  # of memory that is not told by part
PEAK = "peak"  # of memory, of which parts may be told: what they leave is activations
_MOST = 2**31 - 1
Written = str | tuple[str, int]  # a phase, or (phase, micro-batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Phases that run several times, their micro-batches ``stride`` higher each time.

    run: phases, or (phase, micro-batch of the first time). times: how often.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    run: tuple[Written, ...]
    times: int
    stride: int = 1

    def __post_init__(self) -> None:
        for key in ("times", "stride"):
            value = getattr(self, key)
            if not is_integer(value) or not 1 <= value <= _MOST:
                raise ConfigError(f"{key} is {value!r}; it must be an integer from 1 to {_MOST}")
        if not self.run:
            raise ConfigError("run is empty; it must name at least one phase")


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Ranks that run the same.

    ranks: as ``expand_ranks`` reads them; None: all. phases: name -> steps. iteration: phases in the order in which
    they run; a phase without a micro-batch runs the next one. memory: what a rank needs at its peak, by part of
    plan.tasks.MEMORY_PARTS, or TOTAL, or PEAK with some parts [bytes or text]. after: what steps without an ``after``
    wait for in addition to their own stream: PREVIOUS, the step before, or STREAM, nothing.
    """

    phases: Mapping[str, tuple[Step, ...]]
    iteration: tuple[Written | Repeat, ...] = (ONE_PHASE,)
    ranks: tuple[int | str, ...] | None = None
    memory: Mapping[str, int | str] = field(default_factory=dict)
    after: str = PREVIOUS

    def __post_init__(self) -> None:
        if not self.phases:
            raise ConfigError("phases is empty; a role has at least one")
        if self.after not in (PREVIOUS, STREAM):
            raise ConfigError(f"after is {self.after!r}; it must be one of: {PREVIOUS}, {STREAM}")
        sizes = {part: parse_size(size, f"memory.{part}") for part, size in self.memory.items()}
        for part in sizes:
            if part not in (*MEMORY_PARTS, TOTAL, PEAK):
                raise ConfigError(f"memory.{part} is unknown; parts are: {', '.join((*MEMORY_PARTS, TOTAL, PEAK))}")
        if TOTAL in sizes and len(sizes) > 1:
            others = ", ".join(part for part in sizes if part != TOTAL)
            raise ConfigError(f"memory has {TOTAL} besides {others}; give the sum, or its parts, or {PEAK} with some")
        told = sum(size for part, size in sizes.items() if part != PEAK)
        if told > sizes.get(PEAK, told):
            raise ConfigError(f"memory.{PEAK} is {sizes[PEAK]}, but its parts sum to {told} bytes; it must be no less")
        object.__setattr__(self, "memory", sizes)
        self.order  # noqa: B018  # refuses what cannot be

    @property
    def has_one_phase(self) -> bool:
        """Whether it runs one phase once, which a file has as ``steps``."""
        return tuple(self.phases) == (ONE_PHASE,) and self.iteration == (ONE_PHASE,)

    def place(self, phase: str) -> str:
        """Return where in a role the steps of a phase stand, for errors."""
        return "steps" if self.has_one_phase else f"phases.{phase}"

    @property
    def memory_bytes(self) -> int:
        """What a rank needs at its peak [bytes]; 0 where that is not said."""
        if PEAK in self.memory:
            return parse_size(self.memory[PEAK])
        return sum(parse_size(size) for size in self.memory.values())

    @property
    def memory_parts(self) -> dict[str, int]:
        """The same by part, of plan.tasks.MEMORY_PARTS [bytes]; empty where no parts are told."""
        parts = {part: parse_size(size) for part, size in self.memory.items() if part not in (TOTAL, PEAK)}
        if PEAK in self.memory and parts:
            left = self.memory_bytes - sum(parts.values())
            parts["activations"] = parts.get("activations", 0) + left
        return parts

    @property
    def order(self) -> Order:
        """The order of its phases, as a plan has it.

        Raises: ConfigError for a phase that there is not, and micro-batches that cannot be told.
        """
        following: Counter[str] = Counter()
        segments: list[Segment] = []
        single: list[Entry] = []
        for place, entry in enumerate(self.iteration):
            if isinstance(entry, Repeat):
                if single:
                    segments.append(Segment(tuple(single)))
                    single = []
                segments.append(self._repeated(entry, following, f"iteration[{place}]"))
            else:
                single += self._entries([entry], following, f"iteration[{place}]")
        if single:
            segments.append(Segment(tuple(single)))
        if not segments:
            raise ConfigError("iteration is empty; it must name at least one phase")
        return Order(tuple(segments))

    def _repeated(self, repeat: Repeat, following: Counter[str], place: str) -> Segment:
        unsaid = Counter(entry for entry in repeat.run if isinstance(entry, str))
        for name, count in unsaid.items():
            if count > 1 and repeat.times > 1 and count != repeat.stride:
                raise ConfigError(
                    f"{place}.run names {name!r} {count} times, but stride is {repeat.stride}; set stride to {count},"
                    " or give micro-batches"
                )
        entries = tuple(self._entries(repeat.run, following, f"{place}.run"))
        last = (repeat.times - 1) * repeat.stride
        if max(number for _, number in entries) + last > _MOST:
            raise ConfigError(f"{place} reaches micro-batches above {_MOST}; lower times or stride")
        for name in {name for name, _ in entries}:
            following[name] += last
        return Segment(entries, repeat.times, repeat.stride)

    def _entries(self, run: Sequence[Written], following: Counter[str], place: str) -> Iterator[Entry]:
        for entry in run:
            name, number = (entry, following[entry]) if isinstance(entry, str) else entry
            if name not in self.phases:
                raise ConfigError(f"{place} names {name!r}; phases are: {', '.join(self.phases)}")
            if not 0 <= number <= _MOST:
                raise ConfigError(f"{place} has micro-batch {number!r}; it must be an integer from 0 to {_MOST}")
            following[name] = max(following[name], number + 1)
            yield name, number
