"""Naming: the text that names a model, with the keys below ``model.`` as parts of it; needs no torch.

Example:
    ModelName.parse("llama3_8b@32768").parts                # {"sequence_length": 32768}
    ModelName.of("mlp.py:Mlp", {"args.depth": 4}).text      # "mlp.py:Mlp@args.depth=4"
    ModelName.parse("hf:org/name@num_layers=2").base        # "hf:org/name"
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.graph.storage import is_graph_file
from rostam_py.models import AT_LENGTH, FAMILIES, MAX_LENGTH, MODELS

LENGTH, LAYERS, ARGUMENT = "sequence_length", "num_layers", "args."
HUB = "hf:"  # before the name of a repository of the Hugging Face hub
CONFIG_FILE = "config.json"
MAX_LAYERS = 10_000
_PART = re.compile(rf"{AT_LENGTH}(\d+|{LAYERS}=[^{AT_LENGTH}]*|{ARGUMENT}\w+=[^{AT_LENGTH}]*)$")
_PATH = re.compile(r"/$|^\.{1,2}$")
_HEAD = 2**16  # bytes of a file in which a configuration names its type


@dataclass(frozen=True)
class ModelName:
    """A model's name and what is set below it. parts: by LENGTH, LAYERS and names that begin with ARGUMENT."""

    base: str
    parts: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "ModelName":
        """Return what a text says; one without parts is a base alone. Raises: ConfigError for a part that is none."""
        base, parts = text, dict[str, Any]()
        while found := _PART.search(base):
            base = base[: found.start()]
            key, equals, value = found[1].partition("=")
            key, value = (key, value) if equals else (LENGTH, key)
            if key in parts:
                raise ConfigError(f"model is {text!r}, which gives {key} twice; give it once")
            parts[key] = _read(text, key, value)
        return cls(base, dict(reversed(parts.items())))

    @classmethod
    def of(cls, base: str, parts: Mapping[str, Any]) -> "ModelName":
        """Return a name with further parts; its own stay. Raises: ConfigError for a part that it has already."""
        own = cls.parse(base)
        for key in parts:
            if key in own.parts:
                raise ConfigError(
                    f"model.{key} is {parts[key]!r}, but model is {base!r}, which has it; give one of them"
                )
        return cls(own.base, {**own.parts, **parts})

    @property
    def text(self) -> str:
        """The text that ``parse`` reads."""
        return self.base + "".join(
            f"{AT_LENGTH}{value}" if key == LENGTH else f"{AT_LENGTH}{key}={_written(value)}"
            for key, value in self.parts.items()
        )

    @property
    def short(self) -> str:
        """A name for tables and folders: of a path its last part, without arguments."""
        base = self.base
        if self.kind == "hugging_face" and not base.startswith(HUB):
            path = Path(base).resolve()
            base = (path.parent if path.suffix == ".json" else path).name
        sizes = {key: value for key, value in self.parts.items() if not key.startswith(ARGUMENT)}
        return ModelName(base, sizes).text

    @property
    def arguments(self) -> dict[str, Any]:
        """What a file's class, or a family, is built with."""
        size = len(ARGUMENT)
        return {key[size:]: value for key, value in self.parts.items() if key.startswith(ARGUMENT)}

    @property
    def kind(self) -> str:
        """Where the model comes from: "registered", "family", "graph", "file", "hugging_face", or "" for none."""
        if self.base in MODELS:
            return "registered"
        if self.base in FAMILIES:
            return "family"
        if ".py:" in self.base:
            return "file"
        if self.base.startswith(HUB) or _is_config(self.base):
            return "hugging_face"
        return "graph" if is_graph_file(self.base) else ""


def check_sizes(name: ModelName, where: str = "model") -> None:
    """Raise ConfigError for a length of sequences, or a number of layers, that is none."""
    for key, most in ((LENGTH, MAX_LENGTH), (LAYERS, MAX_LAYERS)):
        value = name.parts.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ConfigError(f"{where}.{key} is {_short(value)}; it must be an integer from 1 to {most:,}")


def _is_config(text: str) -> bool:
    """Say whether a path is that of a configuration: by its name, a folder's contents, or its first lines."""
    path = Path(text)
    if path.name == CONFIG_FILE or _PATH.search(text):
        return True
    try:
        if not text.endswith(".json"):
            return (path / CONFIG_FILE).is_file()
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return False
    return b'"model_type"' in head and b'"format"' not in head[:200]  # with which saved graphs begin


def _read(text: str, key: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:  # numbers of more than 4,300 digits, too
        pass
    if key.startswith(ARGUMENT) and value:
        return value
    raise ConfigError(f"model is {_short(text)}: {key} is {_short(value)}; it must be an integer")


def _written(value: Any) -> str:
    """Return a value as JSON without the sign that begins a part; a plain word as it is."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w./-]*", value) and value not in ("true", "false", "null"):
        return value
    return json.dumps(value, separators=(",", ":")).replace(AT_LENGTH, "\\u0040")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
