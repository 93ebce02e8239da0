"""Measured convergence of DLRM."""

from rostam_py.convergence.curve import Curve, from_epochs

_CRITEO_SAMPLES = 4.2e9  # training samples of Criteo 1 TB, rounded as in the source

DLRM_MLPERF = Curve(
    name="dlrm_mlperf",
    models=("dlrm",),
    sample_kind="click records",
    target="AUC 0.80275",
    source="MLPerf Training v4.0 (DLRM-dcnv2): 0.70 to 0.95 epoch at batches of 55,296 to 135,168",
    points=tuple(from_epochs(batch, 0.70, 0.95, _CRITEO_SAMPLES) for batch in (55_296, 135_168)),
    form="log_log",
    notes=("the spread of epochs is not given by batch: it is the band at every batch",),
)
