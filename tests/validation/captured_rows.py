"""Published rows of torchtitan as its own trainer runs them: which are captured, by what words; why others are not.

    pip install torchtitan==0.1.0 ...        # into an environment of its own, with torch 2.13 for CPUs
    cd FOLDER && python -m tests.validation.captured_rows      # writes tests/validation/captured/*.json.gz anew

The folder holds what torchtitan's package lacks: tests/assets/tokenizer/original.model, a tokenizer of tiktoken with
128,000 entries, whatever they are, and tests/assets/c4_test with a data set. Release 0.1.0 (June 2025) is the nearest
to the rows that runs on torch 2.13: they are of April 2024 to June 2025. Its attention, rotations, loss, checkpointing
and FSDP groups are the rows'; AdamW is what the row's release has by default.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import rostam_py as rostam
from rostam_py.validation.rows import Row
from rostam_py.validation.tables import shipped

FOLDER = Path(__file__).parent / "captured"
TABLES = ("torchtitan_h100", "torchtitan_other")
FILES = {
    "3.1 8B H100 8": "llama3_8b_h100_8", "3.1 8B H100 8 compiled": "llama3_8b_h100_8_compiled",
    "3.1 70B H100 256 tp8 compiled": "llama3_70b_h100_256_tp8", "3.1 8B H100 64 tp8 compiled": "llama3_8b_h100_64_tp8",
    "3 70B A100 64": "llama3_70b_a100_64", "3 8B A100 64": "llama3_8b_a100_64",
    "3 8B H100 8 torchao none": "llama3_8b_h100_8_torchao", "3 8B H100 4 tp2 compiled": "llama3_8b_h100_4_tp2",
}  # fmt: skip
ASYNC_TP = "asynchronous tensor parallelism is a pass of the compiler over symmetric memory"
FLOAT8 = "torchao casts to 8 bits by a dozen ops, which the compiler fuses; under capture each is a kernel"
MORE_RANKS = "it is another row, captured on 8 ranks, with 128 of them"
NO_MODEL = "torchtitan 0.1.0 has no Llama 2"


def why_not(row: Row) -> str:
    """Return why a row is not captured; "" for one that is."""
    software = row.keys["software"]
    if software.get("async_tp"):
        return ASYNC_TP
    if software.get("float8"):
        return FLOAT8
    if row.keys["machine"]["servers"] == 16:
        return MORE_RANKS
    return "" if row.keys["model"].startswith("titan_llama3") else NO_MODEL


def rows() -> list[Row]:
    """Return all rows of runs of torchtitan."""
    return [row for table in TABLES for row in shipped(table).rows]


def words(row: Row) -> list[str]:
    """Return the command line that trains as a row says."""
    keys, strategy = row.keys, row.keys["strategy"]
    recompute, tp = strategy["recompute"], strategy.get("tp", 1)
    selective = ["--activation_checkpoint.selective_ac_option", "op"] if recompute == "selective" else []
    compiled = ["--training.compile"] if keys["software"].get("compile") else []
    implementation = "fused" if keys["software"].get("release", "2025-06") >= "2025-02" else "foreach"
    return [
        "python", "-m", "torchtitan.train", "--model.name", "llama3",
        "--model.flavor", keys["model"].removeprefix("titan_llama3_").upper(),
        "--model.tokenizer_path", "tests/assets/tokenizer/original.model", "--training.dataset", "c4_test",
        "--training.steps", "8", "--metrics.log_freq", "100", "--training.seq_len", "8192",
        "--training.local_batch_size", str(keys["global_batch"] * tp // world(row)),
        "--parallelism.tensor_parallel_degree", str(tp), "--activation_checkpoint.mode", recompute, *selective,
        "--optimizer.implementation", implementation, *compiled,
    ]  # fmt: skip


def world(row: Row) -> int:
    """Return how many ranks a row has; those of one idle server of which it takes a part say so."""
    strategy = row.keys["strategy"]
    if strategy.get("allow_idle"):
        return int(strategy["dp"] * strategy["tp"])
    return int(8 * row.keys["machine"]["servers"])


def main() -> None:
    """Capture every row that can be, with the allocator's setting of torchtitan's run_train.sh."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    for row in rows():
        if why_not(row):
            continue
        gpu = "a100_80gb" if row.keys["machine"]["name"] == "dgx_a100" else "h100_80gb"
        program = rostam.capture(words(row), world=world(row), gpu=gpu)
        said = re.sub(r"\S+/(?=torchtitan/)", "", program.description)  # where the package lies is of no interest
        replace(program, description=said).save(FOLDER / f"{FILES[row.name]}.json.gz")


if __name__ == "__main__":
    main()
