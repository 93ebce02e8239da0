"""A model of a Hugging Face configuration: its class, its sizes and example inputs with their batch.

The class is transformers' own that the configuration's ``architectures`` names, else the one that its automatic classes
take; code that comes with a checkpoint is never run. Weights stay on the meta device. Inputs are made for what the
class's forward takes: token ids, images, audio or spectrograms, labels.
"""

import contextlib
import inspect
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rostam_py.errors import ConfigError
from rostam_py.graph.naming import LAYERS, LENGTH, ModelName, check_sizes
from rostam_py.tracing.batches import Examples
from rostam_py.tracing.hugging_face_config import find_config, need_transformers, read_config
from rostam_py.tracing.loaded import LoadedModule

_BATCH = 2
_USUAL_LENGTH = 4096  # of registered models; most configurations say how long sequences may be, not how long they were
_SECONDS, _SAMPLE_RATE = 10, 16_000  # of raw audio, of which configurations say nothing
_FRAMES = 1000  # of spectrograms without a length: ten seconds of 10 ms
_TARGETS = 128  # labels of an utterance or an image
_OWN_WAY = "; for another way name a file with its own example_inputs: model=FILE.py:CLASS"
# The automatic classes that say what is trained, where a configuration does not: most specific first.
_TASKS = (
    "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "CAUSAL_LM", "CTC",
    "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION", "PRETRAINING",
)  # fmt: skip
_DEPTHS = ("num_hidden_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")
_RANDOM = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop", "mask_time_prob", "mask_feature_prob")
_PRECISIONS = {"bfloat16": "bf16_mixed", "float16": "fp16_mixed", "float32": "fp32"}


def load_hugging_face(name: ModelName) -> LoadedModule:
    """Return the model of a configuration, on the meta device.

    Raises: MissingPackageError without transformers; ConfigError for a file that is none, a model that transformers
        does not have, sizes that it cannot have, and inputs that cannot be made.
    """
    if name.arguments:
        key = next(iter(name.arguments))
        raise ConfigError(f"model.args.{key} is given, but the arguments of {name.base} are its configuration's: change"
                          " that file")  # fmt: skip
    check_sizes(name)
    need_transformers(name.base)
    path = find_config(name.base)
    notes: list[str] = []
    config = _config(path, read_config(path), notes)
    _resize(config, name, path)
    module = _built(_class_of(config, path), config, path)
    inputs = _Inputs(config, module, name.parts.get(LENGTH), path, notes)
    return LoadedModule(
        name.short, module, inputs.examples(), None,
        optimizer="adam", precision=_precision(config), sequence_length=inputs.sequence_length, notes=tuple(notes),
    )  # fmt: skip


def _config(path: Path, data: Mapping[str, Any], notes: list[str]) -> Any:
    """Return the configuration as transformers' class; what draws numbers at each step is switched off."""
    from transformers import CONFIG_MAPPING

    kind = data["model_type"]
    if kind not in CONFIG_MAPPING:
        own = " (its own code, named by auto_map, is never run)" if "auto_map" in data else ""
        raise ConfigError(
            f"model file {str(path)!r} has model_type {kind!r}, which the installed transformers has not{own}{_OWN_WAY}"
        )
    given = {key: value for key, value in data.items() if key not in ("auto_map", "quantization_config")}
    if "quantization_config" in data:
        notes.append("quantization_config of the checkpoint is left out: weights train in strategy.precision")
    with _refusing(path, "cannot be read"):
        config = CONFIG_MAPPING[kind].from_dict(given)
    for part in (config, *_parts(config)):
        if hasattr(part, "use_cache"):
            part.use_cache = False
        for key in _RANDOM:
            if getattr(part, key, 0):
                notes.append(f"{key} is 0 in place of {getattr(part, key)}: every step runs all layers, unmasked")
                setattr(part, key, 0.0)
    return config


def _parts(config: Any) -> list[Any]:
    found = (getattr(config, key, None) for key in getattr(type(config), "sub_configs", {}))
    return [one for one in found if one is not None]


