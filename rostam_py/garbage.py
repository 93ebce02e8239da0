"""Garbage: when Python's collector looks for unreachable cycles, and when not."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Keep the collector from walking again and again through many objects of which none is garbage: half the time.

    What was made counts as old then, so that the next collection of young objects does not walk through all of it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # else the caller has objects there that should stay
                gc.freeze()
                gc.unfreeze()
            gc.enable()
