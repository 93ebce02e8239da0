"""Op families: which hardware limit and which efficiency an op type answers to."""

import functools

from rostam_py.graph.fusion import APART, POINTWISE, REDUCTION, ROWS, WHOLE_NORM

FAMILIES = ("matmul", "convolution", "attention", "normalization", "embedding", "reduction", "elementwise", "optimizer")
MATRIX_FAMILIES = ("matmul", "convolution", "attention")
CAST = "rostam.cast"  # op type of a kernel that casts what narrow products read
ADD = "rostam.add"  # of one that adds a new gradient to what is there
CONVERT = "rostam.convert"  # of one that makes 32 bits of 16 for the loss, or 16 of its 32
UNNAMED = "unnamed"  # family of kernels of which a program says the time alone
UNNAMED_OP = "rostam.unnamed"  # and their op type
MAP, REDUCE = "rostam.map", "rostam.reduce"  # of one that makes an entry of each entry, or one of each row
HOST_COPY = "host_copy"  # no kernel and no efficiency: a device waits for copies to or from its host's memory

# First match wins; each text is looked for in the op type after "aten.".
_PATTERNS = (
    ("optimizer.", "optimizer"),
    ("offload", HOST_COPY),
    (UNNAMED_OP, UNNAMED),
    ("scaled_dot_product", "attention"),
    ("flash_attention", "attention"),
    ("efficient_attention", "attention"),
    ("convolution", "convolution"),
    ("embedding", "embedding"),
    ("gather_copy", "elementwise"),
    ("index", "embedding"),
    ("gather", "embedding"),
    ("scatter", "embedding"),
    ("addmm", "matmul"),
    ("baddbmm", "matmul"),
    ("grouped_mm", "matmul"),
    (".mm.", "matmul"),
    (".bmm.", "matmul"),
    (".mv.", "matmul"),
    (".linear", "matmul"),
    (".matmul", "matmul"),
    ("batch_norm", "normalization"),
    ("layer_norm", "normalization"),
    ("group_norm", "normalization"),
    ("rms_norm", "normalization"),
    ("softmax", "reduction"),
    ("nll_loss", "reduction"),
    (REDUCE, "reduction"),
    ("pool", "reduction"),
    (".sum.", "reduction"),
    (".mean.", "reduction"),
    (".amax", "reduction"),
    (".var", "reduction"),
)


# Of ops that no pattern knows, such as a user's own: by what they do (graph.ROLES).
_BY_ROLE = {
    "product": "matmul", "batched_product": "matmul", "convolution": "convolution", "attention": "attention",
    "softmax": "reduction", "embedding": "embedding", "gather": "embedding",
}  # fmt: skip


# How an op shares a kernel with its neighbours, by parts of its type (graph.fusion); first match wins. Pooling, lookups
# and sorts share none.
_FUSED = (
    ("layer_norm", ROWS),
    ("rms_norm", ROWS),
    ("softmax", ROWS),
    ("nll_loss", REDUCTION),
    ("batch_norm", WHOLE_NORM),
    ("group_norm", WHOLE_NORM),
    (".sum.", REDUCTION),
    (".mean.", REDUCTION),
    (".amax", REDUCTION),
    (".var", REDUCTION),
    ("logsumexp", REDUCTION),
    ("slice_backward", POINTWISE),
    ("select_backward", POINTWISE),
    ("constant_pad", POINTWISE),
)
_POINTWISE_ROLES = ("copy", "join", "sum", "scale")


@functools.cache
def fused_kind(op_type: str, role: str, is_elementwise: bool) -> str:
    """Return how an op shares a kernel with its neighbours: a kind of ``graph.fusion``."""
    if is_elementwise:
        return POINTWISE
    for pattern, kind in _FUSED:
        if pattern in op_type:
            return kind
    return POINTWISE if role in _POINTWISE_ROLES else APART


@functools.cache
def op_family(op_type: str, role: str = "") -> str:
    """Return the family of an op type: of FAMILIES, HOST_COPY or UNNAMED, else by its role, else element-wise."""
    for pattern, family in _PATTERNS:
        if pattern in op_type:
            return family
    return _BY_ROLE.get(role, "elementwise")


@functools.cache
def is_batch_norm(op_type: str) -> bool:
    """Tell whether an op is a norm over all positions of each channel, or its backward."""
    return "batch_norm" in op_type


@functools.cache
def is_cut_at_zero(op_type: str) -> bool:
    """Tell whether an op is a ReLU, of which the sign of what it makes gives the gradient."""
    return ".relu." in op_type or ".relu_." in op_type


def is_matrix_product(op_type: str, role: str = "") -> bool:
    """Tell whether an op is a matrix product, batched and grouped ones included."""
    return op_family(op_type, role) == "matmul"


def is_grouped_product(op_type: str) -> bool:
    """Tell whether an op is a product of several experts, each with its own rows."""
    return "_grouped_mm" in op_type


def is_choice(op_type: str) -> bool:
    """Tell whether an op chooses the largest of each row, as a router its experts."""
    return "topk" in op_type


def is_put(op_type: str) -> bool:
    """Tell whether an op adds rows to those of a tensor, as gradients of rows that were picked."""
    return "index_put" in op_type


def is_row_sum(op_type: str) -> bool:
    """Tell whether an op adds rows to those of a tensor, by number: in forward, or as a put."""
    return "index_add" in op_type or is_put(op_type)


def makes_zeros(op_type: str) -> bool:
    """Tell whether an op makes zeros in the shape of another tensor, or of one it is given."""
    return "zeros" in op_type
