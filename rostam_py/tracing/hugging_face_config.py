"""Configurations of Hugging Face models: where they are, and what they say; nothing is fetched, no code of theirs runs.

Example:
    find_config("hf:org/name")              # the config.json of the local cache
    read_config("path/to/config.json")      # its mapping, checked
"""

import json
import os
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.extras import Need, require
from rostam_py.graph.naming import CONFIG_FILE, HUB

_MOST_BYTES = 16 * 2**20  # label maps of thousands of classes are below 1 MiB
OFFLINE = "HF_HUB_OFFLINE"


def need_transformers(model: str) -> None:
    """Raise MissingPackageError where transformers is not installed; nothing is looked up on a network from here on."""
    require(Need(f"model={model}", "transformers", otherwise="a registered model (rostam list models)"))
    os.environ.setdefault(OFFLINE, "1")


def find_config(base: str) -> Path:
    """Return the config.json of a path, a folder, or a repository in the local cache of the hub.

    Raises: ConfigError if there is none.
    """
    if base.startswith(HUB):
        return _cached(base)
    path = Path(base)
    try:
        path = path / CONFIG_FILE if path.is_dir() else path
        is_there = path.is_file()
    except (OSError, ValueError):
        is_there = False
    if not is_there:
        raise ConfigError(f"model is {base!r}, but there is no file {str(path)!r}")
    return path


def _cached(base: str) -> Path:
    repository = base.removeprefix(HUB)
    need_transformers(base)
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repository, CONFIG_FILE)
    except HFValidationError as error:
        raise ConfigError(f"model is {base!r}; it must be {HUB}ORGANISATION/NAME: {error}") from error
    if not isinstance(found, str):
        raise ConfigError(
            f"model is {base!r}, but the local cache of the Hugging Face hub has no {CONFIG_FILE} of {repository!r},"
            f" and nothing is downloaded: fetch it with hf download {repository} {CONFIG_FILE}, or give a path to one"
        )
    return Path(found)


def read_config(path: Path) -> dict[str, Any]:
    """Return a configuration's mapping. Raises: ConfigError for what is none."""
    said = f"model file {str(path)!r}"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{said} has {path.stat().st_size:,} bytes; the most that is read is {_MOST_BYTES:,}")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{said} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{said} is no JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("model_type"), str):
        kind = value.get("model_type") if isinstance(value, dict) else value
        raise ConfigError(
            f"{said} is no configuration of a Hugging Face model: its model_type is {str(kind)[:40]!r}; it must be a"
            " name such as 'llama'"
        )
    return value