@contextlib.contextmanager
def _refusing(path: Path, what: str) -> Any:
    """Turn whatever transformers raises inside into a ConfigError, and keep its printing back."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except ConfigError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:300]
        raise ConfigError(f"model file {str(path)!r} {what}: {type(error).__name__}: {first}") from error


def _resize(config: Any, name: ModelName, path: Path) -> None:
    """Set the number of layers of the language model, or of all that there is."""
    count = name.parts.get(LAYERS)
    if count is None:
        return
    part = _text(config)
    keys = [key for key in _DEPTHS if isinstance(getattr(part, key, None), int)]
    if not keys:
        raise ConfigError(f"model.{LAYERS} is {count}, but {str(path)!r} has none of: {', '.join(_DEPTHS)}")
    before = {getattr(part, key) for key in keys}
    for key in keys:
        setattr(part, key, count)
    for key, value in list(vars(part).items()):  # a kind for each layer
        if isinstance(value, list) and len(value) in before and key.lstrip("_").startswith(("layer_", "mlp_layer")):
            if count > len(value):
                raise ConfigError(f"model.{LAYERS} is {count}, but {key} of {str(path)!r} names {len(value)} layers")
            setattr(part, key, value[:count])


def _text(config: Any) -> Any:
    """Return the part that reads tokens, the whole where there is one part."""
    if getattr(config, "is_encoder_decoder", False):
        return config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _class_of(config: Any, path: Path) -> Any:
    import transformers
    from transformers.models.auto import modeling_auto

    for named in getattr(config, "architectures", None) or ():
        found = getattr(transformers, str(named), None)
        if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
            raise ConfigError(
                f"model file {str(path)!r} names the architecture {str(named)[:60]!r}, which the installed transformers"
                f" {transformers.__version__} has not{_OWN_WAY}"
            )
        return found
    for task in _TASKS:
        names = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
        if config.model_type in names:
            return getattr(transformers, names[config.model_type])
    plain = modeling_auto.MODEL_MAPPING_NAMES.get(config.model_type)
    plain = plain[0] if isinstance(plain, list | tuple) else plain
    if plain is None:
        raise ConfigError(f"model file {str(path)!r}: transformers has no model of {config.model_type!r}{_OWN_WAY}")
    return getattr(transformers, plain)


def _built(kind: Any, config: Any, path: Path) -> nn.Module:
    with _refusing(path, f"makes no {kind.__name__}"), torch.device("meta"):
        module: nn.Module = kind(config)
    return module.train()


def _precision(config: Any) -> str | None:
    parts = (config, _text(config))
    found = next((kind for part in parts if (kind := getattr(part, "dtype", None)) is not None), None)
    return _PRECISIONS.get(str(found).removeprefix("torch."))


class _Inputs:
    """Example inputs for what a module's forward takes."""

    def __init__(self, config: Any, module: nn.Module, length: int | None, path: Path, notes: list[str]) -> None:
        self._config, self._module, self._path, self._notes = config, module, path, notes
        self._takes = inspect.signature(module.forward).parameters
        self._main = str(getattr(module, "main_input_name", "input_ids"))
        self._main = self._main if self._main in self._takes else next(iter(self._takes))
        self._has_text = self._main == "input_ids" or "decoder_input_ids" in self._takes
        if length is not None and not self._has_text:
            raise ConfigError(f"model.{LENGTH} is {length}, but {self._name} of {str(path)!r} reads no tokens: it takes"
                              f" {self._main}")  # fmt: skip
        self._length = self._checked_length(length) if self._has_text else 0
        self.sequence_length = self._length

    @property
    def _name(self) -> str:
        return type(self._module).__name__

    def examples(self) -> Examples:
        """Return the inputs at two batches."""
        return Examples(self._at(_BATCH), self._at(2 * _BATCH), _BATCH)

    def _at(self, batch: int) -> dict[str, Any]:
        made: dict[str, Any] = {self._main: self._made(self._main, batch)}
        for key in ("input_ids", "pixel_values"):
            if key in self._takes and key not in made and self._reads(key):
                made[key] = self._made(key, batch)
        if "return_loss" in self._takes:
            made["return_loss"] = True
        return made | self._labels(batch)

    def _reads(self, key: str) -> bool:
        """Say whether a second kind of input belongs to each sample: images beside text, text beside images."""
        return (
            getattr(self._config, {"pixel_values": "vision_config", "input_ids": "text_config"}[key], None) is not None
        )

    def _made(self, key: str, batch: int) -> torch.Tensor:
        makers: dict[str, Callable[[int], torch.Tensor]] = {
            "input_ids": self._ids, "pixel_values": self._images, "input_features": self._spectra,
            "input_values": self._audio,
        }  # fmt: skip
        if key not in makers:
            raise ConfigError(
                f"{self._name} of {str(self._path)!r} takes {key}, for which no example is known; known are:"
                f" {', '.join(makers)}{_OWN_WAY}"
            )
        with torch.device("meta"):
            return makers[key](batch)

    def _ids(self, batch: int) -> torch.Tensor:
        return torch.zeros(batch, self._length, dtype=torch.int64)

    def _images(self, batch: int) -> torch.Tensor:
        part = self._part("vision_config")
        size = _of(part, "image_size")
        height, width = size if isinstance(size, list | tuple) else (size, size)
        if not height:
            raise ConfigError(
                f"{self._name} of {str(self._path)!r} says no image_size: the size of its images is each image's own"
                f"{_OWN_WAY}"
            )
        return torch.zeros(batch, _of(part, "num_channels") or 3, height, width)

    def _spectra(self, batch: int) -> torch.Tensor:
        bins = _of(self._config, "num_mel_bins")
        if bins and (positions := _of(self._config, "max_source_positions")):
            return torch.zeros(batch, bins, 2 * positions)  # a convolution of stride 2 halves them
        size = _of(self._config, "feature_projection_input_dim") or bins
        if not size:
            raise ConfigError(f"{self._name} of {str(self._path)!r} does not say how wide input_features are{_OWN_WAY}")
        return torch.zeros(batch, _FRAMES, size)

    def _audio(self, batch: int) -> torch.Tensor:
        bins, frames = _of(self._config, "num_mel_bins"), _of(self._config, "max_length")
        if bins and frames:
            return torch.zeros(batch, frames, bins)
        self._assume(f"audio of {_SECONDS} s at {_SAMPLE_RATE:,} samples a second")
        return torch.zeros(batch, _SECONDS * _SAMPLE_RATE)

    def _labels(self, batch: int) -> dict[str, torch.Tensor]:
        """Return what the module's own loss takes: a label for each token, or one for each sample."""
        found: dict[str, torch.Tensor] = {}
        if self._name.endswith("ForCTC"):  # it compares labels' values
            self._assume("the mean of the logits in place of the CTC loss, which depends on values")
            return found
        with torch.device("meta"):
            for key in ("labels", "start_positions", "end_positions", "next_sentence_label", "sentence_order_label"):
                if key in self._takes:
                    shape = (batch, *self._label_shape()) if key == "labels" else (batch,)
                    found[key] = torch.zeros(shape, dtype=torch.int64)
        return found

    def _label_shape(self) -> tuple[int, ...]:
        if self._name.endswith(("ForSequenceClassification", "ForImageClassification", "ForAudioClassification",
                                "ForSequenceClassificationHead")):  # fmt: skip
            return ()
        if self._has_text:
            return (self._length,)
        self._assume(f"{_TARGETS} labels for each sample")
        return (_TARGETS,)

    def _part(self, key: str) -> Any:
        return getattr(self._config, key, None) or self._config

    def _assume(self, what: str) -> None:
        note = f"assumed: {what}"
        if note not in self._notes:
            self._notes.append(note)

    def _checked_length(self, length: int | None) -> int:
        """Return the tokens of a sample: as given, else the usual number, at most what positions there are.

        Raises: ConfigError for more than there are positions in a table, or fewer than an image takes.
        """
        part = _text(self._config)
        most = _of(part, "max_target_positions") or _of(part, "max_position_embeddings")
        images = self._image_tokens()
        if length is None:
            length = min(most or _USUAL_LENGTH, _USUAL_LENGTH)
            if images >= length:
                length = min(most or 2 * images, 2 * images)
            self._assume(f"sequences of {length:,} tokens (model.{LENGTH} sets another length)")
        if most and length > most and self._has_position_table():
            raise ConfigError(
                f"model.{LENGTH} is {length}, but {self._name} of {str(self._path)!r} has {most:,} learned positions"
            )
        if length < images:
            raise ConfigError(
                f"model.{LENGTH} is {length}, but each sample of {self._name} of {str(self._path)!r} has an image of"
                f" {images:,} tokens"
            )
        return length

    def _image_tokens(self) -> int:
        """Return the tokens of a sample that stand for its image."""
        return int(_of(self._config, "image_seq_length") or _of(self._config, "mm_tokens_per_image") or 0)

    def _has_position_table(self) -> bool:
        tables = (one for one in self._module.modules() if isinstance(one, nn.Embedding))
        part = _text(self._config)
        most = _of(part, "max_target_positions") or _of(part, "max_position_embeddings")
        return any(most <= one.num_embeddings <= most + 4 for one in tables)  # some keep a few rows for padding


def _of(part: Any, key: str) -> Any:
    return getattr(part, key, None)
