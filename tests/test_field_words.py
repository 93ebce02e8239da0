"""Words of other programs: every hint of the table names keys that exist, with the value, at every door."""

import re

import pytest

from rostam_py.cli.compose import compose_config
from rostam_py.cli.schema import CollectiveConfig, RunConfig, SearchConfig
from rostam_py.costs.precision import PRECISIONS
from rostam_py.errors import ConfigError
from rostam_py.field_words import MEANINGS, VALUES, by_key, hint, meanings_of, value_hint
from rostam_py.plan import Strategy
from rostam_py.spec.lookup import choices_of, is_key

_KEYS = re.compile(r"(?<![\w=.{:'])([a-z_]\w*(?:\.\w+)*)\s?=(?!=)")
_OF_NAMED = ("machine", "machine.servers", "machine.taper")  # keys of machine=NAME
_VALUES = ("8", "true", "false", "full", "bf16", "ring", "0.1", None)

# word, value -> what a user of that program means. Looked up in the programs' own documentation, one by one.
MEANT = {
    # Megatron-LM
    "tensor_model_parallel_size=8": "strategy.tp=8", "pipeline_model_parallel_size=4": "strategy.pp=4",
    "context_parallel_size=2": "strategy.cp=2", "expert_model_parallel_size=8": "strategy.ep=8",
    "expert_tensor_parallel_size=1": "strategy.expert_tp=1",
    "num_layers_per_virtual_pipeline_stage=2": "strategy.virtual_stages = layers / (strategy.pp x 2)",
    "virtual_pipeline_model_parallel_size=3": "strategy.virtual_stages=3", "micro_batch_size=2":
    "strategy.micro_batch=2", "global_batch_size=512": "global_batch=512",
    "use_distributed_optimizer=true": "strategy.shard=1", "recompute_granularity=selective":
    "strategy.recompute=selective", "recompute_activations=true": "strategy.recompute=selective",
    "recompute_num_layers=4": "strategy.recompute_blocks=4", "seq_length=4096": "model.sequence_length=4096",
    "bf16=true": "strategy.precision=bf16_mixed", "fp16=true": "strategy.precision=fp16_mixed",
    "fp8_format=hybrid": "strategy.precision=fp8_delayed_mixed", "fp8_recipe=blockwise":
    "strategy.precision=fp8_block_mixed", "fp8_recipe=mxfp8": "strategy.precision=mxfp8_mixed",
    "tp_comm_overlap=true": "software.rules.tp_overlap=true",
    "overlap_p2p_communication=false": "software.rules.overlap_p2p=false",
    "overlap_moe_expert_parallel_comm=true": "software.rules.ep_overlap=true", "clip_grad=1.0":
    "software.rules.clip_gradients=true",
    "accumulate_allreduce_grads_in_fp32=true": "software.rules.gradient_precision=fp32",
    "train_samples=1000000": "target='1000000 samples'", "max_position_embeddings=4096": "model.sequence_length=4096",
    "data_parallel_sharding_strategy=optim_grads_params": "strategy.shard=3",
    # DeepSpeed
    "zero_stage=3": "strategy.shard=3", "zero=2": "strategy.shard=2", "zero_optimization.stage=1": "strategy.shard=1",
    "train_micro_batch_size_per_gpu=4": "strategy.micro_batch=4", "train_batch_size=512": "global_batch=512",
    "gradient_accumulation_steps=8": "global_batch = 8 x strategy.dp x strategy.micro_batch",
    "zero_hpz_partition_size=8": "software.rules.reshard_group=8", "overlap_comm=true":
    "software.rules.overlap_grad_reduce=true", "gradient_clipping=1.0": "software.rules.clip_gradients=true",
    "bf16.enabled=true": "strategy.precision=bf16_mixed", "sequence_parallel_size=4":
    "strategy.cp=4 software.rules.cp_algorithm=ulysses", "autotp_size=4": "strategy.tp=4",
    # Hugging Face and Lightning
    "per_device_train_batch_size=4": "strategy.micro_batch=4", "gradient_checkpointing=true": "strategy.recompute=full",
    "fsdp=full_shard": "strategy.shard=3", "fsdp=shard_grad_op": "strategy.shard=2", "fsdp=true": "strategy.shard=3",
    "sharding_strategy=FULL_SHARD": "strategy.shard=3", "sharding_strategy=SHARD_GRAD_OP": "strategy.shard=2",
    "sharding_strategy=NO_SHARD": "strategy.shard=0", "mixed_precision=bf16": "strategy.precision=bf16_mixed",
    "torch_dtype=float16": "strategy.precision=fp16_mixed", "optim=adamw_torch": "strategy.optimizer=adam",
    "max_seq_length=2048": "model.sequence_length=2048", "num_train_epochs=3": "target='3 epochs of N samples'",
    "accumulate_grad_batches=4": "global_batch = 4 x strategy.dp x strategy.micro_batch", "bucket_cap_mb=25":
    "software.rules.bucket_size='25"
    " MB'", "num_processes=8": "num_accelerators=8", "nproc_per_node=8": "fabric.server_size=8",
    # torchtitan
    "parallelism.tensor_parallel_degree=8": "strategy.tp=8", "data_parallel_shard_degree=8":
    "strategy.shard=3 strategy.shard_group=8", "data_parallel_shard_degree=-1": "strategy.shard=3",
    "data_parallel_replicate_degree=2": "strategy.shard_group = strategy.dp x strategy.cp / 2",
    "pipeline_parallel_degree=4": "strategy.pp=4", "context_parallel_degree=2": "strategy.cp=2",
    "expert_parallel_degree=8": "strategy.ep=8", "local_batch_size=2": "strategy.micro_batch=2",
    "training.seq_len=8192": "model.sequence_length=8192", "activation_checkpoint.mode=selective":
    "strategy.recompute=selective", "activation_checkpoint.mode=full": "strategy.recompute=full",
    "enable_async_tensor_parallel=true": "software.rules.tp_overlap=true", "fsdp_reshard_after_forward=never":
    "software.rules.reshard_after_forward=false", "pipeline_parallel_schedule=GPipe": "strategy.schedule=gpipe",
    "pipeline_parallel_schedule=Interleaved1F1B": "strategy.schedule=1f1b strategy.virtual_stages=N",
    "mixed_precision_param=bfloat16": "strategy.precision=bf16_mixed", "mixed_precision_reduce=float32":
    "software.rules.gradient_precision=fp32", "compile=true": "software=pytorch software.compile=true",
    # MaxText
    "per_device_batch_size=13": "strategy.micro_batch=13", "remat_policy=full": "strategy.recompute=full",
    "remat_policy=minimal": "strategy.recompute=selective", "max_target_length=2048": "model.sequence_length=2048",
    "ici_tensor_parallelism=4": "strategy.tp=4", "ici_fsdp_parallelism=64": "strategy.shard=3 strategy.shard_group=64",
    "dcn_data_parallelism=2": "strategy.dp=2", "ici_expert_parallelism=8": "strategy.ep=8", "remat=full":
    "strategy.recompute=full", "quantization=fp8": "strategy.precision=fp8_mixed",
    # nanoGPT, LLM Foundry and the rest
    "block_size=1024": "model.sequence_length=1024", "n_ctx=1024": "model.sequence_length=1024",
    "sequence_length=2048": "model.sequence_length=2048", "max_seq_len=2048": "model.sequence_length=2048",
    "device_train_microbatch_size=4": "strategy.micro_batch=4", "global_train_batch_size=512": "global_batch=512",
    "batch=64": "global_batch=64 for all replicas together, or strategy.micro_batch=64 for one pass",
    "dtype=bfloat16": "strategy.precision=bf16_mixed", "fp8=true": "strategy.precision=fp8_mixed",
    "activation_checkpointing=true": "strategy.recompute=full", "activation_checkpointing=false":
    "strategy.recompute=none", "world_size=64": "num_accelerators=64", "gpus=8": "num_accelerators=8",
    "num_gpus=8": "num_accelerators=8", "gpu=h100": "accelerator=h100", "gpu=8": "num_accelerators=8",
    "device=a100": "accelerator=a100", "topology=torus": "fabric=torus", "network=fat_tree": "fabric=fat_tree",
    "bandwidth=400": "fabric.accelerator_bandwidth='400 Gb/s'", "bandwidth=50 GB/s":
    "fabric.accelerator_bandwidth='50 GB/s'", "tokens=300000000000": "target='300000000000 tokens'",
    "grad_clip=0.0": "software.rules.clip_gradients=false", "price_per_hour=2": "accelerator_usd_per_hour=2",
    "tdp=700": "machine.accelerator_watts=700", "nccl_algo=Ring": "strategy.algorithms.all_reduce=ring",
    "routing_algorithm=ecmp": "routing=hash", "engine=packet": "fidelity=packet", "output_dir=x": "out=x",
    "random_seed=3": "seed=3", "nodes=4": "machine.servers=4 with machine=NAME (rostam list machines), or"
    " num_accelerators=4 x those of a server",
}  # fmt: skip
WITHOUT_EFFECT = ("lr=3e-4", "learning_rate=1e-4", "warmup_steps=100", "beta1=0.9", "adam_epsilon=1e-8", "dataset=c4")


