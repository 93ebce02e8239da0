"""Words and sizes of the IR: phases, kinds of tensors and splits, dtypes."""

PHASES = ("forward", "backward", "optimizer")
TENSOR_KINDS = ("input", "parameter", "frozen", "buffer", "activation", "constant", "gradient", "loss")
WEIGHT_KINDS = ("parameter", "frozen", "buffer")  # what devices hold for the whole training
SPLIT_KINDS = ("sample", "column", "row", "spatial", "head", "expert", "embedding_row", "feature")

# What an op does, as far as anyone except the tracer and the cost models asks; "" is everything else.
#   product, batched_product   of matrices; of stacks of them, as the two products of attention are
#   convolution                forward
#   embedding, gather          rows of a table, or entries of a tensor, by index: reads what is looked up
#   pick, pick_backward        an entry of each row, the loss of a class; its gradient, which reads no row
#   softmax, attention         attention: fused, forward or backward
#   sum                        of tensors, entry by entry, or their difference
#   copy                       of a tensor as it is, cast or laid out anew
#   join                       of tensors along a dimension
#   scale                      one tensor times a number
ROLES = (
    "", "product", "batched_product", "convolution", "embedding", "gather", "pick", "pick_backward", "softmax",
    "attention", "sum", "copy", "join", "scale",
)  # fmt: skip
WEIGHT_ROLES = ("product", "batched_product", "convolution", "embedding")  # what a buffer acts as a weight in
TABLE_ROLES = ("embedding", "gather")
ROW_PLACES = {"pick": 0, "pick_backward": 1}  # role -> which input is the rows

PARTIAL = -1  # in Split.output_dims: every member holds a partial sum of this output
WHOLE = None  # in Split.input_dims / output_dims: every member holds the whole tensor

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8,
}  # fmt: skip
FLOATING_DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn")
