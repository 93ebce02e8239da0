"""Public launch configurations by their facts, in words of their own: what each says, and what it must become.

Sources: NVIDIA/Megatron-LM, examples/mixtral, examples/llama/train_llama3_8b_h100_fp8.sh, examples/gpt3; the
Megatron-MoE-ModelZoo's DeepSeek-V3; Megatron-Bridge's guide from Megatron-LM; pytorch/torchtitan, train_configs of
llama3_405b, llama3_8b and its registry; mosaicml/llm-foundry, scripts/train/yamls/pretrain; AI-Hypercomputer/maxtext,
configs/gpu and MaxText/configs, a3/llama_3.1_405b/128vm.sh; bigscience-workshop/bigscience, train/tr11-176B-ml;
NVIDIA-NeMo/Megatron-Bridge, examples/recipes/kimi; hiyouga/LLaMA-Factory's examples/deepspeed with a full fine-tuning.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """A file's name and text; the keys it must set; the words that are not supported; accelerators that one adds."""

    file: str
    text: str
    keys: dict[str, Any]
    unsupported: tuple[str, ...] = ()
    num_accelerators: int | None = None
    others: dict[str, str] = field(default_factory=dict)


MIXTRAL = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
PER_NODE=8
NNODES=${SLURM_NNODES:-"2"}
RUN=(
    --nproc_per_node $PER_NODE
    --nnodes $NNODES
    --node_rank ${RANK:-"0"}
)
MODEL=(
    --seq-length 4096 --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096
    --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --normalization RMSNorm --position-embedding-type rope --rotary-base 1000000 --swiglu
    --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0   # none of either
    # --qk-layernorm
)
EXPERTS=(--num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm)
EXPERTS+=(--moe-token-dispatcher-type alltoall)
TRAIN="--micro-batch-size 1 --global-batch-size 128 --lr 1e-4 --bf16 --clip-grad 1.0 --overlap-grad-reduce \\
  --overlap-param-gather --tokenizer-type Llama2Tokenizer --tokenizer-model $2"
if [ -n "${WANDB_API_KEY}" ]; then
    MODEL+=(--wandb-project mine)
fi
torchrun ${RUN[@]} pretrain_gpt.py ${MODEL[@]} ${EXPERTS[@]} $TRAIN --tensor-model-parallel-size 2 \\
    --expert-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer
"""

LLAMA3_FP8 = """
GPUS=8; NODES=1; TP=${TP_SIZE:-1}; DTYPE="fp8"
FLAGS=(--use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 --position-embedding-type rope
  --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --apply-layernorm-1p --disable-bias-linear
  --untie-embeddings-and-output-weights --vocab-size 128256 --tokenizer-type NullTokenizer)
TRAIN=(--micro-batch-size 1 --global-batch-size 128 --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
if [[ "$DTYPE" == "fp8" ]]; then
  TRAIN+=("--fp8-format hybrid" "--fp8-amax-history-len 1024" "--fp8-param-gather")
else
  TRAIN+=("--fp16")
fi
mkdir -p out; torchrun --nproc_per_node $GPUS --nnodes $NODES \\
  pretrain_gpt.py ${FLAGS[@]} ${TRAIN[@]} --tensor-model-parallel-size $TP --sequence-parallel
"""

GPT3 = """
GPT_MODEL_ARGS=(--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048
    --max-position-embeddings 2048 --attention-backend auto)
WORLD=$((8 * 128))
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size 1536 --rampup-batch-size 16 16 5859375 --train-iters 500000
    --weight-decay 0.1 --adam-beta1 0.9 --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5
    --lr-warmup-fraction .001 --vocab-file v.json --merge-file m.txt --tokenizer-type GPT2BPETokenizer)
torchrun --nproc_per_node 8 --nnodes $(( $WORLD / 8 )) pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} \\
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16
"""

DEEPSEEK = """
ENV_VARS:
  NCCL_IB_SL: 1
