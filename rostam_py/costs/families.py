"""Op families: which hardware limit and which efficiency an op type answers to."""

import functools

FAMILIES = ("matmul", "convolution", "attention", "normalization", "embedding", "reduction", "elementwise", "optimizer")
MATRIX_FAMILIES = ("matmul", "convolution", "attention")

# First match wins; each text is looked for in the op type after "aten.".
_PATTERNS = (
    ("optimizer.", "optimizer"),
    ("scaled_dot_product", "attention"),
    ("flash_attention", "attention"),
    ("efficient_attention", "attention"),
    ("convolution", "convolution"),
    ("embedding", "embedding"),
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


@functools.cache
def op_family(op_type: str, role: str = "") -> str:
    """Return the family of an op type, one of FAMILIES, else that of its role; what is unknown is element-wise."""
    for pattern, family in _PATTERNS:
        if pattern in op_type:
            return family
    return _BY_ROLE.get(role, "elementwise")
