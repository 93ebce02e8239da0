"""Program files: versioned JSON that a person reads and writes; what is left out takes its default.

A file is data: it names ops, collectives and algorithms that rostam knows, and nothing in it is run.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from rostam_py.documents import Reader, parse_json, read_text, write_text
from rostam_py.errors import ConfigError
from rostam_py.plan.host import DEFAULT_HOST
from rostam_py.programs.data import ProgramData
from rostam_py.programs.groups import RankGroups
from rostam_py.programs.kernels import Kernel
from rostam_py.programs.roles import ONE_PHASE, TOTAL, Repeat, Role, Written
from rostam_py.programs.steps import PREVIOUS, Batch, BatchMessage, Collective, Compute, Receive, Send, Wait

FORMAT, VERSION = "rostam-program", 2
_FIRST = 1  # version in which a collective's stream was a communicator of its own
STEPS: dict[str, type] = {
    "compute": Compute, "wait": Wait, "collective": Collective, "send": Send, "recv": Receive, "batch": Batch,
}  # fmt: skip


def _tag(value: Any) -> str | None:
    """Return what tells kinds of steps apart; in brackets, so that it is not taken for a key of the file."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return f"({kind})" if isinstance(kind, str) and kind in STEPS else None


def _entry_tag(value: Any) -> str | None:
    """Return what tells entries of an iteration apart."""
    tags: dict[type, str] = {str: "(phase)", list: "(pair)", tuple: "(pair)", dict: "(repeat)"}
    return tags.get(type(value))


AnyStep = Annotated[
    Annotated[Compute, Tag("(compute)")]
    | Annotated[Wait, Tag("(wait)")]
    | Annotated[Collective, Tag("(collective)")]
    | Annotated[Send, Tag("(send)")]
    | Annotated[Receive, Tag("(recv)")]
    | Annotated[Batch, Tag("(batch)")],
    Discriminator(
        _tag,
        custom_error_type="kind",
        custom_error_message=f"a step is a mapping whose kind is one of: {', '.join(STEPS)}",
    ),
]


