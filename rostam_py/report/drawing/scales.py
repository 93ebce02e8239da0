"""Units, tick marks and colours that all figures of a report share.

A table keeps SI; a drawing multiplies by a Scale: Scale("ms", 1e3) draws 0.002 s as 2 ms.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rostam_py.costs.families import FAMILIES, HOST_COPY
from rostam_py.plan.group_kinds import counted_kinds, group_kind, kinds_in_order

# Okabe and Ito's colours, told apart by colour-blind readers; yellow is left out, it vanishes on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down")
DASHES = ("solid", "dash", "dot", "dashdot")
# The same in matplotlib's words.
PAPER_SYMBOLS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X", "star": "*", "triangle-down": "v",
}  # fmt: skip
PAPER_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}

_CASE = "case"  # the axis of rows that set several keys at once
# Memory below this share of the capacity is drawn without it: the bars would not be seen.
SMALL_MEMORY = 0.05

# Where an iteration's time goes besides communication: column of a point, words, colour. Communication is warm.
_UNEXPOSED = {
    "compute_s": ("compute", "#0072B2"),
    "launch_s": ("launch latency", "#56B4E9"),
    "bubble_s": ("pipeline bubble", "#B8B8B8"),
    "host_s": ("waiting for the host", "#5B6C8F"),
}
# Op families of compute, cold, in the order of bars.
_COLD = ("#0072B2", "#313F8C", "#56B4E9", "#009E73", "#1F3B57", "#66C2A5", "#A6CEE3", "#7A6FAC", "#4D4D4D")
_FAMILY_COLOURS = dict(zip((*FAMILIES, HOST_COPY), _COLD, strict=True))
_OTHER_FAMILY = "#7F7F7F"


def part_looks(parts: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return (words, colour) of parts of predicted iterations, the same in all figures, in the order of bars.

    Args: parts: op families, "exposed KIND" of process groups, "bubble" and "host".
    """
    present = dict.fromkeys(parts)
    columns = {f"exposed {name}": f"exposed_{name}_s" for name in counted_kinds()} | {
        part: f"{part}_s" for part in ("bubble", "host")
    }
    others = {part: breakdown_looks()[column] for part, column in columns.items()}
    families = {name: (name.replace("_", " "), colour) for name, colour in _FAMILY_COLOURS.items()}
    unknown = {part: (part, _OTHER_FAMILY) for part in present if part not in families | others}
    return {part: look for part, look in (families | unknown | others).items() if part in present}


def breakdown_looks() -> dict[str, tuple[str, str]]:
    """Return column of a point -> (words, colour) of every part of an iteration, in the order of legends."""
    kinds = {name: group_kind(name) for name in counted_kinds()}
    return _UNEXPOSED | {f"exposed_{name}_s": (f"exposed {kind.words}", kind.colour) for name, kind in kinds.items()}


def is_communication(kind: str) -> bool:
    """Tell whether a kind of a breakdown is communication."""
    return f"{kind}_s" not in _UNEXPOSED


def kind_looks() -> dict[str, tuple[str, str]]:
    """Return (words, colour) of what a task or a wait may be, kinds of process groups among them."""
    kinds = {name: group_kind(name) for name in kinds_in_order()}
    waits = {column.removesuffix("_s"): look for column, look in _UNEXPOSED.items()}
    return waits | {name: (kind.words, kind.colour) for name, kind in kinds.items()}


@dataclass(frozen=True)
class Scale:
    """A unit and what to multiply SI values by to get it."""

    unit: str
    factor: float

    def title(self, what: str) -> str:
        """Return an axis title such as "time to accuracy [h]"."""
        return f"{what} [{self.unit}]" if self.unit else what


@dataclass(frozen=True)
class Look:
    """How a line is drawn; the first seven differ by colour and symbol, further ones by dash as well."""

    colour: str
    symbol: str
    dash: str


_TIMES = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))


def time_scale(values: Iterable[float]) -> Scale:
    """Return the unit that suits times [s]: the largest that is no longer than the middle value."""
    middle = _middle(values)
    return next((Scale(unit, 1 / size) for unit, size in _TIMES if middle >= size), Scale("ns", 1e9))


