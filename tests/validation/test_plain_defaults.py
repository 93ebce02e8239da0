"""Who names no program: 24 published set-ups by model, machine, degrees and batch alone, against what was measured.

Expected times go by the ratios of all other rows. What a row's program implies of parallelism is given, as a person
would who runs FSDP or a distributed optimizer; everything else is the default.
"""

import statistics

import pytest

from rostam_py.software.ratios import Ratios
from rostam_py.validation.predict import Predictor
from rostam_py.validation.quantities import QUANTITIES
from rostam_py.validation.tables import select

GIVEN = (
    "dp", "tp", "pp", "cp", "ep", "virtual_stages", "sequence_parallel", "micro_batch", "recompute",
    "recompute_modules", "shard", "precision", "optimizer", "allow_idle", "stage_blocks",
)  # fmt: skip
SHARDS = {"torchtitan": 3, "fsdp1": 3, "megatron_bridge": 1, "megatron_core": 1}
PRECISIONS = {"torchtitan": "bf16_mixed", "fsdp1": "bf16_mixed"}
SET_UPS = [
    ("V1", "1.7B"), ("V1", "18.4B"), ("V2", "22B full"), ("V2", "175B selective"),
    ("V3", "1.7B"), ("V3", "16B"), ("V3", "70B"),
    ("torchtitan_h100", "3.1 8B H100 8"), ("torchtitan_h100", "3.1 8B H100 8 compiled"),
    ("torchtitan_h100", "3.1 8B H100 128 compiled"), ("torchtitan_h100", "3.1 70B H100 256 tp8 compiled"),
    ("torchtitan_h100", "3.1 8B H100 64 tp8 compiled"),
    ("torchtitan_other", "3 8B A100 64"), ("torchtitan_other", "2 13B A100 64"),
    ("llm_foundry_a100", "7b A100 80GB 8"), ("llm_foundry_a100", "1b A100 80GB 8"),
    ("llm_foundry_a100", "13b A100 40GB 32"), ("llm_foundry_a100", "30b A100 80GB 8"),
    ("llm_foundry_h100", "7b H100 128"), ("llm_foundry_h100", "1b H100 8"), ("llm_foundry_h100", "70b H100 64"),
    ("llm_foundry_h100", "13b H100 8"),
    ("bridge_dense", "LLAMA3_70B H100 64 FP8 26.02"), ("bridge_dense", "LLAMA3_8B H100 8 FP8-CS 25.11"),
]  # fmt: skip


def plain(row):
    """Return a row's settings without its program."""
    keys = {key: value for key, value in row.keys.items() if key not in ("software", "cost")}
    name = row.keys["software"]["name"]
    strategy = {key: value for key, value in keys.get("strategy", {}).items() if key in GIVEN}
    strategy = {"precision": PRECISIONS[name]} | strategy if name in PRECISIONS else strategy
    strategy = {"shard": SHARDS[name]} | strategy if name in SHARDS else strategy
    return {**keys, "strategy": {**strategy, "check_memory": False}}


def without(ratios, table, row):
    """Return ratios of all rows but one."""
    return ratios.without(lambda job: (job.table, job.row) == (table, row))


@pytest.mark.slow
def test_published_set_ups_by_plain_defaults(record_property):
    predictor, shipped = Predictor(), Ratios.shipped()
    errors, inside, memory = {}, [], []
    for table_name, name in SET_UPS:
        (table,) = select([table_name])
        row = next(row for row in table.rows if row.name == name)
        result = predictor.run(plain(row))
        plan, others = result.plan, without(shipped, table_name, name)
        like = {"accelerator": plan.machine.device.name, "has_experts": plan.has_experts}
        measured = {QUANTITIES[key].measures: QUANTITIES[key].of(result, value, row.shape)
                    for key, value in row.measured.items()}  # fmt: skip
        expected = others.time_of(plan.software, **like).of(result.iteration_time_s)
        errors[table_name, name] = expected.middle / measured["time"] - 1
        inside.append(expected.low <= measured["time"] <= expected.high)
        if "memory" in measured:
            upper = others.memory_of(plan.software, **like).of(plan.memory_bytes).high
            memory.append(upper >= measured["memory"])
        assert plan.software.was_chosen
    record_property("errors", {" ".join(key): round(value, 3) for key, value in errors.items()})
    assert statistics.fmean(map(abs, errors.values())) <= 0.09, errors
    assert sum(inside) / len(inside) >= 0.75
    assert len(memory) >= 3
    assert sum(memory) / len(memory) >= 0.90
