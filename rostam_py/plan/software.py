"""Software: which program trains, as a plan remembers it (rostam_py/software has the programs themselves).

Example:
    Software(name="torchtitan", release="2025-06", flags=(("compile", True),)).describe()    # "torchtitan 2025-06, ..."
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rostam_py.plan.host import DEFAULT_SYNC
from rostam_py.plan.machine import Machine

IDEAL = "ideal"  # a program that loses nothing to its own habits


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The program of a plan.

    name: a registered stack. release: of it, "" where its releases are alike. flags: those that differ from its
    defaults, by name. was_chosen: nobody named it (software=auto). hosts: what it says of hosts, fields of Machine.
    ratios: file of measured jobs, "" for published ones. sets: what of the strategy's parallelism and numerics it set.
    """

    name: str = IDEAL
    release: str = ""
    flags: tuple[tuple[str, Any], ...] = ()
    was_chosen: bool = False
    hosts: tuple[tuple[str, Any], ...] = ()
    ratios: str = ""
    sets: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Software":
        """Return what ``settings`` names, without its hosts: for words about stored results."""
        flags = {key: value for key, value in settings.items() if key not in ("name", "release", "ratios")}
        name, release, ratios = (str(settings.get(key, "")) for key in ("name", "release", "ratios"))
        return cls(name=name, release=release, ratios=ratios, flags=tuple(sorted(flags.items())))

    @property
    def is_ideal(self) -> bool:
        """Whether speeds are an upper bound at the strategy's own settings: no habit of a program counts."""
        return self.name == IDEAL

    @property
    def settings(self) -> dict[str, Any]:
        """What ``place(software=...)`` takes to choose the same again."""
        said = {key: value for key in ("release", "ratios") if (value := getattr(self, key))}
        return {"name": self.name, **said, **dict(self.flags)}

    def describe(self) -> str:
        """Return it in words, such as "torchtitan 2025-06, compile=true"."""
        if self.is_ideal and not self.flags:
            return "ideal, an upper bound at these settings: nothing is lost to a program's own habits"
        flags = "".join(f", {key}={_written(value)}" for key, value in self.flags)
        sets = ", ".join(f"{key}={_written(value)}" for key, value in self.sets)
        return f"{self.name}{f' {self.release}' if self.release else ''}{flags}{f'; it sets {sets}' if sets else ''}"

    def on(self, machine: Machine) -> Machine:
        """Return a machine whose hosts run this program; what is set of them on the machine itself stays."""
        changed = {key: value for key, value in self.hosts if getattr(machine, key) == _UNSET[key]}
        return replace(machine, **changed) if changed else machine


IDEAL_SOFTWARE = Software()
_UNSET: Mapping[str, Any] = {"host": "graphs", "host_sync": DEFAULT_SYNC, "host_graphs": None}


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_written(one)}" for key, one in value.items()) + "}"
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
