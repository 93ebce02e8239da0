"""Programs of MLPerf's submissions that train on images."""

from dataclasses import dataclass, field

from rostam_py.software.stack import Facts, Job, Rulings, Stack

_MXNET, _GRAPHED = "resnet", "cosmoflow"


@dataclass(kw_only=True)
class MlperfImages(Stack):
    """MLPerf submissions that train on images: NVIDIA's MXNet (resnet) or PyTorch with CUDA graphs (cosmoflow).

    benchmark: resnet (gradients reduced after backward, devices never wait for their host) or cosmoflow (forward and
        backward replayed as a CUDA graph, autocast, DDP, an eager optimizer step).
    fuse_bn: for resnet: run batch norms inside the convolutions that follow them.
    decays_products: for cosmoflow: add weight decay to the gradients of the weights that matrix products read.
    """

    SOURCES = "mlcommons/training_results_v4.0 and hpc_results_v3.0, NVIDIA's code; docs/model/b_devices.md, B7"

    benchmark: str = field(default=_MXNET, metadata={"choices": (_MXNET, _GRAPHED)})
    fuse_bn: bool = True
    decays_products: bool = False

    def hosts(self, facts: Facts) -> Rulings:
        """Whole graphs, or graphs with a loop of Python around them."""
        return {"host": "graphed_model"} if self.benchmark == _GRAPHED else {}

    def strategy(self, job: Job) -> Rulings:
        """Gradients, casts and norms of each."""
        found: Rulings = {}
        if self.benchmark == _MXNET:
            if job.strategy.shard < 2:
                found["overlap_grad_reduce"] = False
            return found | ({"convolution_norms": "forward"} if self.fuse_bn else {})
        found |= {
            "fusion": "none", "inputs": "widened", "optimizer_kernels": "single", "autocast": True,
            "gradient_buffer": "copied", "gradient_precision": "fp32", "first_bucket": "1 MiB",
        }  # fmt: skip
        return found | ({"weight_decay": "products"} if self.decays_products else {})
