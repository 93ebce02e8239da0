"""Readers of traces: a line for each format; a file's name says which one reads it."""

from pathlib import Path

from rostam_py.errors import ConfigError
from rostam_py.programs import Program
from rostam_py.registry import Registry

TRACE_READERS = Registry("trace format")
TRACE_READERS.add("chakra", "rostam_py.traces.chakra_reading:read_chakra")
_ENDINGS = {".et": "chakra"}


def is_trace(path: str | Path) -> bool:
    """Return whether a file's name is that of a trace."""
    return Path(path).suffix in _ENDINGS


def read_trace(path: str | Path) -> Program:
    """Return the program that a trace is.

    Args: path: of one rank's file; those of the other ranks lie next to it.
    Raises: ConfigError that names the file, and the record in it that cannot be read.
    """
    if not is_trace(path):
        raise ConfigError(f"{path} has no trace's name; names of traces end in: {', '.join(_ENDINGS)}")
    program: Program = TRACE_READERS.get(_ENDINGS[Path(path).suffix])(path)
    return program
