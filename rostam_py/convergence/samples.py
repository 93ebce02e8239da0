"""Samples: what the registered models train on, and which curves fit them.

Example:
    notes_for(get_curve("resnet50_mlperf"), "resnet101")   # ("the curve resnet50_mlperf is of resnet50; ...",)
    notes_for(get_curve("transformer_mlperf"), "resnet50") # ConfigError: sentence pairs are no images
"""

from dataclasses import dataclass

from rostam_py.convergence.curve import Curve
from rostam_py.convergence.curves import CURVES
from rostam_py.errors import ConfigError
from rostam_py.models import registered


@dataclass(frozen=True, slots=True)
class Samples:
    """kind: what one sample is, in the plural; one of curve.SAMPLE_KINDS. tokens: of one sample, 0 if it has none."""

    kind: str
    tokens: int = 0

    def __str__(self) -> str:
        return f"{self.kind} of {self.tokens:,} tokens" if self.tokens else self.kind


def samples_of(model: str) -> Samples | None:
    """Return what a registered model trains on, None for other models."""
    found = registered(model)
    return Samples(found.samples, found.tokens) if found is not None else None


def notes_for(curve: Curve, model: str) -> tuple[str, ...]:
    """Return what a reader must know of a curve that is taken for a model; nothing if it was measured on it.

    Model: the samples of a registered model are known and must be the curve's; one that counts tokens also needs as
        many a sample. Of other models only the reader knows, and of a curve without ``models`` its author.
    Raises: ConfigError if the samples differ, listing the curves that fit.
    """
    if not curve.models or model in curve.models:
        return ()
    measured_on = ", ".join(curve.models)
    counted = Samples(curve.sample_kind or "samples", curve.tokens_per_sample if curve.batch_unit == "tokens" else 0)
    theirs = samples_of(model)
    if theirs is None:
        return (f"the curve {curve.name} is of {measured_on}, in {counted}; taken for {model}",)
    if not _fits(curve, theirs):
        raise ConfigError(
            f"convergence curve {curve.name!r} was measured on {measured_on}, in {counted}; the samples of {model} are"
            f" {theirs}; curves that fit: {', '.join(_fitting(theirs))}"
        )
    note = f"the curve {curve.name} is of {measured_on}; taken for {model}"
    own = samples_of(curve.models[0]) or theirs
    return (note if own == theirs else f"{note}, in {theirs} where it was measured in {own}",)


def _fits(curve: Curve, samples: Samples) -> bool:
    is_alike = curve.sample_kind in ("", samples.kind)
    return is_alike and (curve.batch_unit != "tokens" or curve.tokens_per_sample == samples.tokens)


def _fitting(samples: Samples) -> list[str]:
    return [name for name in CURVES if _fits(CURVES.get(name), samples)]
