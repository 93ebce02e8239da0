"""Targets that are an amount of data: "1 T tokens", "300 M samples", "3 epochs of 1281167 samples".

Example:
    target = parse_target("1 T tokens", "gpt3_175b")
    target.iterations(1536)        # 317892: 1e12 / (1536 x 2048) in whole steps
"""

import math
import re
from dataclasses import dataclass

from rostam_py.convergence.curve import BATCH_UNITS, Curve
from rostam_py.convergence.curves import get_curve
from rostam_py.convergence.samples import samples_of
from rostam_py.errors import ConfigError

_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_AMOUNT = rf"(\d+\.?\d*(?:[eE]\d+)?)\s*([{''.join(_PREFIXES)}]?)\s*"
_FORM = re.compile(
    rf"^\s*(?:(\d+\.?\d*) epochs? of )?{_AMOUNT}(\w+)(?: at (\d+) tokens (?:a|per) sample)?\s*$",
)
_EXAMPLES = "'1 T tokens', '300 M samples', '3 epochs of 1281167 samples', '10 G tokens at 4096 tokens a sample'"


MAX_AMOUNT = 1e24  # of samples or tokens: far beyond all data there is, and times stay finite
_MOST_DIGITS = 12


def _short(text: object) -> str:
    said = repr(text)
    return said if len(said) <= 80 else f"{said[:77]}..."


@dataclass(frozen=True, slots=True)
class Target:
    """An amount of data to train on; it is reached at every batch, whatever that does to the quality.

    name: as it was written. num_samples: to train on, a fraction where tokens do not divide. tokens_per_sample: 1
    where samples are counted.
    """

    name: str
    num_samples: float
    tokens_per_sample: int = 1

    @property
    def target(self) -> str:
        """What is reached."""
        return self.name

    @property
    def basis(self) -> str:
        """What the iterations follow from."""
        return "stated"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: nothing."""
        return ()

    def is_measured(self, global_batch: int) -> bool:
        """Say that every batch reaches it."""
        return True

    def iterations(self, global_batch: int, *, extrapolate: bool = False) -> float:
        """Return the whole iterations that train on at least so much: ceil(amount / batch)."""
        return float(math.ceil(round(self.num_samples / global_batch, 9)))

    def band(self, global_batch: int, *, extrapolate: bool = False) -> tuple[float, float]:
        """Return the iterations twice: there is no spread."""
        iterations = self.iterations(global_batch)
        return iterations, iterations


def parse_target(text: str, model: str, key: str = "target") -> Target:
    """Return the target that a text states for a model.

    Model: a sample of a registered model has the tokens of ``rostam list models``; of others the text says how many.
    Raises: ConfigError for another form, another unit, or tokens of a model that has none.
    """
    found = _FORM.match(text) if isinstance(text, str) else None
    if found is None:
        raise ConfigError(f"{key} is {_short(text)}; it must be an amount of data such as {_EXAMPLES}")
    epochs, number, prefix, unit, given = found.groups()
    if unit not in BATCH_UNITS:
        raise ConfigError(f"{key} is {text!r}, in {unit!r}; units are {' and '.join(BATCH_UNITS)}, as in {_EXAMPLES}")
    amount = float(epochs or 1) * float(number) * _PREFIXES[prefix]
    if not 0 < amount <= MAX_AMOUNT:
        raise ConfigError(f"{key} is {_short(text)}; it must be more than 0 and at most {MAX_AMOUNT:g} {unit}")
    if unit == "samples":
        if given:
            raise ConfigError(f"{key} is {text!r}; tokens a sample count only where the unit is tokens")
        return Target(text.strip(), amount)
    tokens = _tokens_of(text, model, key, given)
    return Target(text.strip(), amount / tokens, tokens)


def goal_of(convergence: str | Curve | Target | None, target: str | None, model: str) -> Curve | Target | None:
    """Return the curve or the target that is given, None where neither is; objects pass through.

    Raises: ConfigError where both are, and as ``get_curve`` and ``parse_target``.
    """
    if convergence is not None and target is not None:
        name = convergence if isinstance(convergence, str) else convergence.name
        raise ConfigError(
            f"target is {target!r} and convergence is {name!r}; a curve has a target of its own: give one of the two"
        )
    if target is not None:
        return parse_target(target, model)
    return convergence if convergence is None or isinstance(convergence, Target) else get_curve(convergence)


def _tokens_of(text: str, model: str, key: str, given: str | None) -> int:
    """Return the tokens of a sample: those given, else the registered model's."""
    if given is not None:
        if len(given) > _MOST_DIGITS or int(given) < 1:
            raise ConfigError(
                f"{key} is {_short(text)}; a sample has at least 1 token and fewer than 10^{_MOST_DIGITS}"
            )
        return int(given)
    samples = samples_of(model)
    if samples is None:
        raise ConfigError(
            f"{key} is {text!r}, but how many tokens a sample of {model!r} has is not known: add it, as in"
            f" '{text.strip()} at 2048 tokens a sample', or count samples"
        )
    if not samples.tokens:
        raise ConfigError(
            f"{key} is {text!r}, but samples of {model} are {samples.kind}, without tokens; count samples"
        )
    return samples.tokens
