"""torchtitan's own trainer, captured, against the plan of the same published row: messages, time, and what differs."""

from collections import Counter

import pytest

from rostam_py.programs import Program
from rostam_py.simulation import simulate
from rostam_py.spec.build import build_machine, simulation_options
from rostam_py.validation.predict import Predictor
from rostam_py.validation.rows import run_settings
from tests.validation.captured_rows import (
    ASYNC_TP,
    FILES,
    FLOAT8,
    FOLDER,
    MORE_RANKS,
    NO_MODEL,
    rows,
    why_not,
    words,
    world,
)

CAPTURED = [row for row in rows() if not why_not(row)]
# Ratio of captured to placed time. torch 2.13 has one kernel for an eager RMSNorm, that of 2024-12 ran seven; capture
# runs the ops of compiled blocks one by one, which is longer.
RATIOS = {
    "3.1 8B H100 8": 0.905, "3.1 8B H100 8 compiled": 1.042,
    "3.1 70B H100 256 tp8 compiled": 1.033, "3.1 8B H100 64 tp8 compiled": 1.081, "3 70B A100 64": 0.998,
    "3 8B A100 64": 1.002, "3 8B H100 8 torchao none": 1.044, "3 8B H100 4 tp2 compiled": 1.072,
}  # fmt: skip
# Ratio of captured to published memory: compiled code makes fewer tensors than its ops, with tp above all.
MEMORY = {
    "3.1 8B H100 8": 0.955, "3.1 8B H100 8 compiled": 1.022, "3 8B H100 8 torchao none": 1.036,
    "3 8B H100 4 tp2 compiled": 1.146,
}  # fmt: skip
OF_MEMORY = ("elementwise", "reduction", "normalization", "optimizer")  # families of norms, and of foreach steps


def test_rows_that_are_not_captured_are_counted():
    assert Counter(map(why_not, rows())) == {ASYNC_TP: 11, FLOAT8: 14, MORE_RANKS: 1, NO_MODEL: 2, "": 8}
    assert [row.name for row in CAPTURED] == list(RATIOS)
    assert sorted(FILES) == sorted(RATIOS)


def test_the_words_are_those_of_the_row():
    said = words(CAPTURED[0])
    assert said[said.index("--training.local_batch_size") + 1] == "2"
    assert said[said.index("--model.flavor") + 1] == "8B"
    assert said[said.index("--optimizer.implementation") + 1] == "foreach"
    assert said[said.index("--activation_checkpoint.mode") + 1 :][:3] == [
        "selective", "--activation_checkpoint.selective_ac_option", "op",
    ]  # fmt: skip
    assert "--training.compile" not in said
    wide, said = CAPTURED[2], words(CAPTURED[2])  # 512 sequences on 256 ranks, tp 8
    assert said[said.index("--training.local_batch_size") + 1] == "16"
    assert said[said.index("--parallelism.tensor_parallel_degree") + 1] == "8"
    assert "--training.compile" in said
    assert world(wide) == 256
    assert [world(row) for row in CAPTURED[-2:]] == [8, 4]


def test_blocks_are_gathered_twice_but_for_the_last():
    """Of 4,096 wide: attention 2 x 4,096^2 + 2 x 4,096 x 1,024, three products of 4,096 x 14,336, two norms."""
    block = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    root = 2 * 128256 * 4096 + 4096
    found = {
        (one.kind, one.num_bytes): one.count
        for one in Program.load(FOLDER / f"{FILES['3.1 8B H100 8']}.json.gz").messages()
    }
    assert found["all_gather", 2 * block] == 2 * 32 - 1
    assert found["reduce_scatter", 4 * block] == 32
    assert (found["all_gather", 2 * root], found["reduce_scatter", 4 * root]) == (2, 1)


def test_memory_is_what_the_allocator_holds():
    published = {row.name: row.measured["memory_gib"] for row in CAPTURED if "memory_gib" in row.measured}
    found = {}
    for name, gib in published.items():
        (role,) = Program.load(FOLDER / f"{FILES[name]}.json.gz").roles.values()
        found[name] = role.memory_bytes / 2**30 / gib
        assert 0 < role.memory_parts["reserved"] < role.memory_bytes / 4
    assert found == pytest.approx(MEMORY, abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("row", CAPTURED, ids=lambda row: row.name)
def test_a_captured_step_takes_as_long_as_the_placed_one(row):
    settings = run_settings(row.keys)
    program = Program.load(FOLDER / f"{FILES[row.name]}.json.gz").on(build_machine(settings))
    captured, placed = simulate(program, options=simulation_options(settings)), Predictor().run(row.keys)
    assert captured.iteration_time_s / placed.iteration_time_s == pytest.approx(RATIOS[row.name], abs=0.005)
    apart = captured.iteration_time_s - placed.iteration_time_s
    of_memory = [sum(one.compute_by_family.get(name, 0.0) for name in OF_MEMORY) for one in (captured, placed)]
    # Products, attention and what is exposed are the same: what differs are the kernels bound by memory.
    assert apart - (of_memory[0] - of_memory[1]) == pytest.approx(0.0, abs=0.02 * placed.iteration_time_s)
