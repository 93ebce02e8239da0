"""Keywords that a public function or class does not take: a ConfigError that says what rostam calls them.

Example:
    Strategy(zero_stage=3)      # ConfigError: Strategy takes no zero_stage=3 (did you mean shard=3?); ...
    place = explained(place, "rostam_py", "place")      # place(..., zero_stage=3) likewise, where it was a TypeError
"""

import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.field_words import hint, written

_PAIR = r"strategy\.(\w+)=('[^']*'|[^\s',;?]+)"
_PAIRS = re.compile(f"{_PAIR}(?: {_PAIR})*")
_SETTING = re.compile(r"(?<![\w.(])(?:\w+\.)?(\w+)=('[^']*'|\[[^\]]*\]|[^\s',;?()]+)(?![\w(])")
_LENGTH = re.compile(r"model\.sequence_length=(\d+)")
_NAMES = {"true": "True", "false": "False", "null": "None"}
_NUMBER = re.compile(r"[-+]?\d+\.?\d*(e[-+]?\d+)?")


def check_keywords(target: Any, given: Mapping[str, Any]) -> None:
    """Raise ConfigError for a keyword that a function or class does not take, with the one that may be meant."""
    known = keywords_of(target)
    for key in given if known is not None else ():
        if known is not None and key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
            said = _said(key, given[key], known) or (f"did you mean {near[0]}={given[key]!r}?" if near else "")
            raise ConfigError(
                f"{target.__name__} takes no {key}={given[key]!r}{f' ({said})' if said else ''}; it takes:"
                f" {', '.join(known)}"
            )


@functools.cache
def keywords_of(target: Any) -> tuple[str, ...] | None:
    """Return the keywords that a function or class takes; None where it takes any."""
    if dataclasses.is_dataclass(target):
        return tuple(entry.name for entry in dataclasses.fields(target) if entry.init)
    known = inspect.signature(target).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in known):
        return None
    return tuple(one.name for one in known if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))


def _said(key: str, value: Any, known: tuple[str, ...]) -> str:
    """Return what a keyword means, settings as Python writes them."""

    def in_python(found: re.Match[str]) -> str:
        pairs = ", ".join(f"{name}={_literal(one)}" for name, one in re.findall(_PAIR, found.group()))
        return pairs if "tp" in known else f"strategy=Strategy({pairs})"

    def own(found: re.Match[str]) -> str:
        return f"{found[1]}={_literal(found[2])}" if found[1] in known else found[0]

    text = _PAIRS.sub(in_python, hint(key, written(value), known.__contains__) or hint(key, written(value)))
    text = _SETTING.sub(own, text) if "tp" not in known else text
    return _LENGTH.sub(r"trace(..., sequence_length=\1)", text)


def _literal(text: str) -> str:
    if text in _NAMES:
        return _NAMES[text]
    return text if _NUMBER.fullmatch(text) or text[:1] in "'[" else repr(text)


def explained(target: Any, module: str, name: str) -> Any:
    """Return a function that refuses keywords which it does not take, by ``check_keywords``; of a class, the class.

    Args: module, name: where it is handed out, so that it can be pickled.
    """
    if isinstance(target, type):
        made: Any = vars(target).get("__init__")
        if made is not None and not hasattr(made, "explains"):
            keywords_of(target)  # while the signature is its own
            target.__init__ = _guarded(made, target)  # type: ignore[misc]
        return target
    call = _guarded(target, target)
    call.__module__, call.__qualname__ = module, name
    return call


def _guarded(function: Callable[..., Any], target: Any) -> Any:
    known = keywords_of(target)
    if known is None:
        return function

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if not keywords.keys() <= set(known):
            check_keywords(target, keywords)
        return function(*args, **keywords)

    call.explains = True  # type: ignore[attr-defined]
    return call