AnyEntry = Annotated[
    Annotated[str, Tag("(phase)")] | Annotated[tuple[str, int], Tag("(pair)")] | Annotated[Repeat, Tag("(repeat)")],
    Discriminator(
        _entry_tag,
        custom_error_type="entry",
        custom_error_message="an entry is a phase, a list of a phase and a micro-batch, or a mapping of run and times",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoleRecord:
    """A role of a file. steps: of its only phase, in place of ``phases`` and ``iteration``."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    ranks: tuple[int | str, ...] | None = None
    steps: tuple[AnyStep, ...] | None = None
    phases: dict[str, tuple[AnyStep, ...]] | None = None
    iteration: tuple[AnyEntry, ...] | None = None
    memory: dict[str, int | str] | int | str = field(default_factory=dict)
    after: str = PREVIOUS

    def __post_init__(self) -> None:
        self.role  # noqa: B018  # refused here, where the place is known

    @property
    def role(self) -> Role:
        """The role. Raises: ConfigError."""
        memory = self.memory if isinstance(self.memory, dict) else {TOTAL: self.memory}
        if self.steps is not None:
            if self.phases is not None or self.iteration is not None:
                raise ConfigError("steps is given besides phases or iteration; a role has one or the other")
            return Role(phases={ONE_PHASE: self.steps}, ranks=self.ranks, memory=memory, after=self.after)
        if self.phases is None or self.iteration is None:
            raise ConfigError("a role needs steps, or phases and an iteration, the order in which phases run")
        return Role(
            phases=self.phases, iteration=self.iteration, ranks=self.ranks, memory=memory, after=self.after
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """A file."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    format: str
    version: int
    name: str
    num_ranks: int
    roles: dict[str, _RoleRecord]
    description: str = ""
    host: str = DEFAULT_HOST
    groups: dict[str, RankGroups] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)


def read_program(path: str | Path) -> dict[str, Any]:
    """Return the fields of the program that a file holds.

    Raises: ConfigError that names the file, the first place that does not fit, its value and what must stand there.
    """
    text = read_text(path, FORMAT, (_FIRST, VERSION), "a program")
    _check_keys(Reader(text.value, str(path), ""))
    record: _Record = parse_json(_Record, text.data, str(path))
    if record.version == _FIRST:
        _check_first(record, str(path))
    return {
        "name": record.name,
        "num_ranks": record.num_ranks,
        "description": record.description,
        "host": record.host,
        "groups": record.groups,
        "kernels": record.kernels,
        "roles": {name: one.role for name, one in record.roles.items()},
    }


def _check_first(record: _Record, path: str) -> None:
    """Refuse a file of the first version in which streams were something else than they are now."""
    used: dict[str, set[str]] = {}
    for role in record.roles.values():
        for step in (step for steps in role.role.phases.values() for step in steps):
            if isinstance(step, Collective):
                used.setdefault(step.group, set()).add(step.stream or step.group)
            if isinstance(step, Send) and step.stream:
                used.setdefault(step.group, set()).update(("", step.stream))
    for group, streams in used.items():
        if len(streams) > 1:
            raise ConfigError(
                f"{path}: groups.{group} communicate on several streams, which ran at once in version {_FIRST} of"
                f" {FORMAT}; in version {VERSION} the collectives of a group run in the order of steps, and a stream of"
                " messages is one for all peers: say version 2, or give two groups of the same ranks a stream each"
            )


def _check_keys(document: Reader) -> None:
    """Raise ConfigError for a key that there is not, with those there are; of a value of another type nothing."""
    _refuse_unknown(document, _Record)
    for key, made in (("groups", RankGroups), ("kernels", Kernel), ("roles", _RoleRecord)):
        for one in _inside(document, key):
            _refuse_unknown(one, made)
    for role in _inside(document, "roles"):
        for step in (*_inside(role, "steps"), *(step for phase in _inside(role, "phases") for step in _listed(phase))):
            kind = step.value.get("kind") if isinstance(step.value, dict) else None
            if isinstance(kind, str) and kind in STEPS:
                _refuse_unknown(step, STEPS[kind])
                for one in _inside(step, "messages") if kind == "batch" else ():
                    _refuse_unknown(one, BatchMessage)
        for entry in _inside(role, "iteration"):
            _refuse_unknown(entry, Repeat)


def _refuse_unknown(place: Reader, made: type) -> None:
    known = [entry.name for entry in dataclasses.fields(made)]
    for key in place.names() if isinstance(place.value, dict) else ():
        if key not in known:
            raise place.error(f"has an unknown key {key!r}; keys are: {', '.join(known)}")


def _inside(place: Reader, key: str) -> Iterator[Reader]:
    """Yield the places inside a mapping's mapping or list; nothing where it has none."""
    if isinstance(place.value, dict) and key in place.value:
        yield from _listed(place.item(key))


def _listed(place: Reader) -> Iterator[Reader]:
    if isinstance(place.value, dict):
        yield from (place.item(name) for name in place.names())
    elif isinstance(place.value, list):
        yield from place.entries()


def save_program(program: ProgramData, path: str | Path) -> None:
    """Write a program: what has its default is left out, steps, kernels and groups are a line each."""
    write_text(path, _json_text(program_record(program)) + "\n")


def program_record(program: ProgramData) -> dict[str, Any]:
    """Return a program as its file has it."""
    found: dict[str, Any] = {"format": FORMAT, "version": VERSION, "name": program.name}
    if program.description:
        found["description"] = program.description
    found["num_ranks"] = program.num_ranks
    if program.host != DEFAULT_HOST:
        found["host"] = program.host
    for key in ("groups", "kernels"):
        named: Mapping[str, Any] = getattr(program, key)
        if named:
            found[key] = {name: _record(one) for name, one in named.items()}
    return found | {"roles": {name: _role_record(role) for name, role in program.roles.items()}}


def _role_record(role: Role) -> dict[str, Any]:
    found = {} if role.ranks is None else {"ranks": list(role.ranks)}
    if role.memory:
        found["memory"] = role.memory[TOTAL] if TOTAL in role.memory else dict(role.memory)  # type: ignore[assignment]
    if role.after != PREVIOUS:
        found["after"] = role.after  # type: ignore[assignment]
    phases = {name: [_record(step) for step in steps] for name, steps in role.phases.items()}
    if role.has_one_phase:
        return found | {"steps": phases[ONE_PHASE]}
    return found | {"phases": phases, "iteration": [_entry_record(one) for one in role.iteration]}


def _entry_record(entry: Written | Repeat) -> Any:
    if isinstance(entry, Repeat):
        return {"run": [_entry_record(one) for one in entry.run], "times": entry.times} | (
            {} if entry.stride == 1 else {"stride": entry.stride}
        )
    return entry if isinstance(entry, str) else list(entry)


def _record(one: Any) -> dict[str, Any]:
    """Return what a dataclass says that is not its default, kind first."""
    found = {"kind": one.kind} if hasattr(one, "kind") and not isinstance(one, RankGroups) else {}
    for entry in dataclasses.fields(one):
        value = getattr(one, entry.name)
        if isinstance(one, Batch) and entry.name == "messages":
            value = [_record(each) for each in value]
        if entry.name not in found and (value != entry.default or type(value) is not type(entry.default)):
            found[entry.name] = value
    return found


def _json_text(document: Mapping[str, Any], depth: int = 1) -> str:
    """Return JSON in which what fits is a line, and longer mappings and lists one entry a line."""
    inner, outer = "  " * depth, "  " * (depth - 1)
    lines = []
    for key, value in document.items():
        lines.append(f"{inner}{json.dumps(key)}: {_value_text(value, depth + 1)}")
    return "{\n" + ",\n".join(lines) + f"\n{outer}}}"


def _value_text(value: Any, depth: int) -> str:
    flat = json.dumps(value, allow_nan=False)
    if len(flat) + 2 * depth <= 100 or not value or not isinstance(value, dict | list):
        return flat
    if isinstance(value, dict):
        return flat if _is_leaf(value) else _json_text(value, depth)
    inner, outer = "  " * depth, "  " * (depth - 1)
    if not any(isinstance(one, dict) for one in value):
        return flat
    return "[\n" + ",\n".join(f"{inner}{_value_text(one, depth + 1)}" for one in value) + f"\n{outer}]"


def _is_leaf(value: Mapping[str, Any]) -> bool:
    return not any(isinstance(one, dict) or (isinstance(one, list) and any(isinstance(e, dict) for e in one))
                   for one in value.values())  # fmt: skip
