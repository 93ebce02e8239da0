"""Progress of a sweep on a terminal: points done, rate, time left; in a log file one line now and then."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rostam_py.cli.progress_lines import ProgressLines
from rostam_py.sweep import Tally
from rostam_py.units import format_number_of


class SweepProgress:
    """A context that shows a Tally. console: of stderr. title: of the sweep."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._lines = ProgressLines(console)
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TextColumn("{task.fields[left]}"),
        )  # fmt: skip
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task: Any = self._progress.add_task("starting", total=None, rate="", left="")

    def __enter__(self) -> "SweepProgress":
        self._progress.start()
        self._lines.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.__exit__(kind, error, trace)
        self._progress.stop()

    def say(self, text: str) -> None:
        """Show what happens besides points."""
        self._progress.update(self._task, description=text)
        self._lines.say(text)
        if not self._console.is_terminal:
            self._console.print(text, highlight=False, markup=False)

    def show(self, text: str) -> None:
        """Print a line that stays, above the bar on a terminal."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, tally: Tally) -> None:
        """Show how far the sweep is."""
        finished = tally.stored + tally.done
        rate = f"{tally.rate_per_s:.3g} points/s" if tally.done else ""
        left = "" if tally.left_s is None else f"{_clock(tally.left_s)} left"
        troubles = [f"{tally.errors:,} failed"] if tally.errors else []
        troubles += [f"{format_number_of(tally.lost, 'point')} begun by workers that died"] if tally.lost else []
        description = ", ".join(["points", *troubles])
        self._progress.update(
            self._task, description=description, completed=finished, total=tally.total, rate=rate, left=left
        )
        parts = (f"{finished:,} of {tally.total:,} {description}", rate, left)
        self._lines.say(", ".join(part for part in parts if part))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
