"""The process that imports torch on the fake device once, and forks one process for each rank that is captured.

python -m rostam_py.capturing.host FOLDER       (with a request in it)
"""

import contextlib
import importlib
import json
import multiprocessing
import multiprocessing.connection
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rostam_py.capturing.library import load_library
from rostam_py.capturing.request import Request

# Parts of torch that look for triton at import; they do so before a stub of it stands in.
_LOOK_FOR_TRITON = (
    "torch.utils.flop_counter", "torch.nn.attention.flex_attention", "torch._inductor.config",
    "torch._inductor.runtime.triton_compat",
)  # fmt: skip
_MOST_RANKS = 128  # that are captured


class _Ranks:
    """The processes of ranks."""

    def __init__(self, request: Request, library: Any, run: Any) -> None:
        self._request, self._library, self._run = request, library, run
        self._context: Any = multiprocessing.get_context("fork")
        self._processes: dict[int, Any] = {}
        self._pipes: dict[int, Any] = {}
        self._are_too_many = False

    def start(self, rank: int) -> None:
        """Fork a rank, unless it runs or has run; one too many ends all."""
        if rank in self._processes:
            return
        if len(self._processes) >= _MOST_RANKS:
            said = f"it would be captured as well, but {_MOST_RANKS} ranks are; name fewer by --ranks"
            self._request.record_path(rank).write_text(json.dumps({"rank": rank, "error": said}))
            self._are_too_many = True
            return
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=self._run, args=(self._request, rank, self._library, theirs))
        process.start()
        theirs.close()
        self._processes[rank], self._pipes[rank] = process, ours

    def wait(self) -> None:
        """Start what ranks ask for until all have ended; the first that fails ends the others."""
        running = dict(self._processes)
        while running:
            sentinels = {one.sentinel: rank for rank, one in running.items()}
            pipes = {pipe: rank for rank, pipe in self._pipes.items()}
            for found in multiprocessing.connection.wait([*sentinels, *pipes]):
                if found in pipes:
                    self._asked(pipes[found])
            running = {rank: one for rank, one in self._processes.items() if one.is_alive()}
            if self._are_too_many or any(self._has_failed(rank) for rank in self._processes if rank not in running):
                for one in running.values():
                    one.terminate()
                return

    def _asked(self, rank: int) -> None:
        try:
            wanted = json.loads(self._pipes[rank].recv())
        except (EOFError, OSError):
            self._pipes.pop(rank).close()
            return
        for one in wanted["ranks"]:
            self.start(one)

    def _has_failed(self, rank: int) -> bool:
        process = self._processes[rank]
        process.join()
        path = self._request.record_path(rank)
        if process.exitcode or not path.exists():
            path.write_text(json.dumps({"rank": rank, "error": f"its process ended with status {process.exitcode}"}))
            return True
        with path.open() as file:
            return '"error": ""' not in file.read(200)


def main(folders: Sequence[str]) -> None:
    """Capture what the requests in folders say, one after another. Args: folders: of one library."""
    requests = [Request.load(folder) for folder in folders]
    library = load_library(Path(requests[0].library))
    for name in _LOOK_FOR_TRITON:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    run = importlib.import_module("rostam_py.capturing.rank").run_rank
    importlib.import_module("torch").set_num_threads(1)
    for request in requests:
        ranks = _Ranks(request, library, run)
        for rank in request.ranks or sorted({0, request.world - 1}):
            ranks.start(rank)
        ranks.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
