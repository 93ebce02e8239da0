"""Programs captured by tests: each script once a worker, as the document that rostam.capture loads."""

import functools
import tempfile
from collections import Counter
from pathlib import Path

from rostam_py.capturing.front import DEFAULT_GPU, _request, captured_document

ROOT = Path(__file__).parents[2]
EXAMPLES, SCRIPTS = ROOT / "examples", Path(__file__).parent / "scripts"


@functools.cache
def document(
    script: Path, world: int, *words: str, ranks: tuple[int, ...] | None = None, step: int | None = None,
    assumed: tuple[str, ...] = (),
) -> dict:  # fmt: skip
    """Return a script's program, as its file has it. Args: words: of its command line."""
    with tempfile.TemporaryDirectory() as folder:
        request = _request(
            ["python", str(script), *words], folder, world=world, step=step, ranks=ranks, gpu=DEFAULT_GPU, stub=(),
            splits="balanced",
        )  # fmt: skip
        return captured_document(request, assumed)


def steps_of(program: dict, role: str | None = None) -> list[dict]:
    """Return the steps of a role, by default of the only one."""
    (only,) = [role] if role else program["roles"]
    return program["roles"][only]["steps"]


def collectives_of(steps: list[dict]) -> list[tuple[str, int, str]]:
    """Return (collective, bytes, stream) of a role's collectives, in order; "own" where it is the communicator's."""
    return [
        (one["collective"], one["num_bytes"], one.get("stream", "own")) for one in steps if one["kind"] == "collective"
    ]


def counted(steps: list[dict]) -> Counter:
    """Return the collectives of a role, counted."""
    return Counter(collectives_of(steps))


def messages_of(steps: list[dict]) -> list[tuple[str, int, int]]:
    """Return (send or recv, bytes, peer) of a role's messages in order, those of batches too."""
    found = []
    for one in steps:
        for message in one["messages"] if one["kind"] == "batch" else [one]:
            if message["kind"] in ("send", "recv"):
                found.append((message["kind"], message["num_bytes"], message["peer"]))
    return found
