"""Reader: one program's launch configurations; LAUNCHES of software/names.py holds one line for each."""

from pathlib import Path
from typing import Any, Protocol

from rostam_py.errors import ConfigError
from rostam_py.software.launches.document import Document, read_document
from rostam_py.software.launches.ledger import Launch, Ledger
from rostam_py.software.names import LAUNCHES


class Reader(Protocol):
    """What turns a program's words into keys; it decides nothing that the keys' own checks decide.

    WHAT: the files that it reads, in a few words.
    """

    WHAT: str

    def recognises(self, document: Document) -> bool:
        """Say whether a document is of this program."""

    def read(self, document: Document, num_accelerators: int | None) -> Launch:
        """Return its keys. Args: num_accelerators: of the machine, None if it is not known yet."""


def read_launch(path: str | Path, variables: dict[str, str], num_accelerators: int | None) -> Launch:
    """Return a launch file as keys.

    Args:
        variables: of a script or mapping, in place of those that it does not set.
        num_accelerators: of the machine, where the file does not say.
    Raises: ConfigError for a file that no reader knows, and for values that a word cannot have.
    """
    document = read_document(Path(path), variables)
    readers: list[Reader] = [LAUNCHES.get(name)() for name in LAUNCHES]
    for reader in readers:
        if reader.recognises(document):
            try:
                return reader.read(document, num_accelerators)
            except ConfigError as error:
                raise ConfigError(f"launch file {str(path)!r}: {error}") from error
    known = "; ".join(reader.WHAT for reader in readers)
    found = ", ".join(list(document.words)[:8]) or "no words"
    raise ConfigError(f"launch file {str(path)!r} is of no program that is known ({known}); it has: {found}")


def set_size(ledger: Ledger, accelerators: str, servers: str, per_server: str, known: int | None) -> int | None:
    """Return the number of accelerators of a launch, and set num_accelerators where the words say it.

    Args: accelerators, servers, per_server: words for all, for servers and for those of one, several with blanks.
    """
    for word in accelerators.split():
        if (whole := _count(ledger, word)) is not None:
            ledger.set(word, {"num_accelerators": whole})
            return whole
    counts = [next(((word, n) for word in words.split() if (n := _count(ledger, word))), None)
              for words in (servers, per_server)]  # fmt: skip
    if counts[1] is None:
        for found in counts:
            if found is not None:
                ledger.refuse(found[0], "the number of accelerators of a server is not given: add machine=NAME")
        return known
    whole = (counts[0][1] if counts[0] is not None else 1) * counts[1][1]
    for found in counts:
        if found is not None:
            ledger.set(found[0], {"num_accelerators": whole})
    return whole


def _count(ledger: Ledger, word: str) -> int | None:
    text = ledger.text(word).partition(":")[0]  # nnodes=1:4 is elastic
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 8 and int(text) > 0 else None


def set_batches(
    ledger: Ledger, micro: tuple[str, int | None], whole: tuple[str, int | None], steps: tuple[str, int],
    size: int | None, inner: int,
) -> None:  # fmt: skip
    """Set micro-batch and global batch.

    Args: micro, whole, steps: words and values of a micro-batch, of a global batch, and of the micro-batches of one
        step where the global batch is not given. size, inner: accelerators, and those of one replica.
    """
    keys: dict[str, Any] = {}
    if micro[1] is not None:
        keys["strategy.micro_batch"] = micro[1]
        ledger.set(micro[0], keys)
    if whole[1] is not None:
        ledger.set(whole[0], {"global_batch": whole[1]})
        return
    if micro[1] is None:
        return
    if size is None:
        raise ConfigError(
            f"{micro[0] or 'a micro-batch'} is given and no global batch, which is then a multiple of the number of"
            " accelerators, that the file does not say: add num_accelerators=N or machine=NAME with machine.servers=N"
        )
    if size % inner:
        raise ConfigError(f"{size} accelerators are not a multiple of the {inner} of one replica (tp x cp x pp)")
    found = {"global_batch": micro[1] * steps[1] * (size // inner)}
    ledger.set(steps[0], found)
    ledger.set(micro[0], keys | found)
