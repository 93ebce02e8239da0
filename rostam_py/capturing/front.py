"""rostam.capture: a user's own training program, run on the CPU without a GPU or a network, as a Program.

Example:
    program = rostam.capture(["python", "train.py", "--layers", "32"], world=64)
    print(program.messages())
    result = rostam.simulate(program.on(rostam.machine("dgx_h100", servers=8)))

The program is run: nothing is sandboxed. What comes out is data, which nothing runs.
"""

import inspect
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rostam_py.capturing.command import Command, parse_command
from rostam_py.capturing.expert_loads import read_loads
from rostam_py.capturing.gpus import gpu_of
from rostam_py.capturing.grouping import GroupSets, stage_of_ranks
from rostam_py.capturing.library import installed_torch, library_of
from rostam_py.capturing.likeness import check_repeats
from rostam_py.capturing.records import Record, error_of
from rostam_py.capturing.request import FUNCTION, Request
from rostam_py.capturing.roles import middle, ranks_by_role
from rostam_py.capturing.writing import FORMAT, VERSION, KernelNames, RoleWriter, group_records, written_ranks
from rostam_py.checks import is_integer
from rostam_py.documents import write_document
from rostam_py.errors import ConfigError
from rostam_py.programs import Program

# It is compared with the one before, which begins where another one ended; some programs do once in their second or
# third step what no other step does.
LEAST_STEP, MOST_STEP = 3, 6
DEFAULT_GPU = "h100_80gb"
TRITON = "triton"  # replaced always: its kernels are recorded by name
_SERVER = 8  # ranks of one, where the program does not say
_MOST_ROUNDS = 24  # captures of one more rank, where ranks of a stage differ
_SHOWN = 20  # lines of a program's last words


def capture(
    program: Sequence[str] | Callable[[], Any],
    *,
    world: int | None = None,
    step: int | None = None,
    ranks: Sequence[int] | None = None,
    gpu: str = DEFAULT_GPU,
    stub: Sequence[str] = (),
    splits: str | Path = "balanced",
    assume_bandwidth: Sequence[str] = (),
) -> Program:
    """Return what the ranks of a training program run in one of its steps; the program is run, on this CPU.

    Model: every distinct rank runs in a process of its own, on a fake CUDA device and in process groups that do not
        communicate; a step is what lies between two ends of an optimizer's step. Peers are taken to be alike.
    Args:
        program: its command line, ["python", "train.py", ...], with -m or torchrun; or a function that trains, which
            can be imported.
        world: number of ranks; by default as torchrun's words say.
        step: that is recorded, from 1, and must be the one before once more; by default the first from 3 to 6 that is.
        ranks: that are captured; by default the first and the last of each pipeline stage, and others if these differ.
        gpu: what the fake device says it is (rostam list accelerators).
        stub: packages that need a GPU to be imported, and are replaced.
        splits: how routers spread tokens: "balanced", or a JSON file with the share of every expert.
        assume_bandwidth: ops without a cost, that are priced by their bytes.
    Raises: ConfigError for a program that fails, ends early or does not repeat its steps, and for what is not modelled.
    Cost: import of torch once; then a process for each captured rank, some ms for each op of it.
    Source: own; tests/capturing compares with torch's own processes.
    """
    with tempfile.TemporaryDirectory(prefix="rostam-capture-") as folder:
        request = _request(
            program, folder, world=world, step=step, ranks=ranks, gpu=gpu, stub=stub, splits=splits
        )  # fmt: skip
        path = Path(folder, "program.json")
        write_document(path, captured_document(request, assume_bandwidth))
        try:
            return Program.load(path)
        except ConfigError as error:
            raise ConfigError(str(error).replace(str(path), f"what {request.target} runs")) from error


def _request(
    program: Sequence[str] | Callable[[], Any], folder: str, *, world: int | None, step: int | None,
    ranks: Sequence[int] | None, gpu: str, stub: Sequence[str], splits: str | Path,
) -> Request:  # fmt: skip
    first, last = (LEAST_STEP, MOST_STEP) if step is None else (step, step)
    if not is_integer(first) or first < LEAST_STEP:
        raise ConfigError(
            f"step is {step!r}; it must be an integer >= {LEAST_STEP}: it is compared with the step before, which is"
            " recorded from the end of the one before that"
        )
    command = _function_command(program) if callable(program) else parse_command(program)
    size = _world_size(command, world)
    return Request(
        kind=command.kind, target=command.target, arguments=command.arguments, world=size,
        local_world=min(size, command.local_world or _SERVER), ranks=_checked_ranks(ranks, size), step=first,
        last_step=last,
        gpu=gpu_of(gpu), stubs=tuple(dict.fromkeys([TRITON, *stub])), loads=read_loads(splits),
        library=str(library_of(installed_torch())),
        folder=folder,
    )  # fmt: skip


