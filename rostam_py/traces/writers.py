"""Writers of traces: a line for each format."""

from pathlib import Path

from rostam_py.programs import PlacedProgram
from rostam_py.registry import Registry

TRACE_WRITERS = Registry("trace format")
TRACE_WRITERS.add("chakra", "rostam_py.traces.chakra_writing:write_chakra")
TRACE_WRITERS.add("goal", "rostam_py.traces.goal_writing:write_goal")


def write_trace(form: str, program: PlacedProgram, path: str | Path) -> list[Path]:
    """Write a program, with the times that its kernels have on a machine; return the files.

    Args: form: of TRACE_WRITERS. path: what names of files begin with.
    Raises: UnknownNameError; ConfigError for what the format cannot say, and files that cannot be written.
    """
    files: list[Path] = TRACE_WRITERS.get(form)(program, path)
    return files
