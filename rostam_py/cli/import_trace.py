"""``rostam import TRACE out=FILE``: a recorded trace as a program."""

import json

from rostam_py.errors import ConfigError
from rostam_py.traces import read_trace


def import_trace(path: str, rest: list[str], as_json: bool) -> int:
    """Read a trace and write the program that it is; returns the exit status.

    Args: rest: ``out=FILE``, the program's file.
    Raises: ConfigError for other keys, and what the trace's reader refuses.
    """
    keys = dict(one.split("=", 1) for one in rest)
    if set(keys) != {"out"}:
        raise ConfigError(
            f"rostam import of a trace takes out=PROGRAM.json alone, not {' '.join(rest) or 'nothing'}:"
            f" rostam import {path} out=program.json, then rostam run program=program.json machine=..."
        )
    program = read_trace(path)
    program.save(keys["out"])
    found = {"file": path, "program": keys["out"], "num_ranks": program.num_ranks, "roles": len(program.roles)}
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{program}; {program.num_steps:,} steps\nrostam run program={keys['out']} machine=NAME")
    return 0
