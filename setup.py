"""Build rostam: the Python packages and the C++17 core (``rostam_py._core``).

Everything that does not need code is in pyproject.toml. ROSTAM_SANITIZE=1 builds the core with the address and
undefined-behaviour sanitizers (``make test-asan``); ROSTAM_EXTRA=1 builds a second core with the parts of tests/csrc
(``make test``), from the objects of the first; ROSTAM_BUILD_JOBS limits the compilers that run at once.
"""

import os
import re
import time
from glob import glob
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
from setuptools import find_packages, setup

# -MMD writes each object's headers next to it, for needs_recompile. Never fast-math; no fused multiply-add (MODEL H23).
# Python's own flags carry -fwrapv, which would hide overflow from the sanitizers.
COMMON_ARGS = ["-ffp-contract=off", "-fno-wrapv", "-Wall", "-Wextra", "-MMD"]
if os.environ.get("ROSTAM_SANITIZE") == "1":
    COMPILE_ARGS = [*COMMON_ARGS, "-O1", "-g", "-UNDEBUG", "-fno-omit-frame-pointer"]
    COMPILE_ARGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    LINK_ARGS = ["-fsanitize=address,undefined"]
else:
    COMPILE_ARGS = [*COMMON_ARGS, "-O2", "-g0", "-fvisibility=hidden"]
    LINK_ARGS = []

SOURCES = sorted(glob("csrc/**/*.cpp", recursive=True))
INCLUDE_DIRS = ["csrc"]
EXTRA_OBJECTS: list[str] = []
if os.environ.get("ROSTAM_EXTRA") == "1":
    # Only the registries know the lists of parts; everything else is as in the first core.
    registries = [source for source in SOURCES if "builtin.inc" in Path(source).read_text()]
    EXTRA_OBJECTS = [f"build/core/{Path(source).with_suffix('.o')}" for source in SOURCES if source not in registries]
    SOURCES = [*registries, *sorted(glob("tests/csrc/*.cpp"))]
    INCLUDE_DIRS = ["csrc", "tests/csrc"]
    COMPILE_ARGS = [*COMPILE_ARGS, "-DROSTAM_EXTRA"]


def needs_recompile(object_path: str, source: str) -> bool:
    """Say whether an object is older than its source, a header it includes, or the flags in this file."""
    built = Path(object_path)
    record = built.with_suffix(".d")
    if not built.exists() or not record.exists():
        return True
    inputs = re.split(r"\s+", record.read_text().replace("\\\n", " ").partition(":")[2].strip())
    paths = [Path(name) for name in [*inputs, source, __file__]]
    return any(not path.exists() or path.stat().st_mtime >= built.stat().st_mtime for path in paths)


def mapped_packages(folder: str) -> dict[str, str]:
    """Return {package name: folder} for a top-level folder and its sub-folders, installed below ``rostam_py``."""
    folders = [Path(folder), *(path for path in sorted(Path(folder).rglob("*")) if path.is_dir())]
    return {f"rostam_py.{'.'.join(path.parts)}": path.as_posix() for path in folders if path.name != "__pycache__"}


def date_objects(started: float) -> None:
    """Date what was compiled to the start of its build: a header changed during it must count as newer."""
    for built in Path("build").rglob("*.o"):
        if built.stat().st_mtime > started:
            os.utime(built, (started, started))


STARTED = time.time()
MAPPED = mapped_packages("models") | mapped_packages("configs")

ParallelCompile("ROSTAM_BUILD_JOBS", default=os.cpu_count() or 1, needs_recompile=needs_recompile).install()
try:
    setup(
        packages=find_packages(include=["rostam", "rostam_py", "rostam_py.*"]) + sorted(MAPPED),
        package_dir=MAPPED,
        package_data={"rostam": ["py.typed"], "rostam_py": ["py.typed", "*.pyi"]}
        | {"rostam_py.costs": ["tables/*.json"], "rostam_py.report.page": ["assets/*"]}
        | {"rostam_py.convergence": ["data/*.csv"], "rostam_py.validation": ["data/*.yaml"]}
        | {"rostam_py.fabrics": ["links/*.json"], "rostam_py.plan": ["ids/*.json"], "rostam_py.collectives": ["*.json"]}
        | {"rostam_py.software": ["*.json"], "rostam_py.capturing": ["*.cpp"]}
        | {name: ["*.yaml"] for name in MAPPED},
        # Objects outlive one installation, and needs_recompile alone says what is compiled again.
        options={"build_ext": {"build_temp": "build/core", "force": True}},
        ext_modules=[
            Pybind11Extension(
                "rostam_py._core",
                SOURCES,
                include_dirs=INCLUDE_DIRS,
                extra_objects=EXTRA_OBJECTS,
                cxx_std=17,
                extra_compile_args=COMPILE_ARGS,
                extra_link_args=LINK_ARGS,
            )
        ],
    )
finally:
    date_objects(STARTED)
