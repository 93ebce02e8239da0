"""A fabric's name stands in its own file and in the registries' lists, so that a new one needs no other line.

A use of one fabric, by the name that any user would give, is no list: ``USES`` says where and why.
"""

import ast
import re
from pathlib import Path

import pytest

from rostam_py.fabrics import FABRICS

ROOT = Path(__file__).resolve().parents[2]
LISTS = {"rostam_py/fabrics/__init__.py"}
USES = {
    "rostam_py/cli/demo.py": "the demonstration compares six fabrics, which are its subject",
    "rostam_py/machines/dgx1_v100.py": "the fabric of a server's direct links",
    "rostam_py/machines/servers.py": "the fabric that servers with a NIC for each accelerator stand on",
    "rostam_py/machines/tpu_v4_pod.py": "the fabric of a pod's chips",
    "rostam_py/searching/kept_plans.py": "a bound is the time on an ideal switch",
    "rostam_py/spec/keys.py": "the fabric where none is given",
}
OTHER_MEANINGS = {("rostam_py/tracing/joint.py", "custom")}  # a key of torch's


def named_in_python(source: str, names: list[str]) -> set[str]:
    """Return the names that are whole string constants; prose in docstrings and errors may name an example."""
    constants = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return {name for name in names if name in constants}


def named_in_cpp(source: str, names: list[str]) -> set[str]:
    """Return the names that are whole string literals outside comments."""
    code = re.sub(r"//.*", "", source)
    return {name for name in names if f'"{name}"' in code}


def strangers(folder: str, suffixes: tuple[str, ...], named) -> dict[str, set[str]]:
    """Return file -> fabrics that it names though it is not theirs."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*")):
        where = path.relative_to(ROOT).as_posix()
        if path.suffix not in suffixes or where in LISTS or where in USES:
            continue
        names = {name for name in named(path.read_text(), FABRICS.names()) if path.stem != name}
        names = {name for name in names if (where, name) not in OTHER_MEANINGS}
        if names:
            found[where] = names
    return found


def test_python_names_a_fabric_in_its_own_file_and_the_list_only():
    assert strangers("rostam_py", (".py",), named_in_python) == {}


def test_cpp_names_a_fabric_in_its_own_file_and_the_list_only():
    assert strangers("csrc", (".cpp", ".h"), named_in_cpp) == {}


def test_what_is_excused_is_still_there():
    for where in [*USES, *(path for path, _ in OTHER_MEANINGS)]:
        assert named_in_python((ROOT / where).read_text(), FABRICS.names()), where


@pytest.mark.parametrize(
    ("named", "source", "expected"),
    [
        (named_in_python, 'if fabric.name == "torus":\n    pass', {"torus"}),
        (named_in_python, 'RULES = {"fat_tree": 1, "hammingmesh": 2}', {"fat_tree", "hammingmesh"}),
        (named_in_python, 'def f():\n    """As on a torus, see "torus"."""', set()),
        (named_in_cpp, 'if (name == "torus") return;', {"torus"}),
        (named_in_cpp, '// Example: make_fabric("torus", params)', set()),
    ],
)
def test_scanner_catches_code_and_passes_prose(named, source, expected):
    assert named(source, FABRICS.names()) == expected
