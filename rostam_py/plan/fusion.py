"""Which ops share a kernel (MODEL B7), and what an eager loss is made of, by name."""

POINTWISE, EPILOGUE, UNFUSED, PRODUCER, AUTO = "pointwise", "epilogue", "none", "producer", "auto"
MODULES = "modules"
FUSIONS = {
    AUTO: "pointwise with the megatron placer, producer with sip_ml",
    POINTWISE: "chains of element-wise ops, and a norm or softmax with its element-wise neighbours, are one kernel;"
    " products take in a bias alone (compiled and hand-fused training code)",
    EPILOGUE: "as pointwise, and a product or convolution takes in the activation behind it",
    MODULES: "as pointwise, inside one module at a time: a norm, a gated unit, a rotation, a residual sum are kernels"
    " of their own, and so are sums of gradients (Megatron-Core with Transformer Engine)",
    UNFUSED: "every op is a kernel (eager code)",
    PRODUCER: "element-wise ops are fused into the producers of their inputs, products included, at no cost",
}
EVERYWHERE, BLOCKS, BLOCKS_AND_LOSS = "everything", "blocks", "blocks_and_loss"
FUSED_PARTS = {
    EVERYWHERE: "all of the model, its loss too",
    BLOCKS: "repeated blocks alone, as where each of them is compiled by itself; the head and the loss are eager code",
    BLOCKS_AND_LOSS: "repeated blocks, each by itself, and the loss by itself; the head is eager code",
}
TORCH, VOCAB_PARALLEL, LOSS_PARALLEL = "torch", "vocab_parallel", "loss_parallel"
EAGER_LOSSES = {
    TORCH: "cross_entropy of PyTorch: log_softmax, nll_loss and their backward",
    VOCAB_PARALLEL: "the vocab-parallel cross entropy of Megatron-LM: the largest logit, logits less it, their"
    " exponentials, the sum and the quotients by it one by one, and a gradient made in place",
    LOSS_PARALLEL: "the loss_parallel of PyTorch's DTensor: the largest logit, logits less it, their exponentials, the"
    " sum and logits less its logarithm one by one; exponentials, a sum and a product for their gradient",
}
FUSED_NORM = "fused"
EAGER_NORMS = {
    TORCH: "rms_norm of PyTorch before it had a kernel of its own: op by op, its statistics and quotient in fp32",
    FUSED_NORM: "a kernel of its own forward, and one backward (Triton, Apex, Transformer Engine)",
}
APART_NORMS, FORWARD_NORMS, BOTH_NORMS = "apart", "forward", "both"
CONVOLUTION_NORMS = {
    APART_NORMS: "in kernels of their own",
    FORWARD_NORMS: "forward inside the convolutions around them, which sum their outputs for statistics and apply the"
    " norm and its activation to what they read; backward in kernels with activations and residual sums (MXNet's"
    " NormConvolution, PaddlePaddle's ResNetUnit)",
    BOTH_NORMS: "backward, too, up to a kernel that applies what gradients' kernels have summed (ConvBNfprop,"
    " ConvBNwgrad and DgradDreluBNBwdWeight of cuDNN 8.9)",
}
