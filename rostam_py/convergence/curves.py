"""The registered convergence curves, and which of them a model takes by default."""

from rostam_py.convergence.curve import Curve
from rostam_py.convergence.points_file import is_curve_file, load_curve
from rostam_py.errors import ConfigError
from rostam_py.registry import Registry

CURVES = Registry("convergence curve")
CURVES.add("resnet50_mlperf", "rostam_py.convergence.vision:RESNET50_MLPERF")
CURVES.add("resnet50_goyal", "rostam_py.convergence.vision:RESNET50_GOYAL")
CURVES.add("resnet50_sip_ml", "rostam_py.convergence.vision:RESNET50_SIP_ML")
CURVES.add("resnet50_mlperf_rcp", "rostam_py.convergence.reference_points:RESNET50_MLPERF_RCP")
CURVES.add("cosmoflow_mlperf_hpc", "rostam_py.convergence.vision:COSMOFLOW_MLPERF_HPC")
CURVES.add("transformer_sip_ml", "rostam_py.convergence.language:TRANSFORMER_SIP_ML")
CURVES.add("transformer_mlperf", "rostam_py.convergence.language:TRANSFORMER_MLPERF")
CURVES.add("bert_large_mlperf_rcp", "rostam_py.convergence.reference_points:BERT_LARGE_MLPERF_RCP")
CURVES.add("megatron_18b_sip_ml", "rostam_py.convergence.language:MEGATRON_18B_SIP_ML")
CURVES.add("gpt3_175b_brown", "rostam_py.convergence.language:GPT3_175B_BROWN")
CURVES.add("gpt3_175b_mlperf", "rostam_py.convergence.language:GPT3_175B_MLPERF")
CURVES.add("dlrm_mlperf", "rostam_py.convergence.recommendation:DLRM_MLPERF")

# Model -> the curve that is taken where none is named.
DEFAULT_CURVES = {
    "resnet50": "resnet50_mlperf",
    "transformer_350m": "transformer_sip_ml",
    "megatron_18b": "megatron_18b_sip_ml",
    "gpt3_175b": "gpt3_175b_brown",
    "bert_large": "bert_large_mlperf_rcp",
    "dlrm": "dlrm_mlperf",
    "cosmoflow": "cosmoflow_mlperf_hpc",
}


def get_curve(name: "str | Curve") -> Curve:
    """Return a registered curve, or that of a CSV file; a Curve of one's own passes through.

    Raises: UnknownNameError, listing the registered curves; ConfigError for a file that holds none.
    """
    if isinstance(name, Curve):
        return name
    if is_curve_file(name):
        return load_curve(name)
    curve: Curve = CURVES.get(name)
    return curve


def default_curve(model: str) -> Curve:
    """Return the curve of a model.

    Raises: ConfigError for a model without one, listing those that have one.
    """
    if model not in DEFAULT_CURVES:
        raise ConfigError(
            f"no convergence curve is known for model {model!r}; name one with convergence=, or take one of: "
            + ", ".join(sorted(DEFAULT_CURVES))
        )
    return get_curve(DEFAULT_CURVES[model])
