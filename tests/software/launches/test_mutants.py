"""Mutants of every reader's smallest sample: keys that a run can have, or an error that says why; nothing else."""

import pytest

from rostam_py.errors import ConfigError
from rostam_py.software.launches.reader import read_launch
from rostam_py.software.names import LAUNCHES
from tests.doors.mutants import mutants
from tests.software.launches.samples import SAMPLES

# Reader -> its smallest sample of each form.
SMALLEST = {
    "torchtitan": ("titan_registry", "titan_old"), "llm_foundry": ("mpt_7b",),
    "maxtext": ("maxtext_words", "maxtext_llama2"), "megatron_bridge": ("bridge",),
    "megatron_lm": ("gpt3", "deepseek"), "deepspeed": ("deepspeed",),
    "megatron_deepspeed": ("bloom",),
}  # fmt: skip
SIZES = (
    "num_accelerators", "global_batch", "strategy.micro_batch", "strategy.tp", "strategy.pp", "strategy.cp",
    "strategy.ep", "strategy.virtual_stages", "strategy.shard_group", "model.sequence_length", "model.args.num_layers",
    "model.args.width", "model.args.num_heads", "model.args.vocabulary", "model.args.hidden",
    "model.args.num_experts", "model.args.experts_per_token",
)  # fmt: skip


def test_every_reader_has_one():
    assert set(SMALLEST) == set(LAUNCHES)


def check(name, count, folder):
    """Read mutants of a sample; return how many of them were read."""
    sample = SAMPLES[name]
    form = {"json": "json", "yaml": "yaml", "yml": "yaml"}.get(sample.file.rpartition(".")[2], "")
    path, taken = folder / sample.file, 0
    for data in mutants(sample.text.encode(), count, seed=7, form=form):
        path.write_bytes(data)
        try:
            launch = read_launch(path, {}, sample.num_accelerators)
        except ConfigError:
            continue
        taken += 1
        for key in SIZES:
            value = launch.keys.get(key, 1)
            assert isinstance(value, int) and not isinstance(value, bool) and value >= 1, (key, value)  # noqa: PT018
    return taken


@pytest.mark.parametrize("name", [name for names in SMALLEST.values() for name in names])
def test_fifty_mutants(name, tmp_path):
    assert 0 < check(name, 50, tmp_path) < 50


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for names in SMALLEST.values() for name in names])
def test_two_thousand_mutants(name, tmp_path):
    assert 0 < check(name, 2000, tmp_path) < 2000
