"""Python floors and doors of DESIGN, read off every import statement, those inside functions and TYPE_CHECKING too.

A floor is a set of packages that do not see each other; a package sees itself and the floors below.
Registry strings ("package.module:attribute") are not imports: they are how a lower floor names a plug-in.
"""

import ast
import fnmatch
import functools
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rostam_py

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rostam_py"

# Errors lie under units, registry and extras, which raise them.
FLOORS = [
    {"errors", "models", "configs"},
    {"units", "registry", "extras", "garbage", "field_words"},
    {"checks", "digests", "documents", "html", "keywords"},
    {"graph"},
    {"tracing", "costs", "fabrics", "convergence"},
    {"collectives", "machines"},
    {"plan"},
    {"software"},
    {"placement"},
    {"programs"},
    {"capturing", "traces"},
    {"simulation"},
    {"searching", "spread"},
    {"fleet"},
    {"spec"},
    {"sweep", "report", "validation", "reproduction"},
    {"cli"},
]
LEVEL = {name: level for level, floor in enumerate(FLOORS) for name in floor}
# The package's own __init__ hands out names of every floor, lazily: as strings, so it imports nothing.
ROOT_NAMES = {"__version__"}

DOORS = {
    "rostam_py._core": [
        "rostam_py/fabrics/*",
        "rostam_py/collectives/*",
        "rostam_py/simulation/*",
        "rostam_py/errors.py",
    ],
    "torch": ["rostam_py/tracing/*", "rostam_py/capturing/*", "rostam_py/costs/profile*.py", "models/*"],
    "functorch": ["rostam_py/tracing/*"],
    "ray": ["rostam_py/sweep/*"],
    "google": ["rostam_py/traces/*"],
    "hydra": ["rostam_py/cli/*"],
    "omegaconf": ["rostam_py/cli/*"],
    "wandb": ["rostam_py/report/*"],
    "plotly": ["rostam_py/report/*"],
    "matplotlib": ["rostam_py/report/*"],
    "itables": ["rostam_py/report/*"],
}


@dataclass(frozen=True)
class Import:
    """One imported module: ``line`` of ``path`` (relative to the root) imports ``module``."""

    path: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def scan_imports(source: str, path: str) -> Iterator[Import]:
    """Yield the imports of a file; ``from rostam_py import x`` counts as ``rostam_py.x``."""
    for statement in ast.walk(ast.parse(source, path)):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield Import(path, statement.lineno, alias.name)
        elif isinstance(statement, ast.ImportFrom):
            if statement.level:
                yield Import(path, statement.lineno, "." * statement.level + (statement.module or ""))
            elif statement.module == "rostam_py":
                for alias in statement.names:
                    yield Import(path, statement.lineno, f"rostam_py.{alias.name}")
            else:
                yield Import(path, statement.lineno, statement.module or "")


def floor_of(path: str) -> str | None:
    """Return the package of a file below rostam_py/ or models/; None for rostam_py/__init__.py."""
    parts = Path(path).parts
    if parts[0] in ("models", "configs"):
        return parts[0]
    name = parts[1].removesuffix(".py")
    return None if name == "__init__" else name


def floor_violation(found: Import) -> str | None:
    """Say why an import breaks the floors, or None."""
    if found.module.startswith("."):
        return f"{found}: imports are absolute"
    top, _, rest = found.module.partition(".")
    if top != "rostam_py":
        return None
    own, target = floor_of(found.path), rest.partition(".")[0]
    if target == own or target in ROOT_NAMES or target == "_core" or not rest:
        return None
    if own is None:
        return f"{found}: rostam_py/__init__.py names modules by strings"
    if target not in LEVEL:
        return f"{found}: {target} has no floor; public names are for users, library code imports their module"
    if own in ("models", "configs"):
        return f"{found}: {own} imports nothing of the rest"
    if LEVEL[target] >= LEVEL[own]:
        return f"{found}: {own} (floor {LEVEL[own]}) may not see {target} (floor {LEVEL[target]})"
    return None


def door_violation(found: Import) -> str | None:
    """Say why an import comes through no door, or None."""
    for module, doors in DOORS.items():
        is_meant = found.module == module or found.module.startswith(module + ".")
        if is_meant and not any(fnmatch.fnmatch(found.path, door) for door in doors):
            return f"{found}: allowed only in {', '.join(doors)}"
    return None


