"""No circle inside the floors: neither between the packages and files of a Python folder, nor between C++ files.

Every import counts, those inside functions and TYPE_CHECKING too: a circle hidden from the interpreter is still one
for who reads. A header and the source of the same name are one file.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)

Edges = dict[str, set[tuple[str, str]]]


def imported_names(source: str) -> Iterator[str]:
    """Yield the dotted name of everything a file imports: ``from a.b import c`` is ``a.b.c``."""
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def file_of(name: str, files: set[str]) -> str:
    """Return the file that a dotted name is found in, as a path without suffix; a package's is its __init__."""
    parts = name.split(".")
    if parts[:2] in (["rostam_py", "models"], ["rostam_py", "configs"]):
        parts = parts[1:]
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end])
        if path in files:
            return path
        if f"{path}/__init__" in files:
            return f"{path}/__init__"
    return ""


def python_uses(sources: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (file, file that it imports of) for files given as paths without suffix."""
    files = set(sources)
    for path, source in sources.items():
        for name in imported_names(source):
            target = file_of(name, files)
            if target and target != path:
                yield path, target


def cpp_uses(sources: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (file, file that it includes), paths without suffix."""
    for path, source in sources.items():
        for name in INCLUDE.findall(source):
            target = name.rpartition(".")[0]
            if target != path:
                yield path, target


def by_folder(uses: Iterator[tuple[str, str]]) -> Edges:
    """Return, for each folder, which of its files and folders use which others of it.

    A file in a folder's own sub-folder counts as that sub-folder.
    """
    found: Edges = {}
    for user, used in uses:
        ours, theirs = user.split("/"), used.split("/")
        depth = next(k for k, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other)
        found.setdefault("/".join(ours[:depth]), set()).add((ours[depth], theirs[depth]))
    return found


def circles(edges: Edges) -> dict[str, list[list[str]]]:
    """Return the circles of each folder that has some: sets of names that all reach one another, sorted."""
    found = {}
    for folder, pairs in sorted(edges.items()):
        reached = {name: _reached(pairs, name) for name in {user for user, _ in pairs}}
        both = {name: {one for one in seen if name in reached.get(one, ())} for name, seen in reached.items()}
        if several := sorted({tuple(sorted(one)) for one in both.values() if one}):
            found[folder] = [list(one) for one in several]
    return found


def _reached(pairs: set[tuple[str, str]], name: str) -> set[str]:
    """Return what ``name`` uses, directly or not; itself only if it lies on a circle."""
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        here = ahead.pop()
        new = {used for user, used in pairs if user == here} - seen
        seen |= new
        ahead += new
    return seen


def sources_of(folder: Path, base: Path, *suffixes: str) -> dict[str, str]:
    """Return the text of a folder's files by path from ``base`` without suffix, those of equal path joined."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in suffixes:
            name = path.relative_to(base).with_suffix("").as_posix()
            found[name] = found.get(name, "") + "\n" + path.read_text()
    return found


def test_python_folders_have_no_circles():
    sources = sources_of(ROOT / "rostam_py", ROOT, ".py") | sources_of(ROOT / "models", ROOT, ".py")
    edges = by_folder(python_uses(sources))
    assert sum(map(len, edges.values())) > 300
    assert circles(edges) == {}


def test_cpp_folders_have_no_circles():
    edges = by_folder(cpp_uses(sources_of(ROOT / "csrc", ROOT / "csrc", ".h", ".cpp", ".inc")))
    assert sum(map(len, edges.values())) > 100
    assert circles(edges) == {}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"p/a": "import p.b", "p/b": "import p.c", "p/c": "def f():\n    from p.a import x"},
         {"p": [["a", "b", "c"]]}),
        ({"p/a": "from p import b", "p/b": "from p import Thing", "p/__init__": "from p.a import Thing"},
         {"p": [["__init__", "a", "b"]]}),
        ({"p/x/a": "from p.y.b import f", "p/y/b": "", "p/y/c": "import p.x.d", "p/x/d": ""}, {"p": [["x", "y"]]}),
        ({"p/a": "import q.b", "q/b": "if TYPE_CHECKING:\n    from p.c import C", "p/c": ""}, {"": [["p", "q"]]}),
        ({"p/a": "import p.b\nimport torch", "p/b": "import p.c", "p/c": "", "p/__init__": "import p.a"}, {}),
    ],
)  # fmt: skip
def test_python_circles_are_found(sources, expected):
    assert circles(by_folder(python_uses(sources))) == expected


def test_cpp_circles_are_found():
    sources = {"flow/a": '#include "flow/b.h"', "flow/b": '#include "flow/b.h"\n#include "flow/c.h"'}
    assert circles(by_folder(cpp_uses(sources))) == {}
    assert circles(by_folder(cpp_uses(sources | {"flow/c": '#include "flow/a.h"'}))) == {"flow": [["a", "b", "c"]]}
