"""Library code neither prints, nor ends the process, nor asserts on what users give; names say what they hold."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = {"sys.exit", "os._exit", "os.abort"}
NO_NAMES = {"utils", "util", "common", "misc", "helpers", "helper"}


def banned_statements(source: str) -> list[str]:
    """Return "line: what" of each print, exit and assert of a file."""
    found = []
    for item in ast.walk(ast.parse(source)):
        if isinstance(item, ast.Assert):
            found.append(f"{item.lineno}: assert (vanishes under -O)")
        elif isinstance(item, ast.Call):
            function = item.func
            if isinstance(function, ast.Name) and function.id in ("print", "exit", "quit", "breakpoint"):
                found.append(f"{item.lineno}: {function.id}()")
            elif isinstance(function, ast.Attribute) and ast.unparse(function) in ENDINGS:
                found.append(f"{item.lineno}: {ast.unparse(function)}()")
        elif isinstance(item, ast.Raise) and isinstance(item.exc, ast.Name | ast.Call):
            name = item.exc.func if isinstance(item.exc, ast.Call) else item.exc
            if isinstance(name, ast.Name) and name.id == "SystemExit":
                found.append(f"{item.lineno}: raise SystemExit")
    return found


def library_files() -> list[Path]:
    """Return the Python files of the package outside cli, and the models."""
    cli = ROOT / "rostam_py" / "cli"
    paths = [*(ROOT / "rostam_py").rglob("*.py"), *(ROOT / "models").rglob("*.py")]
    return sorted(path for path in paths if cli not in path.parents)


def test_library_code_neither_prints_nor_exits_nor_asserts():
    said = [
        f"{path.relative_to(ROOT)}:{one}" for path in library_files() for one in banned_statements(path.read_text())
    ]
    assert said == []


def test_no_module_is_named_after_nothing():
    files = [*library_files(), *(ROOT / "csrc").rglob("*.*"), *(ROOT / "tests").rglob("*.py")]
    assert [path for path in files if NO_NAMES & {path.stem, *path.parent.relative_to(ROOT).parts}] == []


def test_sources_are_ascii():
    native = [path for path in (ROOT / "csrc").rglob("*.*") if path.is_file()]
    files = [*library_files(), *native, *(ROOT / "tests").rglob("*.py")]
    assert [path for path in files if not path.read_bytes().isascii()] == []


@pytest.mark.parametrize(
    "source",
    ["print(1)", "exit()", "import sys\nsys.exit(2)", "import os\nos._exit(1)", "assert x", "raise SystemExit(2)"],
)
def test_scanner_catches(source):
    assert banned_statements(source)


def test_scanner_lets_strings_and_methods_pass():
    assert banned_statements('"""print(1)"""\nconsole.print(1)\nself.exit()\nraise ValueError("exit()")') == []