MODEL_ARGS:
  --tensor-model-parallel-size: 1
  --pipeline-model-parallel-size: 8
  --expert-model-parallel-size: 64
  --expert-tensor-parallel-size: 1
  --use-distributed-optimizer: true
  --pipeline-model-parallel-layout: Et*3|(tt|)*29m|L
  --micro-batch-size: 1
  --global-batch-size: 2048
  --seq-length: 4096
  --num-layers: 61
  --hidden-size: 7168
  --ffn-hidden-size: 18432
  --num-attention-heads: 128
  --multi-latent-attention: true
  --q-lora-rank: 1536
  --kv-lora-rank: 512
  --qk-head-dim: 128
  --qk-pos-emb-head-dim: 64
  --v-head-dim: 128
  --kv-channels: 128
  --qk-layernorm: true
  --normalization: RMSNorm
  --swiglu: true
  --disable-bias-linear: true
  --untie-embeddings-and-output-weights: true
  --position-embedding-type: rope
  --attention-dropout: 0.0
  --hidden-dropout: 0.0
  --vocab-size: 129280
  --make-vocab-size-divisible-by: 1280
  --num-experts: 256
  --moe-layer-freq: ([0]*3+[1]*58)
  --moe-ffn-hidden-size: 2048
  --moe-shared-expert-intermediate-size: 2048
  --moe-router-topk: 8
  --moe-router-num-groups: 8
  --moe-router-group-topk: 4
  --moe-router-score-function: sigmoid
  --moe-router-topk-scaling-factor: 2.5
  --moe-grouped-gemm: true
  --moe-token-dispatcher-type: flex
  --moe-enable-deepep: true
  --mtp-num-layers: 1
  --recompute-granularity: selective
  --recompute-modules: [mla_up_proj, mlp]
  --bf16: true
  --fp8-format: e4m3
  --fp8-recipe: blockwise
"""

BRIDGE = """
model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  seq_length: 8192
  normalization: RMSNorm
  gated_linear_unit: true
  add_bias_linear: false
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  vocab_size: 128256
  tensor_model_parallel_size: 2
  context_parallel_size: 2
train:
  micro_batch_size: 1
  global_batch_size: 512
  train_iters: 100
ddp:
  use_distributed_optimizer: true
  grad_reduce_in_fp32: true
  average_in_collective: true
optimizer:
  lr: 3.0e-4
logger:
  log_interval: 10
dataset:
  sequence_length: 8192
  num_workers: 8
"""

TITAN_405B = """
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "405B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 8e-5
[training]
local_batch_size = 2
seq_len = 8192
max_norm = 1.0
steps = 3000
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 1
[checkpoint]
enable = false
interval = 500
[activation_checkpoint]
mode = "full"
[compile]
enable = true
[float8]
enable_fsdp_float8_all_gather = true
filter_fqns = ["output"]
"""

TITAN_REGISTRY = """#!/usr/bin/bash
NGPU=${NGPU:-"8"}
MODULE=${MODULE:-"llama3"}
CONFIG=${CONFIG:-"llama3_8b"}
NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.local_batch_size 4 --training.seq_len 4096 \\
    --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 4 \\
    --activation_checkpoint.mode selective --compile.enable
"""

TITAN_OLD = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 1
seq_len = 8192
compile = false
data_parallel_degree = -1
tensor_parallel_degree = 1
[experimental]
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = 'selective'
selective_ac_option = 'op'
[float8]
enable_float8_linear = false
"""

MPT_7B = """
variables:
  global_seed: 17
  max_seq_len: 2048
max_seq_len: ${variables.max_seq_len}
run_name:
model:
  name: mpt_causal_lm
  init_device: meta
  d_model: 4096
  n_heads: 32
  n_layers: 32
  expansion_ratio: 4
  max_seq_len: ${max_seq_len}
  vocab_size: 50368
  attn_config:
    attn_impl: flash
tokenizer:
  name: EleutherAI/gpt-neox-20b
train_loader:
  dataset:
    split: train
    max_seq_len: ${max_seq_len}
  num_workers: 8
optimizer:
  name: decoupled_adamw
  lr: 1.2e-4
algorithms:
  gradient_clipping:
    clipping_type: norm
max_duration: 63900ba
eval_interval: 5000ba
global_train_batch_size: 1024
seed: ${variables.global_seed}
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
  activation_cpu_offload: false
  limit_all_gathers: true
callbacks:
  speed_monitor:
    window_size: 10
"""