def _split(text):
    word, _, value = text.partition("=")
    return word, value


@pytest.mark.parametrize("section", ["", "strategy."])
def test_words_of_other_programs_mean_what_their_users_mean(told, section):
    assert len(MEANT) >= 60
    for given, meant in MEANT.items():
        word, value = _split(given)
        with told(given):
            assert hint(section + word, value).startswith(f"did you mean {meant}")
    for given in WITHOUT_EFFECT:
        assert hint(*_split(given)) == "it has no effect on time"


def test_every_hint_of_the_table_names_keys_that_exist(told):
    for one in MEANINGS:
        texts = {one.said(value) for value in _VALUES} | {one.said(value) for value in one.by_value}
        for text in texts if one.key else ():
            for key in _KEYS.findall(text):
                with told(one.words, text, key):
                    assert key in _OF_NAMED or any(map(is_key, [key] * 3, (RunConfig, CollectiveConfig, SearchConfig)))


def test_every_word_is_found_and_none_is_a_key_of_its_own(told):
    for one in MEANINGS:
        for word in one.words.split():
            with told(word):
                assert one in meanings_of(word)
                assert "." in word or one.key.partition(".")[0] in ("search", "type") or not is_key(word, RunConfig)


def test_values_of_other_programs_become_values_that_are_known():
    for value, better in VALUES["precision"].items():
        assert better in PRECISIONS
        assert value not in PRECISIONS
    for key, values in VALUES.items():
        known = choices_of(key if key == "routing" else f"strategy.{key}")
        assert known is None or set(values.values()) <= set(known), key


