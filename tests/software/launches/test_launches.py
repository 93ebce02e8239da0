"""Launch configurations: each word becomes keys, is left out with the reason, or is not supported; none is dropped."""

import pytest

from rostam_py.cli.compose import compose_config
from rostam_py.cli.launched import as_overrides
from rostam_py.errors import ConfigError
from rostam_py.software.launches.document import read_document
from rostam_py.software.launches.ledger import LEFT, SET, UNSUPPORTED
from rostam_py.software.launches.reader import read_launch
from rostam_py.software.names import LAUNCHES
from tests.software.launches.samples import SAMPLES


def written(folder, name):
    sample = SAMPLES[name]
    for file, text in {sample.file: sample.text, **sample.others}.items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder / sample.file


def read(folder, name):
    return read_launch(written(folder, name), {}, SAMPLES[name].num_accelerators)


def launch_of(folder, text, name="run.sh", **variables):
    (folder / name).write_text(text, encoding="utf-8")
    return read_launch(folder / name, variables, None)


MEGATRON = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4" \
    " --seq-length 64 --micro-batch-size 1 --global-batch-size 8 --vocab-size 128 "  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_public_configurations_become_their_keys(name, tmp_path):
    sample, launch = SAMPLES[name], read(tmp_path, name)
    assert {key: launch.keys.get(key) for key in sample.keys} == sample.keys
    assert {row.word for row in launch.of(UNSUPPORTED)} == set(sample.unsupported)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_word_is_dropped_and_each_that_is_left_out_has_a_reason(name, tmp_path):
    launch = read(tmp_path, name)
    words = set(read_document(tmp_path / SAMPLES[name].file, {}).words)
    judged = {row.word for row in launch.rows}
    assert {word.removeprefix("MODEL_ARGS.") for word in words} <= judged
    assert all(row.what and row.verdict in (SET, LEFT, UNSUPPORTED) for row in launch.rows)
    assert len(judged) == len(launch.rows)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "factory"])  # whose model is in no cache
def test_the_keys_are_those_of_a_run(name, tmp_path):
    sample, launch = SAMPLES[name], read(tmp_path, name)
    size = [] if sample.num_accelerators is None else [f"num_accelerators={sample.num_accelerators}"]
    size += [] if "model" in launch.keys else ["model=llama2_7b"]
    config = compose_config("run", [*as_overrides(launch, size), *size, "machine=dgx_h100"])
    assert config.strategy.tp == launch.keys.get("strategy.tp", 1)
    assert config.model.startswith(launch.keys.get("model", "llama2_7b"))


def test_every_registered_reader_reads_a_sample(tmp_path):
    read_by = set()
    for name in SAMPLES:
        document = read_document(written(tmp_path, name), {})
        read_by.add(next(one for one in LAUNCHES if LAUNCHES.get(one)().recognises(document)))
    assert read_by == set(LAUNCHES)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("--no-masked-softmax-fusion", UNSUPPORTED),
        ("--no-bias-swiglu-fusion", UNSUPPORTED),
        ("--deterministic-mode", UNSUPPORTED),
        ("--attention-backend unfused", UNSUPPORTED),
        ("--attention-backend flash", LEFT),
        ("--transformer-impl local", UNSUPPORTED),
        ("--transformer-impl transformer_engine", LEFT),
        ("--use-flash-attn", LEFT),
        ("--seed 1234", LEFT),
    ],
)
def test_what_makes_a_step_slower_than_here_is_not_left_out_as_without_effect(words, verdict, tmp_path):
    launch = launch_of(tmp_path, MEGATRON + words)
    assert [row.verdict for row in launch.rows if row.word == words.split()[0][2:].replace("-", "_")] == [verdict]


