"""Time what Megatron-Core's schedule that hides experts' all-to-alls takes of a host, against its plain one, on a CPU.

    python -m calibration.host_overlap_code FOLDER > rows.csv

As ``calibration/host_code.py``, whose layer, folder and stand-ins these are: a forward and a backward, once in plain
calls and once node by node (combined_1f1b.py, overlap_moe_expert_parallel_comm), a forward of one micro-batch and the
backward of the one before it by turns, with and without weight gradients put off (delay_wgrad_compute). Streams and
events are objects that do nothing: what the driver takes for them is left out.
"""

import argparse
import contextlib
import copy
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from calibration import stand_in
from calibration.host_code import EXPERT_RANKS, RECIPES, TOKENS, WIDTH, build_layer, clear_gradients, prepare

CASES = [(recipe, count) for recipe in RECIPES for count in (4, 8, 16, 32)]
WAYS = ("plain", "nodes", "put_off")
HEADER = ",".join(
    ["recipe,experts", *(f"{way}_{what}_us" for way in WAYS for what in ("forward", "backward")), "launches"]
)
_CALLS, _REPEATS = 20, 9
_STATE = ("attention_mask", "rotary_pos_cos", "rotary_pos_sin", "packed_seq_params", "sequence_len_offset", "model")


class _Nodes:
    """A layer that runs node by node, each call with a plan of its own, as each micro-batch has."""

    def __init__(self, layer: Any, x: torch.Tensor, turns: Any) -> None:
        from megatron.core.models.common.model_chunk_schedule_plan import TransformerLayerSchedulePlan

        self.layer, self.x, self.turns = layer, x, turns
        self.plan, self.gradient = TransformerLayerSchedulePlan, torch.ones_like(x)
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        clear_gradients(layer)
        self.waiting = self.forward()

    def forward(self) -> Any:
        """Run a forward alone."""
        made = self._made()
        self.plan.run(made, None, f_input=self.x)
        return made

    def both(self) -> None:
        """Run a forward and the backward of the micro-batch before it, by turns."""
        made, behind = self._made(), self.waiting
        self.plan.run(made, behind, f_input=self.x, b_grad=self.gradient)
        self.waiting = made

    def _made(self) -> Any:
        state = types.SimpleNamespace(rotary_pos_emb=self.turns, **dict.fromkeys(_STATE))
        return self.plan(self.layer, torch.cuda.Event(), state, *self.streams)


def measure(name: str, experts: int) -> str:
    """Return a row of the file: of a layer, what its Python takes [us] in each schedule, and how many launches.

    Raises: AssertionError if the schedules do not launch equally much.
    """
    os.environ["NVTE_TORCH_COMPILE"] = "0"
    stand_in.install((10, 0) if name == "mxfp8" else (9, 0))
    torch.set_num_threads(1)
    layer, config = build_layer("experts", RECIPES[name], experts)
    from megatron.core.fp8_utils import get_fp8_context
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
    from megatron.core.transformer.spec_utils import build_module

    putting_off = copy.copy(config)
    putting_off.delay_wgrad_compute = putting_off.overlap_moe_expert_parallel_comm = True
    spec = get_gpt_layer_with_transformer_engine_spec(experts * EXPERT_RANKS, True, qk_layernorm=True)
    other = build_module(spec, config=putting_off, layer_number=1)
    x = torch.randn(TOKENS, 1, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    turns = (torch.zeros(TOKENS, 1, 1, 32),) * 2
    gradient = torch.ones_like(x)

    def forward() -> Any:
        with get_fp8_context(config, 0) if RECIPES[name] else contextlib.nullcontext():
            return layer(x, attention_mask=None, rotary_pos_emb=turns)[0]

    nodes, put_off = _Nodes(layer, x, turns), _Nodes(other, x, turns)
    ways = [forward, lambda: forward().backward(gradient), nodes.forward, nodes.both, put_off.forward, put_off.both]
    counts = [_launches(run) for run in ways]
    assert counts[1] == counts[3] == counts[5], counts
    found = _medians_us(ways)
    numbers = [n for at in (0, 2, 4) for n in (found[at], found[at + 1] - found[at])]
    return ",".join([name, str(experts), *(f"{number:.0f}" for number in [*numbers, counts[1]])])


def _launches(run: Callable[[], Any]) -> float:
    run()
    stand_in.SPENT["launches"] = 0
    run()
    return stand_in.SPENT["launches"]


def _medians_us(ways: list[Callable[[], Any]]) -> list[float]:
    """Return what each way takes, of runs in turn, so that a machine that slows down slows all."""
    found: list[list[float]] = [[] for _ in ways]
    for _ in range(_REPEATS + 1):
        for run, row in zip(ways, found, strict=True):
            stand_in.SPENT["seconds"] = 0.0
            begin = time.process_time()
            for _ in range(_CALLS):
                run()
            row.append((time.process_time() - begin - stand_in.SPENT["seconds"]) / _CALLS * 1e6)
    return [statistics.median(row[1:]) for row in found]


def main() -> None:
    """Print the rows of all cases, each measured in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m calibration.host_overlap_code", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", help="of a prepared folder, RECIPE,EXPERTS")
    given = parser.parse_args()
    if given.case:
        name, experts = given.case.split(",")
        sys.path.insert(0, str(given.folder))
        sys.stdout.write(measure(name, int(experts)) + "\n")
        return
    sys.stdout.write(HEADER + "\n")
    with tempfile.TemporaryDirectory() as made:
        prepare(given.folder, Path(made))
        for recipe, count in CASES:
            command = [sys.executable, "-m", "calibration.host_overlap_code", made, "--case", f"{recipe},{count}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            sys.stdout.write(done.stdout.splitlines()[-1] + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
