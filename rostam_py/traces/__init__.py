"""Traces: programs as other simulators and profilers write them, read as programs here and written from them.

Example:
    program = rostam_py.traces.read_trace("run.0.et")    # and its neighbours run.1.et, ...: a rank each
    write_chakra(program.on(machine), "folder/run")
"""

from rostam_py.traces.readers import TRACE_READERS, read_trace
from rostam_py.traces.writers import TRACE_WRITERS, write_trace

__all__ = ["TRACE_READERS", "TRACE_WRITERS", "read_trace", "write_trace"]