def test_defaults_are_the_programs_own(tmp_path):
    keys = launch_of(tmp_path, MEGATRON).keys
    assert keys["strategy.precision"] == "fp32"
    assert (keys["software.overlap_grad_reduce"], keys["software.use_distributed_optimizer"]) == (False, False)
    assert (keys["model.args.norm"], keys["model.args.activation"], keys["model.args.positions"]) == (
        "layer", "gelu", "learned",
    )  # fmt: skip
    assert (keys["model.args.hidden"], keys["model.args.dropout"], keys["model.args.is_tied"]) == (256, 0.1, True)
    gated = launch_of(tmp_path, MEGATRON + "--swiglu --hidden-size 4096").keys
    assert gated["model.args.hidden"] == 10880  # int(4 x 4096 x 2 / 3 / 64) x 64


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1", "strategy.virtual_stages", 2),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", "strategy.recompute_blocks",
         2),
        ("--recompute-activations", "strategy.recompute", "selective"),
        ("--optimizer sgd", "strategy.optimizer", "momentum"),
        ("--clip-grad 0.0", "software.clip_grad", False),
        ("--no-gradient-accumulation-fusion", "software.gradient_accumulation_fusion", False),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "software.use_megatron_fsdp",
         True),
        ("--num-experts 4 --moe-layer-freq '([0]*1+[1]*3)'", "model.args.dense_layers", 1),
        ("--context-parallel-size 2 --cp-comm-type a2a", "software.cp_comm_type", "a2a"),
        ("--nnodes 4 --nproc-per-node 4", "num_accelerators", 16),
    ],
)  # fmt: skip
def test_words_of_megatron(words, key, value, tmp_path):
    assert launch_of(tmp_path, MEGATRON + f"{words}").keys[key] == value


@pytest.mark.parametrize(
    "words",
    ["--optimizer muon", "--optimizer-cpu-offload", "--exp-avg-dtype bf16", "--my-own-flag 3",
     "--num-experts 4 --moe-layer-freq 2", "--num-experts 4 --moe-token-dispatcher-type allgather",
     "--recompute-granularity selective --recompute-modules my_part", "--pipeline-model-parallel-size 2"
     " --mtp-num-layers 1 --pipeline-model-parallel-layout 'Ettt|tmL'"],
)  # fmt: skip
def test_what_is_not_modelled_is_said(words, tmp_path):
    refused = launch_of(tmp_path, MEGATRON + words).of(UNSUPPORTED)
    assert words.rpartition("--")[2].split()[0].replace("-", "_") in {row.word for row in refused}


def test_deepspeeds_words_win_where_its_engine_decides(tmp_path):
    words = MEGATRON + "--deepspeed --deepspeed_config z.json --zero-stage 2"
    (tmp_path / "z.json").write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": 8}', encoding="utf-8")
    launch = launch_of(tmp_path, words)
    assert (launch.software, launch.keys["software.stage"], launch.keys["model.args.width"]) == ("deepspeed", 2, 64)
    (tmp_path / "z.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    with pytest.raises(ConfigError, match="zero_stage is '2'; it must be 3"):
        launch_of(tmp_path, words)


def test_no_decoder_is_made_up_where_the_file_has_no_sizes(tmp_path):
    launch = launch_of(
        tmp_path, "python pretrain_gpt.py --num-layers 4 --micro-batch-size 1 --swiglu --nproc-per-node 8"
    )
    assert launch.keys["model.num_layers"] == 4
    assert not [key for key in launch.keys if key == "model" or key.startswith("model.args")]
    assert [row.word for row in launch.of(UNSUPPORTED)] == ["swiglu"]


def test_a_second_copy_of_the_weights(tmp_path):
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}}'
    launch = launch_of(tmp_path, text, "ds.json")
    assert launch.keys["software.rules.reshard_group"] == 4
    assert not launch.of(UNSUPPORTED)


def test_precisions_of_optimizer_state(tmp_path):
    words = "--bf16 --use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-dtype bf16 --exp-avg-sq-dtype "
    launch = launch_of(tmp_path, MEGATRON + words + "bf16 --main-grads-dtype bf16")
    assert launch.keys["software.rules.master_precision"] == "fp16"
    assert launch.keys["software.rules.moment_precision"] == "bf16"
    assert launch.keys["software.rules.gradient_precision"] == "bf16"
    assert not launch.of(UNSUPPORTED)
    mixed = launch_of(tmp_path, MEGATRON + words + "fp32")
    assert mixed.keys["software.rules.moment_precision"] == "fp32"
    assert {row.word for row in mixed.of(UNSUPPORTED)} == {"exp_avg_dtype", "exp_avg_sq_dtype"}
    with pytest.raises(ConfigError, match="exp_avg_sq_dtype is 'int4'; it must be one of: fp32, bf16, fp16, fp8"):
        launch_of(tmp_path, MEGATRON + words + "int4")