def bandwidth_scale(values: Iterable[float]) -> Scale:
    """Return the unit for bandwidths [bytes/s], in bits: Gb/s unless all are far from it."""
    middle = _middle(values) * 8
    if 1e9 <= middle < 1e14:
        return Scale("Gb/s", 8e-9)
    return _decimal_scale(middle, "b/s", 8.0)


def size_scale(values: Iterable[float]) -> Scale:
    """Return the decimal unit for sizes [bytes]."""
    return _decimal_scale(_middle(values), "B", 1.0)


def count_scale(values: Iterable[float], unit: str) -> Scale:
    """Return a scale with words for prefixes: "million US$"."""
    middle = _middle(values)
    for words, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if middle >= size:
            return Scale(f"{words} {unit}".strip(), 1 / size)
    return Scale(unit, 1.0)


def log_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers for a logarithmic axis that spans ``low`` to ``high``."""
    decades = math.log10(high / low)
    if decades < 0.7:
        return _even_ticks(low, high)
    steps = (1, 2, 5) if decades < 3 else (1,)
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if low / 1.001 <= tick <= high * 1.001]


def _even_ticks(low: float, high: float) -> list[float]:
    """Return evenly spaced round numbers: on a logarithmic axis of less than a factor of five they stay apart."""
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(one * power for one in (1, 2, 2.5, 5, 10) if one * power * 5.5 >= high - low)
    return [round(index * step, 12) for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_range(values: Sequence[float], margin: float = 0.08) -> tuple[float, float]:
    """Return the ends of a logarithmic axis: the values' span and a margin of the span, at least 4% on each side."""
    low, high = min(values), max(values)
    pad = max(math.log10(high / low) * margin, math.log10(1.04))
    return low / 10**pad, high * 10**pad


def number(value: float) -> str:
    """Return a short number: three digits, no exponent below a million."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1e6 or abs(value) < 1e-4:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short_strategy(strategy: str | None) -> str:
    """Return a strategy without its degrees of one: "dp 64 x tp 1 x pp 1" is "dp 64"."""
    parts = (strategy or "").split(" x ")
    return " x ".join([one for one in parts if not one.endswith(" 1")] or parts[:1])


def named_label(axis: str, text: str) -> str:
    """Return an axis' label as it can stand alone: one that is no name gets the axis' last word, "links 5".

    Bandwidths of accelerators stand alone as they are, "400 Gb/s".
    """
    is_name = text[:1].isalpha() and text.lower() not in ("true", "false", "null", "none")
    is_name = is_name or axis == _CASE  # whoever wrote the rows named them
    if is_name or text in ("", "-") or axis.endswith("accelerator_bandwidth"):
        return text
    return f"{axis.rpartition('.')[2]} {text}"


def looks(lines: Sequence[str]) -> dict[str, Look]:
    """Return a look for every line, stable in the lines' order."""
    found = {}
    for index, line in enumerate(lines):
        turn, place = divmod(index, len(COLOURS))
        found[line] = Look(COLOURS[place], SYMBOLS[(place + turn) % len(SYMBOLS)], DASHES[turn % len(DASHES)])
    return found


def label(text: object) -> str:
    """Return a user's string for a plotly label, where <b> would be markup and a pair of $ a formula."""
    return html.escape(str(text), quote=False).replace("$", "&#36;")


def paper_label(text: object) -> str:
    """Return a user's string for a matplotlib label, where a pair of $ would be a formula."""
    return str(text).replace("$", r"\$")


def _middle(values: Iterable[float]) -> float:
    ordered = sorted(value for value in values if value is not None and math.isfinite(value) and value > 0)
    return ordered[len(ordered) // 2] if ordered else 1.0


def _decimal_scale(middle: float, unit: str, factor: float) -> Scale:
    return next(
        (Scale(prefix + unit, factor / size) for prefix, size in _PREFIXES if middle >= size), Scale(unit, factor)
    )
