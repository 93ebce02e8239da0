"""``rostam export FORMAT program=FILE to=PREFIX``: a program on a machine, as other simulators read it."""

import json
from typing import cast

from rostam_py.cli.compose import compose_config
from rostam_py.cli.run_job import placed_program
from rostam_py.cli.schema import RunConfig
from rostam_py.errors import ConfigError
from rostam_py.traces import TRACE_WRITERS, write_trace

_TO = "to="


def export(arguments: list[str], as_json: bool) -> int:
    """Write a program's trace, kernels timed on the machine of the other keys; returns the exit status."""
    formats = [one for one in arguments if "=" not in one]
    prefixes = [one.removeprefix(_TO) for one in arguments if one.startswith(_TO)]
    rest = [one for one in arguments if "=" in one and not one.startswith(_TO)]
    is_program = any(one.startswith("program=") for one in rest)
    if len(formats) != 1 or len(prefixes) != 1 or not prefixes[0] or not is_program:
        raise ConfigError(
            "rostam export takes a format, a program, the machine's keys and where files go: rostam export"
            f" {TRACE_WRITERS.names()[0]} program=program.json machine=dgx_h100 to=FOLDER/NAME"
        )
    TRACE_WRITERS.get(formats[0])  # refused before any work
    config = cast(RunConfig, compose_config("run", rest))
    files = write_trace(formats[0], placed_program(config, rest), prefixes[0])
    if as_json:
        print(json.dumps({"format": formats[0], "files": [str(one) for one in files]}, indent=2))
    else:
        print(f"{len(files)} files: {files[0]} to {files[-1]}")
    return 0