@pytest.mark.parametrize(
    ("words", "layers", "chunks"),
    [
        ("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1", [1, 3], None),
        ("--pipeline-model-parallel-size 3 --decoder-last-pipeline-num-layers 2", [1, 1, 2], None),
        ("--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 2"
         " --num-virtual-stages-per-pipeline-rank 2", [1, 1, 1, 1], 2),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*2|t|t|L'", "Et*2|t|t|L", 2),
        ("--decoder-first-pipeline-num-layers 4", None, None),
        ("--pipeline-model-parallel-layout EttttL", None, None),
    ],
)  # fmt: skip
def test_layers_of_megatrons_stages(words, layers, chunks, tmp_path):
    launch = launch_of(tmp_path, MEGATRON + words)
    assert launch.keys.get("strategy.placing.layers") == layers
    assert launch.keys.get("strategy.virtual_stages") == chunks
    assert not launch.of(UNSUPPORTED)
    if layers is not None:
        config = compose_config("run", [*as_overrides(launch, []), "machine=dgx_h100"])
        assert config.strategy.placing.layers == layers


TITAN = 'model.name = "llama3"\nmodel.flavor = "8B"\nparallelism.pipeline_parallel_degree = {}\n{}'


@pytest.mark.parametrize(
    ("stages", "words", "layers", "chunks"),
    [
        # 32 layers and two ends as one each: 34 = 9 + 9 + 8 + 8 in four chunks, of which the first and the last give
        # one to the ends; with ends of 2 and 4, in chunks of five at most, 38 = 6 x 5 + 2 x 4.
        (4, "parallelism.pipeline_parallel_first_stage_less_layers = 1", [8, 9, 8, 7], 1),
        (4, "parallelism.pipeline_parallel_layers_per_stage = 5\nparallelism.pipeline_parallel_first_stage_less_layers"
            " = 2\nparallelism.pipeline_parallel_last_stage_less_layers = 4", [3, 5, 5, 5, 5, 5, 4, 0], 2),
        (2, "parallelism.pipeline_parallel_split_points = ['layers.8', 'layers.16', 'layers.25']", [8, 8, 9, 7], 2),
        (2, "parallelism.module_fqns_per_model_part = [['tok_embeddings', 'layers.0'], ['layers.1', 'norm', 'output']]",
         "Et|tL", 1),
    ],
)  # fmt: skip
def test_layers_of_torchtitans_stages(stages, words, layers, chunks, tmp_path):
    launch = launch_of(tmp_path, TITAN.format(stages, words), "own.toml", NGPU="8")
    assert launch.keys["strategy.placing.layers"] == layers
    assert launch.keys["strategy.virtual_stages"] == chunks
    assert not launch.of(UNSUPPORTED)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 1", "cannot share 3 layers evenly"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t|L'", "3 chunks; .* multiple of 2"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|q|L'", "layout is 'Et|q|L', with 'q'"),
        ("--num-layers x", "num_layers is 'x'; it must be an integer >= 1"),
        ("--tensor-model-parallel-size 0", "tensor_model_parallel_size is '0'"),
        ("--hidden-size $WIDTH", r"hidden_size is '\$WIDTH'; .* does not set WIDTH: give from.WIDTH=VALUE"),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3", "must be a multiple of 2"),
        ("--normalization BatchNorm", "it must be LayerNorm or RMSNorm"),
        ("--bf16 maybe", "bf16 is 'maybe'; it must be true or false"),
        ("--hidden-dropout much", "hidden_dropout is 'much'"),
        ("--fp8-format e4m3 --fp8-recipe own", "fp8_recipe is 'own'; it must be one of: delayed"),
    ],
)
def test_wrong_values_are_named(words, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        launch_of(tmp_path, MEGATRON + words)


def test_a_batch_that_follows_from_the_machine_needs_it(tmp_path):
    path = written(tmp_path, "titan_405b")
    with pytest.raises(ConfigError, match=r"add num_accelerators=N or machine=NAME"):
        read_launch(path, {}, None)
    with pytest.raises(ConfigError, match="12 accelerators are not a multiple of the 8 of one replica"):
        read_launch(path, {}, 12)


def test_variables_can_be_given(tmp_path):
    text = "N=${N:-4}\n" + MEGATRON + "--tensor-model-parallel-size $TP --num-layers $N"
    keys = launch_of(tmp_path, text, TP="2").keys
    assert (keys["strategy.tp"], keys["model.args.num_layers"]) == (2, 4)
    assert launch_of(tmp_path, text, TP="2", N="8").keys["model.args.num_layers"] == 8


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", "{", "it is no JSON"),
        ("x.json", "[1]", "it holds a list; it must be a mapping"),
        ("x.yaml", "a: [", "it is no YAML"),
        ("x.toml", "a = ", "it is no TOML"),
        ("x.sh", "echo hello", "neither a training command nor arguments"),
        ("x.sh", "python train.py --width 3", "is of no program that is known"),
        ("x.sh", 'A="b', "a quoted text does not end"),
        ("x.yaml", "a: ${b}\nb: ${a}\nper_device_batch_size: 1", "refers to itself"),
    ],
)
def test_what_is_no_launch_file_is_refused(name, text, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        launch_of(tmp_path, text, name)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_launch(tmp_path / "missing.sh", {}, None)


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        ("--num-experts 4 --recompute-modules moe_act layernorm", ["moe_act", "layernorm"]),
        ("--num-experts 4 --recompute-modules moe mlp shared_experts", ["moe"]),
        ("--recompute-modules mlp moe core_attn", ["mlp", "core_attn"]),
        ("--recompute-modules moe_act", None),  # Megatron recomputes nothing then
    ],
)
def test_modules_that_are_recomputed_have_megatrons_names(words, modules, tmp_path):
    launch = launch_of(tmp_path, f"{MEGATRON} --recompute-granularity selective {words}")
    assert launch.keys.get("strategy.recompute_modules") == modules
    assert launch.keys["strategy.recompute"] == ("selective" if modules else "none")
    assert "recompute_modules" not in {row.word for row in launch.of(UNSUPPORTED)}


