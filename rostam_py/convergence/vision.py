"""Measured convergence of ResNet-50 on ImageNet and of CosmoFlow."""

from rostam_py.convergence.curve import Curve, Point, from_epochs

_IMAGENET_IMAGES = 1_281_167  # training images of ILSVRC 2012

RESNET50_MLPERF = Curve(
    name="resnet50_mlperf",
    models=("resnet50",),
    sample_kind="images",
    target="75.9% top-1",
    source="MLPerf Training v4.0 logs, NVIDIA",
    points=(
        from_epochs(3_200, 35, 35, _IMAGENET_IMAGES),
        from_epochs(40_448, 66, 70, _IMAGENET_IMAGES),
        from_epochs(57_344, 77, 77, _IMAGENET_IMAGES),
    ),
    form="fit",
)

RESNET50_GOYAL = Curve(
    name="resnet50_goyal",
    models=("resnet50",),
    sample_kind="images",
    target="accuracy of the baseline at batch 256",
    source="Goyal et al. 2017, arXiv 1706.02677: 90 epochs, unchanged accuracy up to 8,192",
    points=(from_epochs(256, 90, 90, _IMAGENET_IMAGES), from_epochs(8_192, 90, 90, _IMAGENET_IMAGES)),
    form="log_log",
    optimizer="momentum",
)

RESNET50_SIP_ML = Curve(
    name="resnet50_sip_ml",
    models=("resnet50",),
    sample_kind="images",
    target="as SiP-ML's script (after Shallue et al. 2019)",
    source="SiP-ML (SIGCOMM 2021), evaluation script: 8,192 iterations at batch 8,192",
    points=(Point(8_192, 8_192, 8_192),),
    form="single",
)

# Minutes to target over seconds a step. Evaluation between epochs is inside the minutes, so that these are upper
# bounds at the step times; the second batch has no step time of its own.
_COSMOFLOW_STEP_S = 4.84e-3
COSMOFLOW_MLPERF_HPC = Curve(
    name="cosmoflow_mlperf_hpc",
    models=("cosmoflow",),
    sample_kind="voxel volumes",
    target="mean absolute error 0.124",
    source="MLPerf HPC v3.0: 2.10 min at batch 512 on 512 H100, 4.84 ms a step; 9.97 min at batch 32 on 32 H100",
    points=(
        Point(32, 9.97 * 60 / _COSMOFLOW_STEP_S, 9.97 * 60 / _COSMOFLOW_STEP_S),
        Point(512, 2.10 * 60 / _COSMOFLOW_STEP_S, 2.10 * 60 / _COSMOFLOW_STEP_S),
    ),
    form="fit",
    notes=(
        "iterations = time to target / step time, so time spent in evaluation counts as iterations",
        "assumed: batch 32 takes the step time of batch 512, as both run one sample a device",
    ),
)
