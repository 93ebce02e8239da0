"""Measured convergence of Transformer translation models and of GPTs."""

from rostam_py.convergence.curve import Curve, Point, from_epochs

# 4.5 M sentence pairs, 116 M English words, about 1.2 sub-words a word; from memory, unverified. It scales the
# iterations of transformer_mlperf and of nothing else.
_WMT17_TOKENS = 140_000_000
_TRANSFORMER_SEQUENCE = 64  # tokens a side of a sample of transformer_350m (MODEL J26)
_GPT3_SEQUENCE = 2_048

TRANSFORMER_SIP_ML = Curve(
    name="transformer_sip_ml",
    models=("transformer_350m",),
    sample_kind="sentence pairs",
    target="as SiP-ML's script (after Shallue et al. 2019)",
    source="SiP-ML (SIGCOMM 2021), evaluation script: 16,384 iterations at batch 1,024 (sentence pairs)",
    points=(Point(1_024, 16_384, 16_384),),
    form="single",
)

TRANSFORMER_MLPERF = Curve(
    name="transformer_mlperf",
    models=("transformer_350m",),
    sample_kind="sentence pairs",
    target="25 BLEU on WMT17 English-German",
    source="MLPerf Training v0.7 logs: 3 epochs at 110,592 tokens a batch, 5 epochs at 737,280",
    points=(from_epochs(110_592, 3, 3, _WMT17_TOKENS), from_epochs(737_280, 5, 5, _WMT17_TOKENS)),
    form="fit",
    batch_unit="tokens",
    tokens_per_sample=_TRANSFORMER_SEQUENCE,
    notes=(
        "assumed: 140 M tokens an epoch (from memory, unverified) and 64 tokens a sample (MODEL J26)",
        "measured with the benchmark's 210 M parameter Transformer-big",
    ),
)

MEGATRON_18B_SIP_ML = Curve(
    name="megatron_18b_sip_ml",
    models=("megatron_18b",),
    sample_kind="token sequences",
    target="as SiP-ML, section 4.1",
    source="SiP-ML (SIGCOMM 2021), section 4.1: 240,000 iterations at batch 1,024",
    points=(Point(1_024, 240_000, 240_000),),
    form="single",
)

# 3.2 M tokens are printed; the paper's table rounds (0.5 M stands for 256 x 2,048), and both 1,536 and 1,600
# samples of 2,048 tokens read 3.2 M. The tokens are fixed, so that the iterations follow as 1 / B.
_BROWN_TOKENS = 300e9
GPT3_175B_BROWN = Curve(
    name="gpt3_175b_brown",
    models=("gpt3_175b",),
    sample_kind="token sequences",
    target="300 billion tokens",
    source="Brown et al. 2020, arXiv 2005.14165, table 2.1 and appendix B: 300 billion tokens at batch 3.2 M tokens",
    points=tuple(from_epochs(samples * _GPT3_SEQUENCE, 1, 1, _BROWN_TOKENS) for samples in (1_536, 1_600)),
    form="log_log",
    optimizer="adam",
    batch_unit="tokens",
    tokens_per_sample=_GPT3_SEQUENCE,
    notes=("the ramp of the batch from 32 k tokens is left out", "3.2 M tokens read as 1,536 to 1,600 samples"),
)

GPT3_175B_MLPERF = Curve(
    name="gpt3_175b_mlperf",
    models=("gpt3_175b",),
    sample_kind="token sequences",
    target="log perplexity 2.69, from the benchmark's checkpoint",
    source="MLPerf Training v4.0: 1.246 billion tokens at batch 2,304 x 2,048",
    points=(from_epochs(2_304 * _GPT3_SEQUENCE, 1, 1, 1.246e9),),
    form="single",
    batch_unit="tokens",
    tokens_per_sample=_GPT3_SEQUENCE,
)