MAXTEXT_LLAMA2 = """
base_config: "base.yml"
run_name: "gpu_train"
hardware: "gpu"
steps: 30
per_device_batch_size: 6
model_name: "llama2-7b"
enable_checkpointing: false
attention: "cudnn_flash_te"
remat_policy: "full"
use_iota_embed: true
scan_layers: false
dataset_type: "synthetic"
logits_dot_in_fp32: false
max_target_length: 4096
dcn_data_parallelism: 1
ici_fsdp_parallelism: 8
"""

MAXTEXT_WORDS = """
export LIBTPU_INIT_ARGS="--xla_enable_async_all_gather=true TPU_MEGACORE=MEGACORE_DENSE"
python3 MaxText/train.py MaxText/configs/base.yml run_name=big dcn_data_parallelism=2 ici_fsdp_parallelism=64 \\
    steps=10 per_device_batch_size=16 enable_profiler=true remat_policy=full base_emb_dim=4096 base_mlp_dim=16384
"""

BLOOM = """
NNODES=48; GPUS_PER_NODE=8
TP_SIZE=4; PP_SIZE=12; MICRO=2; GLOBAL=2048
ZERO_STAGE=0
CONFIG=./ds_config.$SLURM_JOB_ID.json
OPTIMIZER_ARGS=" --optimizer adam --adam-beta2 0.95 --lr 6e-5 --clip-grad 1.0 "
GPT_ARGS=" --pp-partition-method 'type:transformer|embedding' --num-layers 70 --hidden-size 14336 \\
    --num-attention-heads 112 --seq-length 2048 --micro-batch-size $MICRO --global-batch-size $GLOBAL \\
    --vocab-size 250680 --make-vocab-size-divisible-by 4 --init-method-std 0.0048 --embed-layernorm --bf16 \\
    --position-embedding-type alibi --checkpoint-activations --sync-tp-duplicated-parameters "
cat <<EOT > $CONFIG
{
  "train_micro_batch_size_per_gpu": $MICRO, "train_batch_size": $GLOBAL, "gradient_clipping": 1.0,
  "zero_optimization": {"stage": $ZERO_STAGE}, "bf16": {"enabled": true}, "steps_per_print": 2000
}
EOT
DEEPSPEED_ARGS=" --deepspeed --deepspeed_config ${CONFIG} --zero-stage ${ZERO_STAGE} \\
    --deepspeed-activation-checkpointing "
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
export CMD="pretrain_gpt.py --tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP_SIZE \\
    $GPT_ARGS $OPTIMIZER_ARGS $DEEPSPEED_ARGS"
clear; srun bash -c "$LAUNCHER --node_rank 0 $CMD" 2>&1 | tee -a log.txt
"""

MAXTEXT_405B = """
export RUN_NAME="llama-31-$(date +%Y-%m-%d-%H-%M)"
for ARGUMENT in "$@"; do
    IFS='=' read -r KEY VALUE <<< "$ARGUMENT"
done
python3 -m MaxText.train MaxText/configs/models/llama3.1_405b.yml run_name=$RUN_NAME hardware=gpu steps=10 \\
    model_name=llama3.1-405b enable_checkpointing: False remat_policy=full per_device_batch_size=1.0 \\
    max_target_length=8192 dcn_fsdp_parallelism=128 ici_fsdp_parallelism=8
"""

BRIDGE_OVERRIDES = """
model:
  seq_length: 4096
  num_layers: 8
  num_moe_experts: 48
  tensor_model_parallel_size: 2
  expert_model_parallel_size: 8
  moe_layer_freq: [0, 1, 1, 1, 1, 1, 1, 1]
  pipeline_model_parallel_layout: null
train: {global_batch_size: 16, micro_batch_size: 1}
dist: {use_megatron_fsdp: false, use_torch_fsdp2: false}
ddp: {grad_reduce_in_fp32: true}
mixed_precision: {dtype: bf16}
"""