def test_a_hint_needs_a_key_of_the_command():
    assert hint("dtype", "bfloat16", lambda key: is_key(key, CollectiveConfig)) == "did you mean type=bfloat16?"
    assert hint("zero_stage", "3", lambda key: is_key(key, CollectiveConfig)) == ""
    assert hint("global_batch_size", "64", lambda key: is_key(key, SearchConfig)) == "did you mean search.batches=[64]?"


def test_words_that_are_not_known_have_no_hint():
    assert [hint(word) for word in ("frobnicate", "strategy.frobnicate", "", "...", "a.b.c")] == [""] * 5
    assert value_hint("strategy.precision", "frob") == ""


@pytest.mark.parametrize(
    ("command", "given", "said"),
    [
        ("run", "zero_stage=3", "unknown key 'zero_stage' (did you mean strategy.shard=3?)"),
        ("run", "tp=8", "(did you mean strategy.tp=8?)"),
        ("run", "strategy.seed=1", "(did you mean seed=1?)"),
        ("run", "precision=bf16", "(did you mean strategy.precision=bf16_mixed?)"),
        ("run", "strategy.precision=bf16", "strategy.precision is 'bf16'; did you mean strategy.precision=bf16_mixed?"),
        ("run", "model.seq_len=4096", "(did you mean model.sequence_length=4096?)"),
        ("run", "fabric.num_gpus=8", "(did you mean num_accelerators=8?)"),
        ("run", "lr=3e-4", "unknown key 'lr' (it has no effect on time)"),
        ("search", "tensor_parallel_degree=8", "(did you mean search.axes={tp:[8]}?)"),
        ("search", "global_batch_size=256", "(did you mean search.batches=[256]?)"),
        ("collective", "dtype=bfloat16", "(did you mean type=bfloat16?)"),
    ],
)
def test_errors_of_the_command_line_carry_the_hint(command, given, said):
    with pytest.raises(ConfigError) as caught:
        compose_config(command, [given])
    assert said in str(caught.value)


