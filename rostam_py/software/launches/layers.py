"""Layers of pipeline stages as launch configurations give them -> strategy.placing.layers.

Source: get_num_layers_to_build in megatron/core/transformer/transformer_block.py of NVIDIA/Megatron-LM, and
    pipeline_parallel_layer_layout.py in the same folder; torchtitan/distributed/pipeline_parallel.py of
    pytorch/torchtitan (generate_llm_fqn_per_model_part, module_fqns_per_model_part).
"""

import re
from collections.abc import Sequence
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.plan.layer_layout import BLOCK, FURTHER_TOKENS, LOSS, TABLE, LayerLayout
from rostam_py.software.launches.ledger import Ledger

LAYERS = "strategy.placing.layers"
_FIRST = ("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage")
_LAST = ("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage")
_LETTERS = {"embedding": TABLE, "decoder": BLOCK, "loss": LOSS, "mtp": FURTHER_TOKENS}
_NO_FURTHER = "; heads that predict further tokens (m) are not modelled and are left out of it"


def megatron_layers(ledger: Ledger, num_stages: int, num_chunks: int) -> None:
    """Set the layers of Megatron's stages, where its arguments say them. Args: num_chunks: of each stage."""
    words = "pipeline_model_parallel_layout"
    if ledger.has(words):
        _layout(ledger, words, num_stages)
        return
    first, last = (next((word for word in names if ledger.has(word)), names[0]) for names in (_FIRST, _LAST))
    if not ledger.has(first) and not ledger.has(last):
        return
    if num_stages == 1:
        ledger.leave(f"{first} {last}", "there is no pipeline")
        return
    total, ends = ledger.number("num_layers", least=1), [ledger.number(one, least=1) for one in (first, last)]
    if total is None:
        ledger.refuse(f"{first} {last}", "the number of layers of all stages together is not in the file")
        return
    others, left = num_stages - sum(end is not None for end in ends), total - sum(end or 0 for end in ends)
    if left < 0 or (left % others if others else left):
        raise ConfigError(
            f"num_layers is {total}; {others} stages between those of {first} and {last} cannot share"
            f" {left} layers evenly"
        )
    middle = left // others if others else 0
    row = [middle if end is None else end for end in (ends[0], *[None] * (num_stages - 2), ends[1])]
    if uneven := [count for count in row if count % num_chunks]:
        raise ConfigError(f"a stage has {uneven[0]} layers; they must be a multiple of its {num_chunks} chunks")
    ledger.set(f"{first} {last}", {LAYERS: [count // num_chunks for count in row] * num_chunks})


def _layout(ledger: Ledger, word: str, num_stages: int) -> None:
    given = ledger.words[word]
    text = _as_text(given) if isinstance(given, list | tuple) else ledger.text(word).strip("'\" ")
    has_further = FURTHER_TOKENS in text
    text = re.sub(rf"{FURTHER_TOKENS}(\*\d+)?", "", text)
    layout = LayerLayout.of(text, word)
    if layout.num_chunks % num_stages:
        raise ConfigError(f"{word} has {layout.num_chunks} chunks; they must be a multiple of {num_stages} stages")
    if num_stages == 1:
        ledger.leave(word, "there is no pipeline")
        return
    ledger.set(word, {LAYERS: text, "strategy.virtual_stages": layout.num_chunks // num_stages})
    if has_further:
        ledger.refuse(word, f"{LAYERS}={text}{_NO_FURTHER}")


def _as_text(chunks: Sequence[Any]) -> str:
    """Return the text of a layout that is given as lists of names."""
    rows = [one if isinstance(one, list | tuple) else [one] for one in chunks]
    return "|".join("".join(_LETTERS.get(str(name).strip().lower(), str(name)) for name in row) for row in rows)


def named_layers(ledger: Ledger, word: str, num_stages: int) -> int | None:
    """Set the layers of parts of a model whose modules are listed ("layers.3"); return the chunks of each stage."""
    parts = ledger.words[word]
    if not isinstance(parts, list | tuple) or not all(isinstance(part, list | tuple) and part for part in parts):
        raise ledger.wrong(
            word, "a list of lists of modules, such as [['tok_embeddings','layers.0'],['norm','output']]"
        )
    if len(parts) % num_stages:
        raise ConfigError(f"{word} has {len(parts)} parts; they must be a multiple of {num_stages} stages")
    counts = [sum(bool(re.fullmatch(r"layers\.\d+", str(name).strip())) for name in part) for part in parts]
    text = "|".join(BLOCK * count for count in counts)
    ledger.set(word, {LAYERS: f"{TABLE}{text}{LOSS}", "strategy.virtual_stages": len(parts) // num_stages})
    return len(parts) // num_stages


def split_layers(ledger: Ledger, word: str, num_stages: int, num_layers: int) -> None:
    """Set the layers of stages that begin with the modules listed ("layers.8")."""
    given = ledger.words[word]
    names = given if isinstance(given, list | tuple) else ledger.text(word).strip("[]").split(",")
    found = [re.fullmatch(r"['\"\s]*layers\.(\d+)['\"\s]*", str(name)) for name in names]
    starts = [int(match[1]) for match in found if match]
    bounds = [0, *starts, num_layers]
    if len(starts) < len(found) or sorted(bounds) != bounds:
        raise ledger.wrong(word, f"a list of layers at which stages begin, such as [layers.8], of {num_layers}")
    if (len(bounds) - 1) % num_stages:
        raise ConfigError(f"{word} makes {len(bounds) - 1} chunks; they must be a multiple of {num_stages} stages")
    counts = [end - begin for begin, end in zip(bounds, bounds[1:], strict=False)]
    ledger.set(word, {LAYERS: counts, "strategy.virtual_stages": len(counts) // num_stages})


def dealt_layers(ledger: Ledger, words: Sequence[str], num_stages: int, num_layers: int) -> None:
    """Set the layers of torchtitan's stages of so many each, the model's two ends counted as some.

    Args: words: for layers of a chunk, and for those by which the first and the last have less, 1 by default.
    """
    each = ledger.number(words[0], least=1)
    ends = [ledger.number(word, 1) or 0 for word in words[1:]]
    if each is None:
        row = num_stages * (ledger.keys.get("strategy.virtual_stages") or 1)
    else:
        row = -(-(num_layers + sum(ends)) // each)
        if row % num_stages:
            raise ConfigError(f"{words[0]} is {each}, which makes {row} chunks; they must be a multiple of {num_stages}"
                              " stages")  # fmt: skip
    share, more = divmod(num_layers + sum(ends), row)
    counts = [share + (chunk < more) for chunk in range(row)]
    counts[0] -= ends[0]
    counts[-1] -= ends[1]
    if min(counts) < 0:
        raise ConfigError(f"{' and '.join(words[1:])} take more layers from a chunk than the {share} that it has")
    ledger.set(" ".join(words), {LAYERS: counts, "strategy.virtual_stages": row // num_stages})
