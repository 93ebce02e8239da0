"""What the schemas of all machines share: figures with sources, and the fabric and accelerators that they make."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from rostam_py.errors import ConfigError
from rostam_py.field_words import in_brackets

ASSUMED = "assumed"


class Figure(NamedTuple):
    """A figure of a data sheet. value: with its unit where it has one, None where nothing is published. source: where
    it is from; it begins with "assumed" where that is no publication of who makes the machine."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Site:
    """What a machine of one size is made of.

    fabric, parameters: a registered fabric and parameters of its Config. accelerator: a data sheet's name. watts: what
    all of it draws at most [W]. usd: what its servers cost [US dollars], None where no price is known.
    """

    fabric: str
    parameters: dict[str, Any]
    accelerator: str
    watts: float | None
    usd: float | None


@dataclass(kw_only=True, slots=True)
class MachineConfig:
    """Size of a machine; its figures are its class's."""

    accelerator: ClassVar[str]
    figures: ClassVar[Mapping[str, Figure]]
    # Parameters of the fabric that the machine's own size decides.
    sizes: ClassVar[tuple[str, ...]]
    # Whether a job may have num_accelerators, the first of a machine.
    takes_part: ClassVar[bool] = False

    @classmethod
    def holding(cls, given: dict[str, Any], num_accelerators: Any) -> dict[str, Any]:
        """Return keys of a machine that holds so many accelerators. Args: given: keys; those of its size win.

        Raises: ConfigError where the given ones hold fewer.
        """
        return given

    def site(self) -> Site:
        """Return the fabric, the accelerators, the power and the price of this size."""
        raise NotImplementedError

    @classmethod
    def figure(cls, name: str) -> Any:
        """Return a figure's value."""
        return cls.figures[name].value

    @classmethod
    def assumed(cls) -> list[str]:
        """Return the figures that are not from a publication of who makes the machine."""
        return [name for name, one in cls.figures.items() if one.source.startswith(ASSUMED)]


def make_machine(name: str, schema: type[MachineConfig], given: Mapping[str, Any]) -> MachineConfig:
    """Return ``schema(**given)``.

    Raises: ConfigError for a key that the machine does not have.
    """
    known = [entry.name for entry in dataclasses.fields(schema)]
    for key in given:
        if key not in known:
            hint = in_brackets(key, given[key], lambda other: other.removeprefix("machine.") in known)
            raise ConfigError(f"unknown key 'machine.{key}'{hint}; machine {name!r} has: {', '.join(known)}")
    return schema(**given)