ZERO3 = """{
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto", "zero_allow_untested_optimizer": true,
  "fp16": {"enabled": "auto", "loss_scale": 0}, "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_max_live_parameters": 1e9,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "stage3_gather_16bit_weights_on_model_save": true}
}"""

FACTORY = """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: full
deepspeed: z3.json
dataset: identity
template: llama3
cutoff_len: 2048
output_dir: saves/full
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 3.0
lr_scheduler_type: cosine
bf16: true
gradient_checkpointing: true
"""

DEEPSPEED_ALONE = """{
  "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "steps_per_print": 10,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}},
  "gradient_clipping": 1.0, "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "zero_hpz_partition_size": 8}
}"""

SAMPLES = {
    "mixtral": Sample("mixtral.sh", MIXTRAL, {
        "software": "megatron_core", "num_accelerators": 16, "strategy.tp": 2, "strategy.ep": 8,
        "strategy.sequence_parallel": True, "strategy.micro_batch": 1, "global_batch": 128,
        "strategy.precision": "bf16_mixed", "software.use_distributed_optimizer": True, "model": "decoder",
        "software.overlap_grad_reduce": True, "software.overlap_param_gather": True, "model.args.num_key_heads": 8,
        "model.args.experts_per_token": 2, "model.args.vocabulary": 32000, "model.args.norm": "rms",
        "model.sequence_length": 4096, "model.args.dropout": 0.0, "software.cross_entropy_loss_fusion": False}),
    "llama3_fp8": Sample("llama3.sh", LLAMA3_FP8, {
        "num_accelerators": 8, "strategy.precision": "fp8_delayed_mixed", "software.fp8_param_gather": True,
        "software.grad_reduce_in_fp32": False, "software.cross_entropy_loss_fusion": True, "model.args.norm": "layer",
        "model.args.head_size": 128, "model.args.vocabulary": 128384, "global_batch": 128}),
    "gpt3": Sample("gpt3.sh", GPT3, {
        "num_accelerators": 1024, "strategy.tp": 8, "strategy.pp": 16, "strategy.precision": "fp16_mixed",
        "model.args.vocabulary": 51200, "model.args.hidden": 49152, "model.args.activation": "gelu",
        "model.args.dropout": 0.1, "model.args.is_tied": True, "model.args.positions": "learned",
        "software.overlap_grad_reduce": False, "global_batch": 1536}, ("rampup_batch_size",)),
    "deepseek": Sample("deepseek.yaml", DEEPSEEK, {
        "strategy.pp": 8, "strategy.ep": 64, "strategy.precision": "fp8_block_mixed", "model.args.dense_layers": 3,
        "model.args.query_latent": 1536, "model.args.key_latent": 512, "model.args.rotary_size": 64,
        "model.args.router": "sigmoid", "model.args.router_groups": 8, "model.args.groups_per_token": 4,
        "model.args.shared_hidden": 2048, "model.args.expert_hidden": 2048, "model.args.vocabulary": 129280,
        "software.moe_token_dispatcher_type": "flex", "software.moe_flex_dispatcher_backend": "deepep",
        "strategy.recompute": "selective", "strategy.recompute_modules": ["mla_up_proj", "mlp"]},
        ("pipeline_model_parallel_layout", "mtp_num_layers"), 256),
    "bridge": Sample("bridge.yaml", BRIDGE, {
        "software": "megatron_bridge", "strategy.tp": 2, "strategy.cp": 2, "strategy.micro_batch": 1,
        "global_batch": 512, "model.args.num_layers": 32, "model.args.is_gated": True, "model.args.is_tied": False,
        "model.args.has_biases": False, "model.sequence_length": 8192, "model.args.vocabulary": 128256,
        "software.grad_reduce_in_fp32": True, "software.ddp_average_in_collective": True}, (), 64),
    "bridge_overrides": Sample("kimi.yaml", BRIDGE_OVERRIDES, {
        "model": None, "model.num_layers": 8, "model.sequence_length": 4096, "strategy.ep": 8, "global_batch": 16,
        "software.grad_reduce_in_fp32": True, "strategy.precision": "bf16_mixed"},
        ("model.num_moe_experts", "model.moe_layer_freq"), 8),
    "bloom": Sample("bloom.slurm", BLOOM, {
        "software": "deepspeed", "num_accelerators": 384, "strategy.tp": 4, "strategy.pp": 12, "software.stage": 0,
        "strategy.micro_batch": 2, "global_batch": 2048, "strategy.precision": "bf16_mixed", "model": "decoder",
        "strategy.recompute": "full", "model.args.num_layers": 70, "model.args.vocabulary": 250688,
        "software.gradient_clipping": True, "model.args.positions": "none"},
        ("position_embedding_type", "pp_partition_method", "embed_layernorm", "sync_tp_duplicated_parameters")),
    "titan_405b": Sample("llama3_405b.toml", TITAN_405B, {
        "software": "torchtitan", "model": "titan_llama3_405b", "strategy.tp": 8, "software.async_tp": True,
        "software.float8": "tensorwise", "software.enable_fsdp_float8_all_gather": True, "strategy.recompute": "full",
        "software.compile": True, "strategy.micro_batch": 2, "global_batch": 128, "model.sequence_length": 8192,
        "software.data_parallel_shard_degree": -1}, (), 512),
    "titan_registry": Sample("run.sh", TITAN_REGISTRY, {
        "model": "titan_llama3_8b", "num_accelerators": 8, "strategy.shard": 3, "strategy.shard_group": 4,
        "strategy.micro_batch": 4, "global_batch": 32, "model.sequence_length": 4096, "software.compile": True,
        "strategy.recompute": "selective", "strategy.recompute_modules": ["every_other_product"]}),
    "titan_old": Sample("old.toml", TITAN_OLD, {
        "model": "titan_llama3_8b", "strategy.micro_batch": 1, "global_batch": 64, "software.compile": False,
        "strategy.recompute": "selective"}, (), 64),
    "mpt_7b": Sample("mpt-7b.yaml", MPT_7B, {
        "software": "fsdp1", "model": "mpt_7b", "model.sequence_length": 2048, "global_batch": 1024,
        "strategy.micro_batch": 8, "strategy.recompute": "full", "software.mixed_precision": "PURE",
        "software.sharding_strategy": "FULL_SHARD"}, (), 64),
    "maxtext_llama2": Sample("llama2_7b.yml", MAXTEXT_LLAMA2, {
        "software": "maxtext", "model": "llama2_7b", "strategy.micro_batch": 6, "global_batch": 48,
        "strategy.recompute": "full", "model.sequence_length": 4096}, (), 8),
    "maxtext_words": Sample("v4.sh", MAXTEXT_WORDS, {
        "model": "decoder", "model.args.width": 4096, "model.args.hidden": 16384, "model.args.num_layers": 16,
        "strategy.shard": 3, "strategy.shard_group": 64, "strategy.micro_batch": 16, "global_batch": 2048}, (), 128),
    "maxtext_405b": Sample("128vm.sh", MAXTEXT_405B, {
        "model": "llama3_405b", "num_accelerators": 1024, "global_batch": 1024, "strategy.recompute": "full",
        "model.sequence_length": 8192}, ("enable_checkpointing:", "False")),
    "factory": Sample("llama3_full.yaml", FACTORY, {
        "software": "deepspeed", "model": "hf:meta-llama/Meta-Llama-3-8B-Instruct", "software.stage": 3,
        "software.overlap_comm": True, "model.sequence_length": 2048, "strategy.precision": "bf16_mixed",
        "strategy.micro_batch": 1, "global_batch": 16, "strategy.recompute": "full", "strategy.optimizer": "adam"},
        ("ds:zero_optimization.offload_optimizer.device", "ds:zero_optimization.offload_optimizer.pin_memory"), 8,
        {"z3.json": ZERO3}),
    "deepspeed": Sample("ds.json", DEEPSPEED_ALONE, {
        "software.stage": 2, "software.reduce_bucket_size": 500_000_000, "strategy.micro_batch": 4, "global_batch": 64,
        "software.gradient_clipping": True, "strategy.precision": "bf16_mixed"},
        ("zero_optimization.zero_hpz_partition_size",), 8),
}  # fmt: skip
