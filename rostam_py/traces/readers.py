"""Readers of traces: a line for each format; a file's name, or its first word, says which one reads it."""

from pathlib import Path

from rostam_py.errors import ConfigError
from rostam_py.programs import Program
from rostam_py.registry import Registry

TRACE_READERS = Registry("trace format")
TRACE_READERS.add("chakra", "rostam_py.traces.chakra_reading:read_chakra")
TRACE_READERS.add("simai", "rostam_py.traces.simai_reading:read_simai")
_ENDINGS = {".et": "chakra"}
_FIRST_WORDS = {b"HYBRID_TRANSFORMER_FWD_IN_BCKWD": "simai"}


def is_trace(path: str | Path) -> bool:
    """Return whether a file is a trace, by its name or first word."""
    return bool(_format(path))


def read_trace(path: str | Path) -> Program:
    """Return the program that a trace is.

    Args: path: of the file, or of one rank's; those of the other ranks lie next to it.
    Raises: ConfigError that names the file, and the record in it that cannot be read.
    """
    form = _format(path)
    if not form:
        words = ", ".join(word.decode() for word in _FIRST_WORDS)
        raise ConfigError(f"{path} is no trace: names of traces end in {', '.join(_ENDINGS)}, or texts begin: {words}")
    program: Program = TRACE_READERS.get(form)(path)
    return program


def _format(path: str | Path) -> str:
    """Return the name of a file's format; "" for one that is no trace."""
    if Path(path).suffix in _ENDINGS:
        return _ENDINGS[Path(path).suffix]
    try:
        with open(path, "rb") as file:
            start = file.read(max(map(len, _FIRST_WORDS)))
    except (OSError, ValueError):
        return ""  # who reads it says why it cannot be read
    return next((form for word, form in _FIRST_WORDS.items() if start.startswith(word)), "")
