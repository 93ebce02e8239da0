"""The side channel of ranks that are captured together: objects and tensors of their hosts, through a folder.

A rank that wants something of one that does not run asks for it on its pipe; the process that forks ranks starts it.
"""

import base64
import json
import os
import pickle
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

_PATIENCE = timedelta(minutes=10)  # for a peer that computes its own shapes first


class SideChannel:
    """Messages between the hosts of ranks. requests: the pipe to the process that forks."""

    def __init__(self, folder: Path, rank: int, requests: Any) -> None:
        self._store = dist.FileStore(str(folder / f"messages-{os.getppid()}"), -1)
        self._store.set_timeout(_PATIENCE)
        self._rank, self._requests = rank, requests
        self._counts: Counter[tuple[str, int, int]] = Counter()
        self._asked: set[int] = set()

    def ask_for(self, ranks: list[int]) -> None:
        """Have ranks captured as well."""
        wanted = sorted(set(ranks) - self._asked - {self._rank})
        if wanted:
            self._asked.update(wanted)
            self._requests.send(json.dumps({"ranks": wanted}))

    def send(self, group: str, peer: int, value: Any) -> None:
        """Send a value to a rank. Args: group: in which, messages of one arrive in order."""
        self.ask_for([peer])
        self._store.set(self._key(group, self._rank, peer), _packed(value))

    def receive(self, group: str, peer: int) -> Any:
        """Return the next value that a rank sends; waits for it."""
        self.ask_for([peer])
        return _unpacked(self._store.get(self._key(group, peer, self._rank)))

    def publish(self, topic: str, value: Any) -> None:
        """Say a value to all ranks."""
        self._store.set(self._key(topic, self._rank, self._rank), _packed(value))

    def published(self, topic: str, rank: int) -> Any:
        """Return the next value that a rank says to all; waits for it."""
        self.ask_for([rank])
        return _unpacked(self._store.get(self._key(topic, rank, rank)))

    def _key(self, group: str, source: int, target: int) -> str:
        way = (group, source, target)
        self._counts[way] += 1
        return f"{group}/{source}/{target}/{self._counts[way]}"


def _packed(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _unpacked(found: bytes) -> Any:
    return pickle.loads(base64.b64decode(found))
