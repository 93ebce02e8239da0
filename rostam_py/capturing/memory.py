"""Memory of the fake device: storages that are alive, and the most of a recorded step.

Model: as torch.distributed._tools.MemTracker counts: every storage once, rounded up to the caching allocator's blocks
of 512 bytes, from the op that makes it to its last reference; ``resize_`` counts from then on. What the allocator keeps
in pieces, and the libraries' own buffers, are not counted.
"""

import weakref
from functools import partial
from typing import Any

import torch

BLOCK_BYTES = 512  # torch's CUDA caching allocator hands out multiples of it
_RESIZE = torch.UntypedStorage.resize_


class Memory:
    """Storages alive. live_bytes: of all of them. peak_bytes: the most since ``restart``."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[Any, int]] = {}  # storage -> weak reference, bytes
        self.live_bytes = self.peak_bytes = 0

    def track(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage, unless it is counted already."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return
        size = _blocks(storage.nbytes())
        self._sizes[key] = (weakref.ref(storage, partial(self._forget, key)), size)
        self._grow(size)

    def watch_resizing(self) -> None:
        """Let ``UntypedStorage.resize_`` tell: FSDP2 frees gathered weights by it, which is no op."""

        def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            found = _RESIZE(storage, size)
            self._resized(storage, size)
            return found

        setattr(torch.UntypedStorage, "resize_", resize)  # noqa: B010  # a method of torch's

    def restart(self) -> None:
        """Let the peak begin at what is alive."""
        self.peak_bytes = self.live_bytes

    def _resized(self, storage: torch.UntypedStorage, size: int) -> None:
        known = self._sizes.get(storage._cdata)
        if known is not None:
            self._sizes[storage._cdata] = (known[0], _blocks(size))
            self._grow(_blocks(size) - known[1])

    def _grow(self, size: int) -> None:
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _forget(self, key: int, reference: Any) -> None:
        known = self._sizes.get(key)
        if known is not None and known[0] is reference:
            del self._sizes[key]
            self.live_bytes -= known[1]


def _blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
