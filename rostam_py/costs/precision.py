"""Precisions: which peak a kernel runs at and how many bytes its tensors take (MODEL D15).

Mixed precision follows Megatron: parameters of 2 bytes, an fp32 master copy of them with the optimizer's state (see
``optimizers.optimizer_state_bytes``). Gradients accumulate and travel in a precision of their own: with bf16 in fp32
(Megatron-LM's ``--bf16`` sets ``accumulate_allreduce_grads_in_fp32``; torchtitan's ``mixed_precision_reduce`` is
float32), with fp16 in fp16 (Megatron-LM without that flag; Rajbhandari et al. 2020, section 3.1). With products of 8 or
4 bits, as Transformer Engine, DeepSeek-V3 (arXiv 2412.19437, section 3.3) and NVIDIA's NVFP4 recipe (arXiv 2509.25149)
compute them, all else is as in bf16_mixed, products outside repeated blocks too: the logits' is in 16 bits in all three
(Megatron-Core's output layer is none of Transformer Engine's). NVFP4 is blocks of 16 values of 4 bits with a scale of 8
bits: 0.5625 bytes for each, by rows for one product and by columns for another. Tables of products have the cast of the
operand that gives the rows (calibration/library.py); what they have not is the read before, which finds the largest
value, for the whole tensor's scale. NVIDIA's recipe keeps some blocks in 16 bits, which is not modelled: MLPerf's
configurations keep none.

8-bit products have five recipes, of which four are Transformer Engine's (transformer_engine/common/recipe of
NVIDIA/TransformerEngine): one scale for each
tensor, of the values that it has (Float8CurrentScaling, torchtitan's tensorwise: a kernel finds the largest value,
another casts; a norm finds that of what it makes), or of those that it had in iterations before (DelayedScaling: one
kernel, or the norm itself), one of 32 bits for each 128 values, 128 x 128 of a weight (Float8BlockScaling; DeepSeek-V3,
section 3.3.2), and one of 8 bits for each 32 values (MXFP8BlockScaling), both by rows and by columns, which one kernel
writes. See Impl in pytorch/csrc/extensions/normalization.cpp, create_transpose in pytorch/csrc/quantizer.cpp. Inputs of
experts are cast one by one, but those of DelayedScaling in one kernel (multi_tensor_quantize_impl in
pytorch/csrc/extensions/cast.cpp); Float8CurrentScalingQuantizer::quantize_impl launches one for the largest value, one
for the scale and the cast.

The fifth is torchao's rowwise: a scale for each row of one operand and each column of the other, so that copies by
rows and by columns are casts of their own, each in front of the product that reads it; a column's largest value takes
a read before. Transformer Engine has no such recipe, its user buffers none of those of blocks of 128 or of 4 bits.
What tensor parallelism gathers is gathered in 16 bits and cast behind that (pytorch/torchtitan, issue 845). Its kernel
for rows is slow where partial sums are moved, so that products of gradients are those of one scale for each tensor,
and a kernel multiplies what they make (pytorch/ao, pull request 1325 and issue 2184, 2024-11 to 2025-05).

Hopper's matrix units keep too few bits of sums of 8-bit products for gradients: fp8_gemm_dgrad and fp8_gemm_wgrad of
the first two recipes have use_split_accumulator, as torchao's gradients have no use_fast_accum, and recipes of blocks
add up each block by itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rostam_py.costs.kernel_kinds import GROUPED_STAGES
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.field_words import value_in_brackets
from rostam_py.graph.vocabulary import FLOATING_DTYPES


@dataclass(frozen=True, slots=True)
class Casts:
    """What kernels do that cast the inputs of narrow products, beyond what products are timed with.

    num_reads: how often they read an input; num_reads_of_norm: one that a norm makes. num_weight_reads: a weight.
    writes_rows: they write the copy that products read by rows; False where products do, for both that read a gradient.
    writes_columns: copies by columns are others than those by rows, on every device.
    by_product: each product casts what it reads, weights too, by rows or by columns, the latter with a read more;
        inputs are kept, and gathered over tp, as other ops' are. scales_gradients: a kernel behind each product of
        gradients multiplies what that has made.
    launches: kernels that Transformer Engine launches for one input; takes_all: for the inputs of all experts at once.
    """

    num_reads: int
    num_reads_of_norm: int
    num_weight_reads: int
    writes_rows: bool = True
    writes_columns: bool = False
    by_product: bool = False
    scales_gradients: bool = False
    launches: int = 1
    takes_all: bool = False

    def has_columns(self, transposes: bool) -> bool:
        """Return whether copies by columns are made. Args: transposes: the device's products need transposed ones."""
        return self.writes_columns or transposes


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What a precision fixes.

    matrix_peak: key of ``Accelerator.peak_flops_per_s`` for matrix products, convolutions, attention.
    product_bytes: bytes of one element that a matrix product reads, as it is kept for backward; sent_bytes: as rows of
        experts may be sent for it (software.rules.narrow_dispatch). scale_bytes: of product_bytes, those of scales that
        Transformer Engine's user buffers do not gather; in_user_buffers: they gather what is cast.
    arranged_scale_bytes: of product_bytes, those of scales that a kernel of its arranges in front of each product.
    casts: to what products read, None where nothing is cast for them.
    moves_sums: at which stages (GROUPED_STAGES) its products move partial sums to 32 bits as they go, where matrix
        units add them up in fewer (Accelerator.short_fp8_sums).
    others: precision of all ops except matrix products, "" for this one. note: what a reader of a result should know.
    parameter_bytes: of one parameter as it is held; gathered_weight_bytes: of a weight as it is gathered where weights
        are held as products read them (software.rules.narrow_weights), 0 where they cannot be.
    gradient_precisions: of GRADIENT_PRECISIONS, those in which gradients may accumulate and travel; the default first.
    tensor_bytes: bytes of one traced float32 activation element.
    has_master_parameters: an fp32 copy of the parameters is kept with the optimizer's state. scales_loss: so that small
        gradients do not vanish, which are divided by the scale before the optimizer's step.
    """

    name: str
    matrix_peak: str
    parameter_bytes: int
    gradient_precisions: tuple[str, ...]
    tensor_bytes: int
    has_master_parameters: bool
    product_bytes: float
    sent_bytes: float
    others: str = ""
    note: str = ""
    gathered_weight_bytes: float = 0.0
    casts: Casts | None = None
    scales_loss: bool = False
    moves_sums: tuple[str, ...] = ()
    scale_bytes: float = 0.0
    in_user_buffers: bool = True
    arranged_scale_bytes: float = 0.0

    @property
    def gathered_weight_width(self) -> float:
        """Bytes of a weight as it is gathered, where weights are held as products read them, over those of others."""
        return self.gathered_weight_bytes / self.parameter_bytes

    def copied_weight_bytes(self, transposes: bool) -> float:
        """Return the bytes of the copies of a weight that products read. Args: transposes: see Casts.has_columns."""
        copies = 0 if self.casts is None else 1 + self.casts.has_columns(transposes)
        return copies * self.product_bytes


_NVFP4 = 0.5 + 1 / 16
_MXFP8 = 1 + 1 / 32
_FP8_BLOCK = 1 + 4 / 128  # a weight's 128 x 128 values share a scale: 3% less than counted
_GRADIENTS = GROUPED_STAGES[1:]
_OF_FP8 = "matrix products of blocks run at the fp8 peak and keep inputs in 1 byte, all else is as in bf16_mixed"
AUTO = "auto"  # gradients in the precision's default
_GRADIENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
GRADIENT_PRECISIONS = (AUTO, *_GRADIENT_BYTES)
PRECISIONS = {
    "fp32": Precision(
        name="fp32", matrix_peak="fp32", parameter_bytes=4, gradient_precisions=("fp32",), tensor_bytes=4,
        has_master_parameters=False, product_bytes=4, sent_bytes=4,
    ),
    "tf32": Precision(
        name="tf32", matrix_peak="tf32", parameter_bytes=4, gradient_precisions=("fp32",), tensor_bytes=4,
        has_master_parameters=False, product_bytes=4, sent_bytes=4,
    ),
    "bf16_mixed": Precision(
        name="bf16_mixed", matrix_peak="bf16", parameter_bytes=2, gradient_precisions=("fp32", "bf16"), tensor_bytes=2,
        has_master_parameters=True, product_bytes=2, sent_bytes=2,
    ),
    "fp16_mixed": Precision(
        name="fp16_mixed", matrix_peak="fp16", parameter_bytes=2, gradient_precisions=("fp16", "fp32"), tensor_bytes=2,
        has_master_parameters=True, product_bytes=2, sent_bytes=2, scales_loss=True,
    ),
    "fp8_mixed": Precision(
        name="fp8_mixed", matrix_peak="fp8", parameter_bytes=2, gradient_precisions=("fp32", "bf16"), tensor_bytes=2,
        has_master_parameters=True, product_bytes=1, sent_bytes=1, others="bf16_mixed",
        note=f"fp8_mixed: {_OF_FP8}; a kernel finds the largest value of each input, another casts it",
        gathered_weight_bytes=1.0, casts=Casts(2, 1, 2, launches=3), moves_sums=_GRADIENTS,
    ),
    "fp8_delayed_mixed": Precision(
        name="fp8_delayed_mixed", matrix_peak="fp8", parameter_bytes=2, gradient_precisions=("fp32", "bf16"),
        tensor_bytes=2, has_master_parameters=True, product_bytes=1, sent_bytes=1, others="bf16_mixed",
        note=f"fp8_delayed_mixed: {_OF_FP8}; a kernel casts each input, but norms cast their own outputs",
        gathered_weight_bytes=1.0, casts=Casts(1, 0, 1, takes_all=True), moves_sums=_GRADIENTS,
    ),
    "fp8_row_mixed": Precision(
        name="fp8_row_mixed", matrix_peak="fp8", parameter_bytes=2, gradient_precisions=("fp32", "bf16"),
        tensor_bytes=2, has_master_parameters=True, product_bytes=1, sent_bytes=2, others="bf16_mixed",
        note="fp8_row_mixed: matrix products of blocks run at the fp8 peak; their inputs are kept and gathered as in"
        " bf16_mixed, and all else is as there; each product casts its inputs, by rows or by columns",
        casts=Casts(1, 1, 1, writes_columns=True, by_product=True, scales_gradients=True),
        moves_sums=_GRADIENTS, in_user_buffers=False,
    ),
    "fp8_block_mixed": Precision(
        name="fp8_block_mixed", matrix_peak="fp8", parameter_bytes=2, gradient_precisions=("fp32", "bf16"),
        tensor_bytes=2, has_master_parameters=True, product_bytes=_FP8_BLOCK, sent_bytes=_FP8_BLOCK,
        others="bf16_mixed",
        note=f"fp8_block_mixed: {_OF_FP8}; a kernel casts each input, row-wise and column-wise, in blocks of 128",
        gathered_weight_bytes=1.0, casts=Casts(1, 1, 1, writes_columns=True), moves_sums=GROUPED_STAGES,
        in_user_buffers=False,
    ),
    "mxfp8_mixed": Precision(
        name="mxfp8_mixed", matrix_peak="mxfp8", parameter_bytes=2, gradient_precisions=("fp32", "bf16"),
        tensor_bytes=2, has_master_parameters=True, product_bytes=_MXFP8, sent_bytes=1, others="bf16_mixed",
        note=f"mxfp8_mixed: {_OF_FP8}; a kernel casts each input, row-wise and column-wise, in blocks of 32",
        gathered_weight_bytes=2.0, casts=Casts(1, 1, 1, writes_columns=True), scale_bytes=1 / 32,
        arranged_scale_bytes=1 / 32,
    ),
    "nvfp4_mixed": Precision(
        name="nvfp4_mixed", matrix_peak="nvfp4", parameter_bytes=2, gradient_precisions=("fp32", "bf16"),
        tensor_bytes=2, has_master_parameters=True, product_bytes=_NVFP4, sent_bytes=2, others="bf16_mixed",
        note="nvfp4_mixed: matrix products of blocks, forward and backward, run at the nvfp4 peak and keep inputs in"
        " 4.5 bits; a kernel finds the scale of each input; all else is as in bf16_mixed",
        gathered_weight_bytes=2 * _NVFP4, casts=Casts(1, 1, 2, writes_rows=False, writes_columns=True, launches=2),
        in_user_buffers=False, arranged_scale_bytes=1 / 16,
    ),
}  # fmt: skip
VECTOR_PEAK = "fp32"  # element-wise, norm and reduction kernels compute in fp32 whatever the storage


def get_precision(name: str, key: str = "strategy.precision") -> Precision:
    """Return the precision called ``name``.

    Args: key: what an error names as the key that holds it.
    Raises: UnknownNameError, listing the known ones.
    """
    if name not in PRECISIONS:
        raise UnknownNameError(f"{key} is {name!r}{value_in_brackets(key, name)}; known: {', '.join(PRECISIONS)}")
    return PRECISIONS[name]


def parameter_bytes(precision: str) -> int:
    """Return the bytes of one parameter as it is held (4, 4, 2, 2, 2)."""
    return get_precision(precision).parameter_bytes


def gradient_bytes(precision: str, gradient_precision: str = AUTO) -> int:
    """Return the bytes of one gradient element as it is accumulated and reduced (MODEL D15).

    Args: gradient_precision: of GRADIENT_PRECISIONS; auto is fp16 for fp16_mixed, else fp32.
    Raises: UnknownNameError for the precision; ConfigError for gradients that it cannot have.
    """
    allowed = get_precision(precision).gradient_precisions
    if gradient_precision not in (AUTO, *allowed):
        raise ConfigError(
            f"software.rules.gradient_precision is {gradient_precision!r}; with strategy.precision={precision} it must"
            f" be one of: {', '.join((AUTO, *allowed))}"
        )
    return _GRADIENT_BYTES[allowed[0] if gradient_precision == AUTO else gradient_precision]


def tensor_bytes_factor(precision: str, dtype: str) -> float:
    """Return by how much ``precision`` scales the bytes of a tensor traced as ``dtype``.

    Model: mixed precision stores traced float32 tensors in 2 bytes; integers, booleans and other
        floating types keep their size, except the loss (loss_bytes_factor). Ignores norm statistics, which autocast
        keeps in fp32.
    """
    chosen = get_precision(precision)
    return chosen.tensor_bytes / 4 if dtype == "float32" else 1.0


def loss_bytes_factor(precision: str, op_type: str) -> float:
    """Return the bytes of what an op makes over those of other activations: mixed precision's loss is fp32.

    Source: torch's autocast list of ops that run in float32 (torch/amp documentation: log_softmax, nll_loss,
        cross_entropy); Megatron-LM and torchtitan cast logits to fp32 for the loss.
    """
    return 4 / get_precision(precision).tensor_bytes if is_of_loss(op_type) else 1.0


def is_of_loss(op_type: str) -> bool:
    """Tell whether an op is of a cross entropy over classes, forward or backward."""
    return any(name in op_type for name in _LOSS_OPS)


def is_of_log_softmax(op_type: str) -> bool:
    """Tell whether an op makes log-probabilities of logits, or gradients of logits of theirs."""
    return _LOG_SOFTMAX in op_type


_LOG_SOFTMAX = "log_softmax"
_LOSS_OPS = (_LOG_SOFTMAX, "nll_loss")  # and their backward ops


def op_precision(precision: str, dtypes: Iterable[str], role: str = "product", *, is_wide: bool = False) -> str:
    """Return the precision whose peak an op runs at: the run's, or that of 16-bit tensors which the program itself has.

    Args: dtypes: of the op's inputs as they were traced, in order; the first floating one decides. role: the op's.
        is_wide: it is outside the model's repeated blocks, where products are not narrow.
    """
    if (role != "product" or is_wide) and get_precision(precision).others:
        return get_precision(precision).others
    own = next((dtype for dtype in dtypes if dtype in FLOATING_DTYPES), "")
    return _OF_DTYPE.get(own, precision) if not get_precision(precision).has_master_parameters else precision


_OF_DTYPE = {"bfloat16": "bf16_mixed", "float16": "fp16_mixed"}
