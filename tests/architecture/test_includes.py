"""C++ floors of DESIGN, read off every #include of csrc; what library code may not call."""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"

# DESIGN's floors: a folder sees itself and the folders of lower floors, never one of its own floor.
_FLOORS = [
    {"sim"}, {"fabric"}, {"routing"}, {"analytic", "network", "circuits"}, {"flow", "packet", "collectives"},
    {"workload", "assignment"}, {"folding"}, {"control"}, {"runtime"}, {"bindings"},
]  # fmt: skip
# What each folder may include, besides itself.
SEES = {folder: set().union(*_FLOORS[:level]) for level, floor in enumerate(_FLOORS) for folder in floor}

# Each registry's list may end with that of the second core (make test-extra), which lies in tests/csrc.
EXTRA = "extra.inc"

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_BANNED = re.compile(
    r"\b(?:std::)?(?:exit|abort|_Exit|quick_exit|printf|fprintf|puts|rand|srand)\s*\(|\bstd::(?:cout|cerr|clog)\b"
    r"|\bcatch\s*\(\s*\.\.\.\s*\)|\bassert\s*\("
)


def scan_includes(source: str) -> list[tuple[bool, str]]:
    """Return (is quoted, file) of each #include."""
    return [(quote == '"', name) for quote, name in _INCLUDE.findall(source)]


def include_violations(folder: str, source: str) -> list[str]:
    """Say which includes of a file in ``folder`` break the floors or the pybind11 door."""
    said = []
    for is_quoted, name in scan_includes(source):
        target = name.partition("/")[0]
        if name == EXTRA and folder != "bindings":
            continue
        if target == "pybind11":
            if folder != "bindings":
                said.append(f"{folder} includes {name}: pybind11 only in bindings")
        elif is_quoted and "/" not in name:
            said.append(f"{folder} includes {name!r}: write the path from csrc")
        elif (is_quoted or target in SEES) and target != folder and target not in SEES[folder]:
            said.append(f"{folder} may not include {name}")
        elif not is_quoted and "/" in name:
            said.append(f"{folder} includes <{name}>: the core has no dependency but the standard library")
    return said


def banned_calls(source: str) -> list[str]:
    """Return calls that print, end the process or swallow every error, outside comments and strings."""
    return _BANNED.findall(_COMMENT_OR_STRING.sub(" ", source))


def sources() -> list[Path]:
    """Return every C++ file."""
    return sorted(path for path in CSRC.rglob("*") if path.suffix in (".cpp", ".h", ".inc"))


def test_every_folder_has_a_floor():
    assert {path.name for path in CSRC.iterdir() if path.is_dir()} - set(SEES) == set()
    assert len(sources()) > 50


def test_no_floor_sees_itself_from_below():
    """The table above is a partial order: nothing that a folder may see may see the folder."""
    for folder, seen in SEES.items():
        for below in seen - {folder}:
            assert folder == "bindings" or folder not in SEES[below], (folder, below)


def test_cpp_floors_hold():
    found = {path: include_violations(path.parent.relative_to(CSRC).parts[0], path.read_text()) for path in sources()}
    assert {path: said for path, said in found.items() if said} == {}


def test_core_never_prints_exits_or_swallows():
    found = {path: banned_calls(path.read_text()) for path in sources()}
    assert {path: calls for path, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("sim", '#include "fabric/fabric.h"'),
        ("flow", '#include "packet/packet.h"'),
        ("collectives", '#include "flow/flow_network.h"'),
        ("network", '  #  include "analytic/link_loads.h"'),
        ("runtime", "#include <pybind11/pybind11.h>"),
        ("runtime", '#include "session.h"'),
        ("runtime", '#include "bindings/bindings.h"'),
        ("fabric", "#include <boost/graph.hpp>"),
        ("fabric", "#include <flow/flow_network.h>"),
    ],
)
def test_scanner_catches_include(folder, source):
    assert include_violations(folder, source)


def test_scanner_lets_legal_includes_pass():
    assert include_violations("flow", '#include <vector>\n#include "sim/errors.h"\n#include "flow/max_min.h"') == []
    assert include_violations("bindings", '#include <pybind11/stl.h>\n#include "runtime/session.h"') == []


@pytest.mark.parametrize(
    "source",
    ["exit(1);", "std::abort();", 'printf("x");', "std::cout << 1;", "try {} catch (...) {}", "assert(x > 0);"],
)
def test_scanner_catches_call(source):
    assert banned_calls(source)


def test_scanner_ignores_comments_and_other_names():
    assert banned_calls('// never exit(1)\nstatic_assert(true); job.on_exit(3); throw E("printf(");') == []
