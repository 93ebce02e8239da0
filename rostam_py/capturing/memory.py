"""Memory of the fake device: storages that are alive, and the most of a recorded step.

Model: as torch.distributed._tools.MemTracker counts: every storage once, rounded up to the caching allocator's blocks
of 512 bytes, from the op that makes it to its last reference; ``resize_`` counts from then on. What the allocator holds
for them is in allocator.py. The libraries' own buffers are not counted.
"""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rostam_py.capturing.allocator import UNIT, CachingAllocator, Piece, rounded

_RESIZE = torch.UntypedStorage.resize_


class Memory:
    """Storages alive. live_bytes: of all of them. peak_bytes: the most since ``restart``.

    allocator: what hands them out. Args: stream: returns the number of the current stream.
    """

    def __init__(self, stream: Callable[[], int] = lambda: 0) -> None:
        self._storages: dict[int, tuple[Any, int, Piece | None]] = {}  # storage -> weak reference, bytes, its place
        self._stream = stream
        self.allocator = CachingAllocator()
        self.live_bytes = self.peak_bytes = 0

    def track(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage, unless it is counted already."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            self._keep(key, weakref.ref(storage, partial(self._forget, key)), storage.nbytes())

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
        known = self._storages.get(storage._cdata)
        if known is not None:
            self._drop(known)
            self._keep(storage._cdata, known[0], size)

    def _keep(self, key: int, reference: Any, num_bytes: int) -> None:
        size = rounded(num_bytes, UNIT)
        piece = self.allocator.take(size, self._stream()) if size else None
        self._storages[key] = (reference, size, piece)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _drop(self, known: tuple[Any, int, Piece | None]) -> None:
        self.live_bytes -= known[1]
        if known[2] is not None:
            self.allocator.free(known[2])

    def _forget(self, key: int, reference: Any) -> None:
        known = self._storages.get(key)
        if known is not None and known[0] is reference:
            del self._storages[key]
            self._drop(known)
