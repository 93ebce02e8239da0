"""What is to be captured, as the processes that capture hand it to each other."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

SCRIPT, MODULE, FUNCTION = "script", "module", "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What the fake device says it is. memory_bytes: of it [bytes]. num_sms: streaming multiprocessors."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]
    num_sms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A program to be captured.

    kind: SCRIPT (a file), MODULE (python -m) or FUNCTION ("file or module:name"). target: it. arguments: of its command
    line. world: ranks. local_world: ranks of a server. ranks: that are captured; (): the first and the last of each
    stage. step: that is recorded, from 1, or a later one up to last_step, the first that is the one before once more.
    gpu: of each rank. stubs: packages that are replaced. loads: of each expert, relative to each other; (): all the
    same. library: of the fake device. folder: of what the processes exchange.
    """

    kind: str
    target: str
    arguments: tuple[str, ...]
    world: int
    local_world: int
    ranks: tuple[int, ...]
    step: int
    last_step: int
    gpu: Gpu
    stubs: tuple[str, ...]
    loads: tuple[float, ...]
    library: str
    folder: str

    def having(self, ranks: tuple[int, ...]) -> "Request":
        """Return it for other ranks."""
        return replace(self, ranks=ranks)

    def save(self) -> None:
        """Write it into its folder."""
        Path(self.folder, "request.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: str) -> "Request":
        """Return the request of a folder."""
        found = json.loads(Path(folder, "request.json").read_text())
        gpu = found.pop("gpu")
        lists = {key: tuple(found[key]) for key in ("arguments", "ranks", "stubs", "loads")}
        return cls(**{**found, **lists}, gpu=Gpu(**{**gpu, "capability": tuple(gpu["capability"])}))

    def record_path(self, rank: int) -> Path:
        """Return where the record of a rank is."""
        return Path(self.folder, f"rank-{rank}.json")

    def words_path(self, rank: int) -> Path:
        """Return where what a rank prints is."""
        return Path(self.folder, f"rank-{rank}.txt")
