"""Lines for log files: where a long command is, every ten seconds, while nothing draws on a terminal."""

import threading
import time
from types import TracebackType

from rich.console import Console

EVERY_S = 10.0


class ProgressLines:
    """A context that prints its latest text now and then, from a thread: a single step may take longer.

    console: of stderr; nothing is printed where it is a terminal.
    """

    def __init__(self, console: Console, text: str = "starting") -> None:
        self._console, self._text = console, text
        self._begin = time.monotonic()
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._print_on, daemon=True, name="progress lines")

    def __enter__(self) -> "ProgressLines":
        if not self._console.is_terminal:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def say(self, text: str) -> None:
        """Set what the next lines say."""
        self._text = text

    def _print_on(self) -> None:
        while not self._is_done.wait(EVERY_S):
            elapsed = round(time.monotonic() - self._begin)
            self._console.print(f"{elapsed:,} s: {self._text}", highlight=False, markup=False, soft_wrap=True)
