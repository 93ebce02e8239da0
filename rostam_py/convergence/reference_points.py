"""MLPerf's reference convergence points: every run of every batch, in data/."""

from rostam_py.convergence.points_file import shipped_curve

RESNET50_MLPERF_RCP = shipped_curve("resnet50_mlperf_rcp")
BERT_LARGE_MLPERF_RCP = shipped_curve("bert_large_mlperf_rcp")