def test_a_word_that_is_near_nothing_gets_no_misleading_hint():
    with pytest.raises(ConfigError, match=r"unknown key 'gpux'; keys are"):  # not "did you mean 'fabric'?" or the like
        compose_config("run", ["gpux=8"])


def test_python_gets_the_hint_too():
    import rostam

    for call, said in (
        (lambda: Strategy(zero=3), r"Strategy takes no zero=3 \(did you mean shard=3\?\)"),
        (lambda: Strategy(fsdp=True), r"\(did you mean shard=3\?\)"),
        (lambda: Strategy(data_parallel_shard_degree=8), r"did you mean shard=3, shard_group=8\?"),
        (lambda: Strategy(precision="bf16"), r"did you mean 'bf16_mixed'\?"),
        (lambda: rostam.place(None, None, zero_stage=3), r"did you mean strategy=Strategy\(shard=3\)\?"),
        (lambda: rostam.Machine(gpu="h100"), r"did you mean accelerator='h100'\?"),
        (lambda: rostam.trace("gpt_125m", seq_len=4096), r"did you mean sequence_length=4096\?"),
        (lambda: rostam.search(None, None, global_batch=64), r"did you mean batches=\[64\]\?"),
        (lambda: rostam.simulate(None, fidelty="flow"), r"did you mean fidelity='flow'\?"),
        (lambda: rostam.run_collective(None, "all_reduce", algo="ring"), r"did you mean algorithm='ring'\?"),
    ):
        with pytest.raises(ConfigError, match=said):
            call()


def test_public_functions_keep_their_signature_and_can_be_pickled():
    import inspect
    import pickle

    import rostam
    from rostam_py.placement import place

    assert inspect.signature(rostam.place) == inspect.signature(place)
    assert pickle.loads(pickle.dumps(rostam.place)) is rostam.place
    with pytest.raises(TypeError, match="required"):  # other misuse is Python's to explain
        rostam.place()


def test_a_class_is_made_to_explain_once_and_only_where_it_is_made_in_its_own_way():
    from rostam_py.keywords import explained

    class Bare:
        """Takes nothing."""

    class Sized:
        """Takes a size."""

        def __init__(self, size):
            self.size = size

    assert explained(Bare, __name__, "Bare") is Bare
    assert isinstance(Bare(), Bare)
    first = explained(Sized, __name__, "Sized").__init__
    assert explained(Sized, __name__, "Sized").__init__ is first
    with pytest.raises(ConfigError, match=r"Sized takes no sise=3 \(did you mean size=3\?\)"):
        Sized(sise=3)
    assert Sized(size=3).size == 3


def test_help_lists_the_words(capsys):
    from rostam_py.cli.main import main

    assert main(["run", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "model.sequence_length=null" in text
    assert all(word in text for _, words in by_key(lambda key: is_key(key, RunConfig)) for word in words)


def test_options_of_other_programs_get_the_hint(capsys):
    from rostam_py.cli.main import main

    assert main(["run", "--tensor-model-parallel-size", "8"]) == 2
    assert "unknown option '--tensor-model-parallel-size' (did you mean strategy.tp?)" in capsys.readouterr().err
    assert main(["run", "--bf16"]) == 2
    assert "(did you mean strategy.precision=bf16_mixed?)" in capsys.readouterr().err


def test_a_value_that_rostam_has_is_no_word_of_another_program():
    for key, words in VALUES.items():
        for value in {*words.values()}:
            assert value_hint(f"strategy.{key}", value) == "", (key, value)