def test_groups_of_experts_and_a_dispatchers_multiprocessors_are_flags_of_the_program(tmp_path):
    words = "--num-experts 8 --moe-token-dispatcher-type flex --moe-enable-deepep --moe-deepep-num-sms 24"
    groups = "--moe-router-num-groups 4 --moe-router-group-topk 2"
    for score, args in (("softmax", None), ("sigmoid", 4)):
        launch = launch_of(tmp_path, f"{MEGATRON} {words} {groups} --moe-router-score-function {score}")
        assert launch.keys["software.moe_deepep_num_sms"] == 24
        assert launch.keys["software.moe_router_num_groups"] == 4
        assert launch.keys["software.moe_router_group_topk"] == 2
        assert launch.keys.get("model.args.router_groups") == args
        assert not {"moe_deepep_num_sms", "moe_router_num_groups"} & {row.word for row in launch.of(UNSUPPORTED)}
    assert "software.moe_deepep_num_sms" not in launch_of(tmp_path, f"{MEGATRON} --moe-deepep-num-sms 24").keys


def test_groups_of_micro_batches_are_megatrons(tmp_path):
    words = "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"
    word = "--microbatch-group-size-per-virtual-pipeline-stage 4"
    launch = launch_of(tmp_path, f"{MEGATRON} {words} {word}")
    assert launch.keys["software.microbatch_group_size_per_vp_stage"] == 4
    assert "software.microbatch_group_size_per_vp_stage" not in launch_of(tmp_path, f"{MEGATRON} {word}").keys


@pytest.mark.parametrize(("name", "schedule"), [("ZBVZeroBubble", "zb_v"), ("DualPipeV", "dual_pipe_v")])
def test_torchtitans_schedules_in_a_v_are_ours(tmp_path, name, schedule):
    parallel = f'[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = "{name}"\n'
    text = f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\nglobal_batch_size = 64\n{parallel}'
    launch = launch_of(tmp_path, text, "run.toml")
    assert launch.keys["strategy.schedule"] == schedule
    assert launch.keys["strategy.virtual_stages"] == 2
