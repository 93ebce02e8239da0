"""Write rostam_py/_core.pyi, the core's signatures for editors and mypy: ``python csrc/bindings/stubs.py FILE``.

pybind11-stubgen reads them off the built module. pybind11 calls what becomes a std::vector a Sequence, which an array
is not; it takes anything that can be iterated over.
"""

import sys
import tempfile
from pathlib import Path

from pybind11_stubgen import main

MODULE = "rostam_py._core"


def write_stubs(path: Path) -> None:
    """Write the stubs of the core that this interpreter imports. Exits if a signature names a type of C++."""
    with tempfile.TemporaryDirectory() as folder:
        main([MODULE, "--output-dir", folder, "--exit-code"])
        text = Path(folder, *MODULE.split(".")).with_suffix(".pyi").read_text(encoding="utf-8")
    path.write_text(text.replace("collections.abc.Sequence[", "collections.abc.Iterable["), encoding="utf-8")


if __name__ == "__main__":
    write_stubs(Path(sys.argv[1]))