def shadow_violation(found: Import) -> str | None:
    """Say why an import makes a second copy of models or configs, or None."""
    if found.module.split(".")[0] in ("models", "configs"):
        return f"{found}: import rostam_py.{found.module}"
    return None


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below the named top-level folders that exist."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports_of(*folders: str) -> list[Import]:
    """Return every import below the named folders."""
    return [found for path in python_files(*folders) for found in imports_in(path)]


@functools.cache
def imports_in(path: Path) -> tuple[Import, ...]:
    """Return the imports of a file, read once for all tests."""
    return tuple(scan_imports(path.read_text(), path.relative_to(ROOT).as_posix()))


def violations(check, *folders: str) -> list[str]:
    """Return what ``check`` says of every import below the folders."""
    return [said for found in imports_of(*folders) if (said := check(found))]


def test_every_package_has_a_floor():
    names = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert names - {"__init__", "__pycache__"} - set(LEVEL) == set()


def test_scan_sees_the_whole_tree():
    found = imports_of("rostam_py", "models")
    assert {floor_of(one.path) for one in found} >= {"tracing", "placement", "simulation", "models"}
    assert len(found) > 300


def test_python_floors_hold():
    assert violations(floor_violation, "rostam_py", "models") == []


def test_doors_hold():
    assert violations(door_violation, "rostam_py", "models") == []


def test_nobody_imports_models_or_configs_a_second_time():
    folders = ("rostam_py", "models", "configs", "tests", "benchmarks", "experiments")
    assert violations(shadow_violation, *folders) == []


def test_names_imported_from_rostam_py_exist():
    """A misspelt module would escape the floors only until it is first imported: catch it here."""
    modules = {found.module for found in imports_of("rostam_py", "models") if found.module.startswith("rostam_py.")}
    missing = [m for m in sorted(modules) if m.split(".")[1] not in ROOT_NAMES and importlib.util.find_spec(m) is None]
    assert missing == []


def test_packages_never_share_a_name_with_public_functions():
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert packages & set(rostam_py.__all__) == set()


@pytest.mark.parametrize(
    ("path", "source", "check"),
    [
        ("rostam_py/graph/x.py", "from rostam_py.placement import Plan", floor_violation),
        ("rostam_py/graph/x.py", "from rostam_py import simulation", floor_violation),
        ("rostam_py/graph/x.py", "def f():\n    import rostam_py.cli.main", floor_violation),
        ("rostam_py/costs/x.py", "from rostam_py.fabrics import build_fabric", floor_violation),
        ("rostam_py/costs/x.py", "if TYPE_CHECKING:\n    from rostam_py.placement import Plan", floor_violation),
        ("rostam_py/cli/x.py", "from rostam_py import simulate", floor_violation),
        ("rostam_py/graph/x.py", "from . import cleanup", floor_violation),
        ("rostam_py/__init__.py", "from rostam_py.simulation import simulate", floor_violation),
        ("models/x.py", "from rostam_py.units import parse_size", floor_violation),
        ("rostam_py/placement/x.py", "from rostam_py import _core", door_violation),
        ("rostam_py/placement/x.py", "from rostam_py._core import Fabric", door_violation),
        ("rostam_py/costs/roofline.py", "def f():\n    import torch.nn", door_violation),
        ("rostam_py/simulation/x.py", "from omegaconf import OmegaConf", door_violation),
        ("rostam_py/cli/x.py", "import plotly.express", door_violation),
        ("tests/x.py", "import models.gpt", shadow_violation),
        ("tests/x.py", "from models import MODELS", shadow_violation),
    ],
)
def test_scanner_catches(path, source, check):
    assert [said for found in scan_imports(source, path) if (said := check(found))]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("rostam_py/simulation/x.py", "from rostam_py import _core\nfrom rostam_py.plan.plan import Plan"),
        ("rostam_py/tracing/x.py", "import torch\nfrom rostam_py.models.spec import ModelSpec"),
        ("rostam_py/costs/profile_x.py", "import torch"),
        ("rostam_py/cli/x.py", "from rostam_py import __version__\nimport hydra"),
        ("models/x.py", "import torch\nfrom rostam_py.models.spec import ModelSpec"),
    ],
)
def test_scanner_lets_legal_imports_pass(path, source):
    checks = (floor_violation, door_violation, shadow_violation)
    assert [said for found in scan_imports(source, path) for check in checks if (said := check(found))] == []
