"""ATen names stand only in tracing and costs: everyone else asks an op for its properties (``Op.role``, ...)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rostam_py.tracing import op_properties
from rostam_py.tracing.splits.table import RULES

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = ("rostam_py/tracing/", "rostam_py/costs/")
# Op names that are ordinary words as well: they count only as part of a full name, "aten.add.Tensor".
WORDS = {
    "add", "all", "any", "cat", "chunk", "clone", "copy", "convolution", "dot", "embedding", "empty", "expand", "flip",
    "full", "gather", "index", "linspace", "max", "mean", "min", "ones", "prod", "rand", "repeat", "select", "slice",
    "softmax", "sort", "split", "stack", "std", "sub", "sum", "t", "var", "view", "zeros", "arange", "scatter", "alias",
    "reshape", "transpose", "argmax", "argmin", "detach", "mul", "div", "neg", "norm", "topk", "squeeze", "permute",
}  # fmt: skip
NAMES = {*RULES, *op_properties._ROLE_OF, *op_properties._FIRST, *op_properties._BILINEAR} - WORDS


def op_names(source: str) -> Iterator[str]:
    """Yield "line: what" for each ATen name among a file's strings and each question put to an op's type."""
    tree = ast.parse(source)
    texts = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in texts:
            words = one.value.replace(".", " . ").split()
            if "aten" in words or any(word in NAMES for word in words):
                yield f"{one.lineno}: {one.value!r}"
        elif isinstance(one, ast.Compare):
            if any(asks_type(side) for side in (one.left, *one.comparators)):
                yield f"{one.lineno}: {ast.unparse(one)}"
        elif isinstance(one, ast.Attribute) and asks_type(one.value):
            yield f"{one.lineno}: {ast.unparse(one)}"


def asks_type(one: ast.AST) -> bool:
    """Say whether an expression is an op's type."""
    return isinstance(one, ast.Attribute) and one.attr == "op_type"


def library_files() -> list[str]:
    """Return the Python files of the package outside the folders that may name ops."""
    paths = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "rostam_py").rglob("*.py")))
    return [path for path in paths if not path.startswith(ALLOWED)]


def test_library_code_asks_for_properties_not_for_names():
    said = [f"{path}:{one}" for path in library_files() for one in op_names((ROOT / path).read_text())]
    assert said == []
    assert len(library_files()) > 150


@pytest.mark.parametrize(
    "source",
    [
        'X = ("aten.mm.default",)', 'x.startswith("aten.")', 'NAMES = "view addmm slice".split()',
        'if op.op_type == x: f()', 'y = "softmax" in op.op_type', 'op.op_type.startswith(x)', 'f"aten.{name}"',
    ],
)  # fmt: skip
def test_scanner_catches(source):
    assert list(op_names(source))


@pytest.mark.parametrize(
    "source",
    ['"""Such as aten.mm.default."""', "Kernel(op.name, op.op_type)", 'x = "sum of the beaten"', 'op.role == "copy"'],
)
def test_scanner_lets_pass(source):
    assert not list(op_names(source))
