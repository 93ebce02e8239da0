"""Read what a validation left in its folder.

document = load_validation("runs/validate-1b2c3d4e"); document["tables"][0]["summary"]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.report.run.load import existing_folder, read_file

FILE, VERSION = "validation.json", 2


def is_validation_folder(folder: str | Path) -> bool:
    """Say whether a folder is a validation's."""
    return (existing_folder(folder) / FILE).exists()


def load_validation(folder: str | Path) -> dict[str, Any]:
    """Return the document of a validation's folder.

    Raises: ConfigError if it is missing, damaged, or of a version that this rostam does not read.
    """
    document: dict[str, Any] = read_file(existing_folder(folder) / FILE, _read, "rostam validate writes one")
    return document


def _read(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text(encoding="utf-8"))
    found = document.get("version") if isinstance(document, dict) else None
    if found != VERSION:
        raise ConfigError(f"{path} has version {found!r}; this rostam reads version {VERSION}")
    return dict(document)
