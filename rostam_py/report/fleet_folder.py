"""result.json of ``rostam fleet``: which format a folder has, and its document.

is_folder_of("runs/fleet-mine", "rostam-weeks", "down.csv"); read_document(folder, version=1)
"""

import json
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.report.run.load import existing_folder, read_file

FILE = "result.json"
_OF_A_RUN = "detail.json.gz"


def is_folder_of(folder: str | Path, form: str, table: str) -> bool:
    """Say whether a folder's result.json has a format. Args: table: a file of such folders, should that be damaged."""
    path = existing_folder(folder) / FILE
    if not path.exists() or (path.parent / _OF_A_RUN).exists():
        return False
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return (path.parent / table).exists()  # damaged, which reading it says
    return isinstance(document, dict) and document.get("format") == form


def read_document(folder: str | Path, version: int, why: str) -> dict[str, Any]:
    """Return result.json.

    Args: why: what the error of a missing file says besides its name.
    Raises: ConfigError if it is missing, damaged, or of another version.
    """

    def read(path: Path) -> dict[str, Any]:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = document.get("version") if isinstance(document, dict) else None
        if found != version:
            raise ConfigError(f"{path} has version {found!r}; this rostam reads version {version}")
        return dict(document)

    return dict(read_file(existing_folder(folder) / FILE, read, why))
