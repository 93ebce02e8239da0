"""Memory over time of a run's stages, for the figure of its report."""

from typing import Any

from rostam_py.simulation.drawing import short
from rostam_py.simulation.result import RunResult
from rostam_py.simulation.stage_memory import StageMemory

MAX_POINTS = 400  # of a stage in a document: side by side on a page 900 pixels wide


def memory_detail(result: RunResult) -> dict[str, Any] | None:
    """Return the memory over time for the figure of a run, None where it is not known.

    Model: of more than ``MAX_POINTS`` steps neighbours share one, the highest of them.
    """
    found = result.memory_over_time()
    if not found:
        return None
    return {
        "capacity": int(result.plan.machine.device.memory_bytes),
        "stages": [
            {"stage": one.stage, "accelerator": one.accelerator, "constant": one.constant_bytes} | _thinned(one)
            for one in found
        ],
    }


def _thinned(one: StageMemory) -> dict[str, Any]:
    per = -(-len(one.time_s) // MAX_POINTS)
    starts = range(0, len(one.time_s), per)
    return {
        "time_s": [short(one.time_s[k], 10) for k in starts],
        "num_bytes": [max(one.num_bytes[k : k + per]) for k in starts],
    }
