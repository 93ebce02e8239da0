"""Build rostam: the Python packages and the C++17 core (``rostam_py._core``)."""

import os
from glob import glob

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
from setuptools import find_packages, setup

# ROSTAM_SANITIZE=1 builds with the address and undefined-behaviour sanitizers (make test-asan).
SANITIZE = os.environ.get("ROSTAM_SANITIZE") == "1"
COMPILE_ARGS = ["-O2", "-g0", "-ffp-contract=off", "-Wall", "-Wextra", "-fvisibility=hidden"]
LINK_ARGS: list[str] = []
if SANITIZE:
    COMPILE_ARGS = ["-O1", "-g", "-ffp-contract=off", "-UNDEBUG", "-fno-omit-frame-pointer"]
    COMPILE_ARGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    LINK_ARGS = ["-fsanitize=address,undefined"]

ParallelCompile("ROSTAM_BUILD_JOBS", default=os.cpu_count() or 1).install()


def mapped_packages(folder: str) -> dict[str, str]:
    """Return {package name: folder} for a top-level folder installed below ``rostam_py``."""
    folders = [folder] + [f"{folder}/{name.replace('.', '/')}" for name in find_packages(folder)]
    return {f"rostam_py.{path.replace('/', '.')}": path for path in folders}


MAPPED = mapped_packages("models") | mapped_packages("configs")

setup(
    packages=find_packages(include=["rostam_py", "rostam_py.*"]) + sorted(MAPPED),
    package_dir=MAPPED,
    ext_modules=[
        Pybind11Extension(
            "rostam_py._core",
            sorted(glob("csrc/**/*.cpp", recursive=True)),
            include_dirs=["csrc"],
            cxx_std=17,
            extra_compile_args=COMPILE_ARGS,
            extra_link_args=LINK_ARGS,
            depends=sorted(glob("csrc/**/*.h", recursive=True) + glob("csrc/**/*.inc", recursive=True)),
        )
    ],
)
