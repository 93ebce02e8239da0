"""Command lines of training programs: what runs, with what words, and how many ranks torchrun would start.

Example:
    parse_command(["torchrun", "--nnodes", "8", "--nproc-per-node", "8", "train.py", "--lr", "1e-4"]).world     # 64
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rostam_py.capturing.request import MODULE, SCRIPT
from rostam_py.errors import ConfigError

_PYTHON = re.compile(r"python[0-9.]*")
_RUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
# torchrun's options without a value; all others have one.
_FLAGS = ("standalone", "run-path", "no-python", "module", "m", "use-env", "help", "h")
_OTHER_LAUNCHERS = ("accelerate", "deepspeed", "mpirun", "srun", "ray")
_DEVICES = 8  # of a server, where torchrun would count them


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program. kind, target, arguments: see Request. world: ranks, None where the words do not say. local_world: of a
    server.
    """

    kind: str
    target: str
    arguments: tuple[str, ...] = ()
    world: int | None = None
    local_world: int | None = None


def parse_command(words: Sequence[str]) -> Command:
    """Return what a command line runs.

    Raises: ConfigError for one without a script, a script that is not there, and launchers that are not known.
    """
    given = list(words)
    name = Path(given[0]).name if given else ""
    if name in _OTHER_LAUNCHERS:
        raise ConfigError(
            f"the program is started by {name}, whose words capture does not read; give what it starts, such as python"
            " train.py, and the number of ranks by --world"
        )
    if name == "torchrun":
        return _torchrun(given[1:])
    if _PYTHON.fullmatch(name):
        given = given[1:]
        while given and given[0] in ("-u", "-O", "-B", "-I", "-s"):
            given = given[1:]
        if given[:1] == ["-m"] and len(given) > 1:
            if given[1] in _RUN_MODULES:
                return _torchrun(given[2:])
            return Command(kind=MODULE, target=given[1], arguments=tuple(given[2:]))
    return _script(given)


def _script(words: Sequence[str]) -> Command:
    if not words or words[0].startswith("-"):
        raise ConfigError(
            f"the program is {' '.join(words)!r}; it must be a command line, such as: python train.py --layers 32,"
            " python -m package.train, torchrun --nnodes 8 --nproc-per-node 8 train.py"
        )
    if not Path(words[0]).is_file():
        raise ConfigError(f"the script {words[0]} is not there")
    return Command(kind=SCRIPT, target=words[0], arguments=tuple(words[1:]))


def _torchrun(words: Sequence[str]) -> Command:
    rest = list(words)
    options: dict[str, str] = {}
    while rest and rest[0].startswith("-"):
        word, _, value = rest.pop(0).lstrip("-").partition("=")
        key = word.replace("_", "-")
        if key in _FLAGS or value:
            options[key] = value
        elif rest:
            options[key] = rest.pop(0)
    local = _count(options.get("nproc-per-node", "1"), "nproc-per-node")
    world = local * _count(options.get("nnodes", "1").rpartition(":")[2], "nnodes")
    if "m" in options or "module" in options:
        if not rest:
            raise ConfigError("torchrun's words name no module to run")
        return Command(kind=MODULE, target=rest[0], arguments=tuple(rest[1:]), world=world, local_world=local)
    found = _script(rest)
    return Command(
        kind=found.kind, target=found.target, arguments=found.arguments, world=world, local_world=local
    )  # fmt: skip


def _count(value: str, key: str) -> int:
    if value in ("gpu", "auto"):
        return _DEVICES
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"torchrun's --{key} is {value!r}; it must be an integer >= 1")
    return int(value)
