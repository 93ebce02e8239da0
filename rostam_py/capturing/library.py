"""The fake device's library: compiled at first use against the installed torch, kept in the cache folder.

Example:
    load_library(library_of(installed_torch()))     # before torch is imported
"""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rostam_py.documents import cache_folder
from rostam_py.errors import ConfigError

SOURCE = Path(__file__).with_name("fake_device.cpp")
VERSIONS = "torch >= 2.13, < 2.14"  # pyproject.toml has the same range: the parts that are used are no stable interface
_FIRST, _BEYOND = (2, 13), (2, 14)
_FLAGS = ("-O1", "-shared", "-fPIC", "-std=c++20")
_MOST_WORDS = 2_000  # of a compiler's errors


@dataclass(frozen=True, slots=True)
class Torch:
    """An installed torch that is not imported. folder: of the package. version: as it names itself, "2.13.0+cpu"."""

    folder: Path
    version: str


def installed_torch() -> Torch:
    """Return the torch of this interpreter.

    Raises: ConfigError where there is none, one of another release, or one that has a CUDA device of its own.
    """
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        raise ConfigError(f"torch is not installed for {sys.executable}; capture needs {VERSIONS}, built for CPUs")
    folder = Path(next(iter(found.submodule_search_locations)))
    return check_torch(Torch(folder, importlib.metadata.version("torch")))


def check_torch(torch: Torch) -> Torch:
    """Return a torch that capture can work with. Raises: ConfigError for another."""
    numbers = re.match(r"(\d+)\.(\d+)", torch.version)
    release = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if not _FIRST <= release < _BEYOND:
        raise ConfigError(f"torch is {torch.version}; capture needs {VERSIONS}")
    if (torch.folder / "lib" / "libtorch_cuda.so").exists():
        raise ConfigError(
            f"torch {torch.version} is built for CUDA, whose device capture would replace; install the build for CPUs"
            " into an environment of its own: pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
    return torch


def library_of(torch: Torch) -> Path:
    """Return the fake device's library for a torch; the first time it is compiled, in some 5 s.

    Raises: ConfigError with the compiler's words where it fails, or where there is no compiler.
    """
    compiler = _compiler()
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join((*_FLAGS, compiler, str(torch.folder))).encode())
    path = cache_folder("capture") / f"fake_device-{torch.version}-{digest.hexdigest()[:16]}.so"
    if not path.exists():
        _compile(compiler, torch, path)
    return path


def load_library(path: Path) -> ctypes.CDLL:
    """Load the library into this process, in which torch must not be imported yet.

    Raises: ConfigError where it cannot be loaded.
    """
    try:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ConfigError(f"{path} cannot be loaded: {error}; remove it, and it is compiled anew") from error
    library.rostam_stream.restype = ctypes.c_int64
    library.rostam_set_stream.argtypes = [ctypes.c_int64]
    return library


def _compiler() -> str:
    given = os.environ.get("CXX", "")
    for name in (given,) if given else ("c++", "g++", "clang++"):
        if shutil.which(name.split()[0]):
            return name
    raise ConfigError(
        f"capture compiles a small library against torch, and finds no C++20 compiler ({given or 'c++, g++, clang++'});"
        " install one, or name it in $CXX"
    )


def _compile(compiler: str, torch: Torch, path: Path) -> None:
    folder = torch.folder
    includes = [f"-I{folder / 'include'}", f"-I{folder / 'include' / 'torch' / 'csrc' / 'api' / 'include'}"]
    links = [f"-L{folder / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{folder / 'lib'}"]
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [*compiler.split(), *_FLAGS, *includes, str(SOURCE), "-o", str(partial), *links],
            capture_output=True, text=True, errors="replace",
        )  # fmt: skip
        if done.returncode:
            raise ConfigError(
                f"{compiler} cannot compile {SOURCE.name} against torch {torch.version}; it says:\n"
                f"{done.stderr[-_MOST_WORDS:].strip()}"
            )
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
