"""Extras: packages that only some commands need, and the extra of rostam that brings each.

require(Need("rostam report", "report", ("plotly",)))  # MissingPackageError: ... pip install "rostam[report]"
"""

import importlib.util
from dataclasses import dataclass
from types import MappingProxyType

from rostam_py.errors import InternalError, MissingPackageError

# Extra -> its packages, as in pyproject.toml.
EXTRAS = MappingProxyType({
    "sweep": ("ray", "loky"),
    "report": ("plotly", "itables", "matplotlib"),
    "wandb": ("wandb", "plotly"),
    "optimal": ("scipy",),
    "transformers": ("transformers",),
    "traces": ("protobuf",),
})  # fmt: skip
_MODULES = MappingProxyType({"protobuf": "google.protobuf"})  # package -> what is imported, where the names differ


@dataclass(frozen=True, slots=True)
class Need:
    """What needs packages of an extra.

    what: a command, key or function, as the user writes it. extra: one of EXTRAS. packages: those of the extra that it
    needs, empty for all. otherwise: the setting that does without them, as in "report=false".
    """

    what: str
    extra: str
    packages: tuple[str, ...] = ()
    otherwise: str = ""

    def __post_init__(self) -> None:
        if not set(self.packages) <= set(EXTRAS[self.extra]):
            raise InternalError(f"extra {self.extra!r} holds {EXTRAS[self.extra]}, not all of {self.packages}")

    def missing(self) -> list[str]:
        """Return the packages that are not installed."""
        return [one for one in self.packages or EXTRAS[self.extra] if not _is_installed(one)]


def require(*needs: Need) -> None:
    """Check that the packages of all needs are installed; called before any work that will want them.

    Raises: MissingPackageError, naming what needs which packages, and the command that installs all of them.
    Cost: a look at the module paths; nothing is imported.
    """
    unmet = [(need, missing) for need in needs if (missing := need.missing())]
    if not unmet:
        return
    said = "; ".join(f"{need.what} needs {' and '.join(missing)}" for need, missing in unmet)
    extras = ",".join(dict.fromkeys(need.extra for need, _ in unmet))
    ways = [need.otherwise for need, _ in unmet if need.otherwise]
    are = "is" if sum(len(missing) for _, missing in unmet) == 1 else "are"
    without = f", or take {' and '.join(ways)}" if len(ways) == len(unmet) else ""
    raise MissingPackageError(f'{said}, which {are} not installed: pip install "rostam[{extras}]"{without}')


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(_MODULES.get(package, package)) is not None
    except (ImportError, ValueError):  # a finder that refuses it, or a module without a spec
        return False
