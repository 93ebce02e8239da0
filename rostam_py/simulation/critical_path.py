"""The critical path of an iteration: a list of segments that shows itself briefly, however long it is."""

from dataclasses import dataclass

from rostam_py.html import html_table
from rostam_py.units import format_time

# Segments shown at each end of a longer path.
_NUM_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of the critical path.

    kind: "compute", a kind of process groups ("tp", "dp", ...), "launch" (latency, waiting for a stream), "host"
        (which launched kernels without a stop, up to the one that it names) or "bubble" (a controller held the job).
    device: accelerator id. start_s: from the start of the iteration [s]. duration_s: [s].
    """

    kind: str
    name: str
    stage: int
    device: int
    microbatch: int
    start_s: float
    duration_s: float


class CriticalPath(list[Segment]):
    """A list of segments, earliest first; as text, or in a notebook, it is its two ends and how to see the rest.

    Example:
        path = result.critical_path()
        print(path)                       # its two ends
        print(*path, sep="\\n")           # all of it
        sorted(path, key=lambda one: -one.duration_s)[:10]
    """

    def __repr__(self) -> str:
        """Return a line for each segment shown and one for those left out."""
        head, tail, left_out = self._shown()
        lines = [self._title(), *map(_line, head)]
        if left_out:
            lines += [f"  ... {left_out}", *map(_line, tail)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the two ends of the path as a table."""
        head, tail, left_out = self._shown()
        columns = ("from", "takes", "kind", "task", "stage", "accelerator", "micro-batch")
        rows: list[tuple[str, ...]] = [_cells(one) for one in head]
        if left_out:
            rows += [("", "", "", f"... {left_out}", "", "", ""), *map(_cells, tail)]
        return html_table(self._title(), rows, columns)

    def _shown(self) -> tuple[list[Segment], list[Segment], str]:
        """Return the segments at the two ends, and words for those between; the first list has all of a short path."""
        if len(self) <= 2 * _NUM_SHOWN + 1:
            return list(self), [], ""
        left_out = f'{len(self) - 2 * _NUM_SHOWN:,} segments left out; all: print(*path, sep="\\n");'
        left_out += " added up by task: result.critical_tasks()"
        return list(self)[:_NUM_SHOWN], list(self)[-_NUM_SHOWN:], left_out

    def _title(self) -> str:
        total = format_time(sum(one.duration_s for one in self)) if self else "0 s"
        return f"critical path: {len(self):,} {'segment' if len(self) == 1 else 'segments'}, {total}"


def _cells(one: Segment) -> tuple[str, ...]:
    where = (str(one.stage), str(one.device), str(one.microbatch))
    return (format_time(one.start_s), format_time(one.duration_s), one.kind, one.name, *where)


def _line(one: Segment) -> str:
    start, length, kind, name, stage, device, _ = _cells(one)
    return f"  {start:>10} + {length:<10} {kind:<8} {name} (stage {stage}, accelerator {device})"
