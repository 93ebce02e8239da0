"""Read what a run left in its folder.

detail = load_run("runs/mine"); detail["result"] is what result.json holds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError


def load_run(folder: str | Path) -> dict[str, Any]:
    """Return the detail document of a run's folder.

    Raises: ConfigError if it is missing, damaged, or of a version that this rostam does not read.
    """
    return load_detail(existing_folder(folder) / "detail.json.gz", "rostam run writes one")


def load_detail(path: Path, why: str) -> dict[str, Any]:
    """Return one detail document; ``why`` and errors as ``read_file`` has them."""
    from rostam_py.simulation.detail import read_detail

    return read_file(path, read_detail, why)


def existing_folder(folder: str | Path) -> Path:
    """Return the folder's path.

    Raises: ConfigError if it is none.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; give the folder of a sweep or of a run")
    return folder


def read_file(path: Path, reader: Callable[[Path], Any], why: str) -> Any:
    """Return what ``reader`` makes of a file.

    Args: why: what the error of a missing file says besides its name.
    Raises: ConfigError if the file is missing or damaged.
    """
    import polars as pl

    try:
        if not path.exists():
            raise ConfigError(f"{path} is missing; {why}")
        return reader(path)
    except ConfigError:
        raise
    except (
        OSError,
        EOFError,
        ValueError,
        RecursionError,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{path} is damaged: {first}") from error
