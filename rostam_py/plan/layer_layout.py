"""LayerLayout: which repeated blocks each chunk of a pipeline holds, by numbers or in Megatron's layout text.

Example:
    LayerLayout.of([5, 9, 9, 9]).blocks                       # (5, 9, 9, 9): table in the first, loss in the last chunk
    LayerLayout.of("E t | t*2 | (t*2|)*2 , t | L").blocks     # (1, 2, 2, 2, 1, 0): the loss is alone in the last one

Chunk k lies on stage k mod pp, in the order in which the model runs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError

TABLE, BLOCK, LOSS, FURTHER_TOKENS = "E", "t", "L", "m"
_MOST = 100_000  # letters and ends of chunks of a text
_ITEM = re.compile(r"(?:\(([^()]*)\)|([A-Za-z|]))(?:\*(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """What chunks hold.

    blocks: of each chunk, its repeated blocks. table, loss: the chunks of what runs before the first block and behind
    the last one.
    """

    blocks: tuple[int, ...]
    table: int
    loss: int

    @classmethod
    def of(cls, given: Any, key: str = "layers") -> "LayerLayout":
        """Return the layout of a list of numbers, or of a text.

        Model: of a text ``|`` ends a chunk, ``||`` encloses an empty one, commas and blanks mean nothing; E is what
            runs before the blocks (tables of embeddings), t a block, L what runs behind them (head and loss);
            ``x*3`` repeats a letter or an end, ``(...)*3`` what is in parentheses.
        Raises: ConfigError for anything else, naming ``key``.
        Source: parse_str_to_list of megatron/core/transformer/pipeline_parallel_layer_layout.py (NVIDIA/Megatron-LM).
        """
        if isinstance(given, str):
            return cls._of_text(given, key)
        is_list = isinstance(given, Sequence) and len(given) > 0 and all(is_integer(n) and n >= 0 for n in given)
        if not is_list or not any(given):
            raise ConfigError(
                f"{key} is {given!r}; it must list the number of blocks of each chunk, integers >= 0 such as"
                " [5,9,9,9], or be a text such as 'E t*2 | (t*2 |)*2 t L'"
            )
        return cls(tuple(map(int, given)), 0, len(given) - 1)

    @classmethod
    def _of_text(cls, text: str, key: str) -> "LayerLayout":
        letters = "".join(_unrolled(re.sub(r"[\s,]", "", text), key))
        if wrong := sorted(set(letters) - {TABLE, BLOCK, LOSS, FURTHER_TOKENS, "|"}):
            raise ConfigError(
                f"{key} is {text[:80]!r}, with {wrong[0]!r}; it may have E (what runs before the blocks), t (a block),"
                " L (head and loss), | (the end of a chunk), *N behind one of these or behind parentheses"
            )
        if FURTHER_TOKENS in letters:
            raise ConfigError(
                f"{key} is {text[:80]!r}, with m: heads that predict further tokens are not modelled; leave m out"
            )
        order = letters.replace("|", "")
        if not re.fullmatch(f"{TABLE}{BLOCK}+{LOSS}", order):
            raise ConfigError(
                f"{key} is {text[:80]!r}; it must begin with its only E, end with its only L, and have a t in between"
            )
        chunks = letters.split("|")
        table, loss = (next(k for k, chunk in enumerate(chunks) if end in chunk) for end in (TABLE, LOSS))
        return cls(tuple(chunk.count(BLOCK) for chunk in chunks), table, loss)

    @property
    def num_chunks(self) -> int:
        """Chunks, empty ones included."""
        return len(self.blocks)

    def starts(self, begins: Sequence[int], end: int, behind: int) -> list[int]:
        """Return the position at which each chunk but the first begins; an empty one begins where the next one does.

        Args:
            begins: of each block.
            end: of the last block.
            behind: of all.
        """
        places = [0, *begins, end, behind]  # of the table, each block, the loss and the end
        found, taken = list[int](), 0
        for chunk, count in enumerate(self.blocks[:-1]):
            taken += count + (chunk == self.table) + (chunk == self.loss)
            found.append(places[taken])
        return found


def _unrolled(text: str, key: str, is_inside: bool = False) -> Iterator[str]:
    """Yield the letters of a text without its repetitions."""
    position, length = 0, 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None or (is_inside and match[1] is not None):
            raise ConfigError(
                f"{key} is {text[:80]!r}; {text[position : position + 12]!r} is no letter, no | and no parentheses"
                " around letters and |, with *N behind it or not"
            )
        inner = match[2] or "".join(_unrolled(match[1], key, is_inside=True))
        count = int(match[3] or 1)
        length += count * len(inner)
        if length > _MOST:
            raise ConfigError(f"{key} is {text[:80]!r}, of more than {_MOST:,} blocks and chunks")
        yield inner * count
        position = match.end()