def captured_document(request: Request, assumed: Sequence[str]) -> dict[str, Any]:
    """Return the document of a program, whose distinct ranks are captured until all ranks are known."""
    wanted = request.ranks
    for _ in range(_MOST_ROUNDS):
        run_host([request.having(wanted)])
        records = _records(request)
        sets = GroupSets(request.world)
        stages = stage_of_ranks(records, sets, request.world)
        roles, gap = ranks_by_role(records, stages, are_given=bool(request.ranks))
        if gap is None:
            return _document(request, roles, sets, assumed)
        wanted = (middle(gap, stages),)
    raise ConfigError(
        f"more than {_MOST_ROUNDS} kinds of ranks run differently; name those that stand for the ones after them by"
        " --ranks"
    )


def _document(
    request: Request, roles: dict[str, tuple[Record, list[int]]], sets: GroupSets, assumed: Sequence[str]
) -> dict[str, Any]:  # fmt: skip
    kernels = KernelNames()
    written = {name: RoleWriter(record, sets, kernels).write() for name, (record, _) in roles.items()}
    captured = ", ".join(str(record.rank) for record, _ in roles.values())
    step = max(record.step for record, _ in roles.values())
    return {
        "format": FORMAT, "version": VERSION, "name": Path(request.target).stem, "num_ranks": request.world,
        "host": "eager",  # as the script ran; a compiled function is called op by op, too
        "description": ". ".join([f"Step {step} of {request.target}, captured of ranks {captured}", *_notes(roles)]),
        "groups": group_records(sets), "kernels": kernels.records(assumed),
        "roles": {
            name: {
                "ranks": written_ranks(ranks), "after": "stream",
                "memory": {"peak": record.held_bytes, "reserved": record.held_bytes - record.peak_bytes},
                "steps": written[name],
            }
            for name, (record, ranks) in roles.items()
        },
    }  # fmt: skip


def _notes(roles: dict[str, tuple[Record, list[int]]]) -> list[str]:
    """Return what a reader should know of what was captured."""
    records = [record for record, _ in roles.values()]
    unknown: Counter[str] = Counter()
    for record in records:
        unknown.update(dict.fromkeys(record.unknown, 1))
    found = []
    if unknown:
        lines = ", ".join(list(unknown)[:_SHOWN])
        found.append(f"Values that are not known were read, as 1, at {lines}")
    regions = max(sum(kind == "region" for kind, _, _ in record.rows) for record in records)
    if regions:
        found.append(f"{regions} calls of compiled functions run their ops one by one: torch.compile would fuse some")
    return found


def run_host(requests: Sequence[Request]) -> None:
    """Run the process that forks the ranks of requests, one after another. Raises: ConfigError where it fails."""
    for one in requests:
        one.save()
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    folders = [one.folder for one in requests]
    done = subprocess.run(
        [sys.executable, "-m", "rostam_py.capturing.host", *folders], capture_output=True, text=True, errors="replace",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    if done.returncode:
        raise ConfigError(f"capture cannot start: {done.stderr.strip()[-2000:]}")


def _records(request: Request) -> list[Record]:
    """Return the records of the captured ranks, each of whose steps repeats. Raises: ConfigError where one failed."""
    paths = sorted(Path(request.folder).glob("rank-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
    for path in paths:
        error = error_of(path)
        if error:
            rank = int(path.stem.partition("-")[2])
            words = request.words_path(rank).read_text(errors="replace").splitlines()[-_SHOWN:]
            said = "; the last that it prints:\n" + "\n".join(words) if words else ""
            raise ConfigError(f"rank {rank} of {request.world}: {error}{said}")
    records = [Record.load(path) for path in paths]
    for record in records:
        check_repeats(record)
    return records


def _function_command(function: Callable[[], Any]) -> Command:
    """Return a function as its module or file and its name."""
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise ConfigError(
            f"the program is {function!r}; a function that is captured runs in other processes, and has to stand at the"
            " top of a module or script"
        )
    module = function.__module__
    where = inspect.getsourcefile(function) or "" if module == "__main__" else module
    return Command(kind=FUNCTION, target=f"{where}:{name}")


def _world_size(command: Command, world: int | None) -> int:
    if world is None:
        if command.world is None:
            raise ConfigError("world is not given: how many ranks the program runs on; torchrun's words say it as well")
        return command.world
    if not is_integer(world) or world < 1:
        raise ConfigError(f"world is {world!r}; it must be an integer >= 1")
    if command.world is not None and command.world != world:
        raise ConfigError(f"world is {world}, but torchrun's words start {command.world} ranks; leave one out")
    return int(world)


def _checked_ranks(ranks: Sequence[int] | None, world: int) -> tuple[int, ...]:
    found = tuple(sorted(set(ranks or ())))
    for rank in found:
        if not is_integer(rank) or not 0 <= rank < world:
            raise ConfigError(f"ranks has {rank!r}; ranks of the program are 0 to {world - 1}")
    return found
