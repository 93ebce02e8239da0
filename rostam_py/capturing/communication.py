"""Wires: what collectives and messages of a rank leave behind: a record, results of their shapes, works to wait for.

Model: NCCL's. A synchronous collective runs on the current stream; one with ``async_op``, every functional collective
and every message runs on its communicator's own stream, and is joined where its work, or its result, is waited for.
Peers are alike: a gathered integer is one's own, a sum of them their number times one's own.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from rostam_py.capturing.memory import Memory
from rostam_py.capturing.recorder import Communication, KernelKey, Recorder
from rostam_py.capturing.shadows import Shadows
from rostam_py.errors import ConfigError

NAMESPACES = ("c10d", "_c10d_functional")
_Arguments = dict[str, Any]


def total_bytes(values: Any) -> int:
    """Return the bytes of the tensors in nested lists."""
    if isinstance(values, torch.Tensor):
        return values.numel() * values.element_size()
    return sum(map(total_bytes, values)) if isinstance(values, list | tuple) else 0


def _sized(kind: str, key: str) -> Callable[[_Arguments, int], tuple[str, int]]:
    return lambda given, size: (kind, total_bytes(given[key]))


def _of_root(kind: str, whole: str, part: str) -> Callable[[_Arguments, int], tuple[str, int]]:
    """Return a rule for what a root has whole and others a part of."""
    return lambda given, size: (kind, total_bytes(given[whole]) or size * total_bytes(given[part]))


# c10d op -> (its arguments, ranks of the group) -> (what rostam calls it, bytes of MODEL A4).
_KINDS: dict[str, Callable[[_Arguments, int], tuple[str, int]]] = {
    "allreduce_": _sized("all_reduce", "tensors"),
    "allreduce_coalesced_": _sized("all_reduce", "tensors"),
    "broadcast_": _sized("broadcast", "tensors"),
    "reduce_": _sized("reduce", "tensors"),
    "_allgather_base_": _sized("all_gather", "output_tensor"),
    "allgather_": _sized("all_gather", "output_tensors"),
    "allgather_into_tensor_coalesced_": _sized("all_gather", "outputs"),
    "allgather_coalesced_": _sized("all_gather", "output_lists"),
    "_reduce_scatter_base_": _sized("reduce_scatter", "input_tensor"),
    "reduce_scatter_": _sized("reduce_scatter", "input_tensors"),
    "reduce_scatter_tensor_coalesced_": _sized("reduce_scatter", "inputs"),
    "alltoall_base_": _sized("all_to_all", "input"),
    "alltoall_": _sized("all_to_all", "input_tensors"),
    "gather_": _of_root("gather", "output_tensors", "input_tensors"),
    "scatter_": _of_root("scatter", "input_tensors", "output_tensors"),
    "send": _sized("send", "tensors"),
    "recv_": _sized("recv", "tensors"),
    "all_reduce": _sized("all_reduce", "input"),
    "all_reduce_": _sized("all_reduce", "input"),
    "all_reduce_coalesced": _sized("all_reduce", "inputs"),
    "all_reduce_coalesced_": _sized("all_reduce", "inputs"),
    "broadcast": _sized("broadcast", "input"),
    "all_gather_into_tensor": lambda given, size: ("all_gather", size * total_bytes(given["input"])),
    "all_gather_into_tensor_out": lambda given, size: ("all_gather", size * total_bytes(given["input"])),
    "all_gather_into_tensor_coalesced": lambda given, size: ("all_gather", size * total_bytes(given["inputs"])),
    "reduce_scatter_tensor": _sized("reduce_scatter", "input"),
    "reduce_scatter_tensor_out": _sized("reduce_scatter", "input"),
    "reduce_scatter_tensor_coalesced": _sized("reduce_scatter", "inputs"),
    "all_to_all_single": _sized("all_to_all", "input"),
    "isend": _sized("send", "tensor"),
    "irecv": _sized("recv", "tensor"),
}
_COPYING = ("all_reduce", "broadcast")  # functional ones reduce a copy of their input in place
_ROOTS = ("broadcast", "reduce", "gather", "scatter")


class Wires:
    """Collectives and messages of a rank, and the process groups that they are of.

    groups: (ranks, what the program calls the group), numbered as they first communicate.
    """

    def __init__(self, recorder: Recorder, memory: Memory, shadows: Shadows) -> None:
        self.shadows = shadows
        self.groups: list[tuple[tuple[int, ...], str]] = []
        self._recorder, self._memory = recorder, memory
        self._group_numbers: dict[str, int] = {}
        self._results: dict[int, int] = {}  # storage of a functional collective's result -> communication
        self._batches = itertools.count(1)
        self._batch = 0
        self.host_messages: Callable[[str, _Arguments, dist.ProcessGroup], bool] = lambda name, given, group: False
        # (value, root, group) -> what the root says, None where it is not known.
        self.broadcast: Callable[[torch.Tensor, int, dist.ProcessGroup], torch.Tensor | None]
        self.broadcast = lambda value, root, group: value

    def run(self, func: Any, args: Any, kwargs: Any, fakes: list[FakeTensor], fake_mode: Any) -> Any:
        """Run an op of NAMESPACES."""
        name = func._schema.name.partition("::")[2]
        if name == "wait_tensor":
            return self._wait(args[0])
        if name == "_wrap_tensor_autograd":
            return AsyncCollectiveTensor(args[0])  # waits where it is first used
        given = {one.name: value for one, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        if not fakes:
            return self._on_host(func, name, given, args, kwargs)
        if name in ("barrier", "monitored_barrier_"):
            return self.barrier(given)
        if name not in _KINDS:
            raise ConfigError(f"the collective {func} is not modelled; modelled are: {', '.join(_KINDS)}")
        is_functional = func.namespace != "c10d"
        if is_functional and name in _COPYING:
            self._note_copy(args[0])
        number = self._record(name, given)
        if not is_functional:
            self._exchange_values(name, given)
            work = self.work(number)
            return (args[0], work) if len(func._schema.returns) == 2 else work
        return self._functional(func, args, kwargs, number, fake_mode)

    def _record(self, name: str, given: _Arguments) -> int:
        group = _group_in(given)
        ranks = dist.get_process_group_ranks(group)
        kind, num_bytes = _KINDS[name](given, len(ranks))
        peer = next((given[key] for key in ("dst", "src") if key in given and kind in ("send", "recv")), None)
        return self._recorder.communicate(
            Communication(
                kind, num_bytes, self.group_number(group), is_own=given.get("async_op", True) or peer is not None,
                peer=None if peer is None else ranks[peer],
                root=_root(given) if kind in _ROOTS else 0,
                send_bytes=_parts(given) if kind == "all_to_all" else None, tag=given.get("tag", 0), batch=self._batch,
            )
        )  # fmt: skip

    def group_number(self, group: dist.ProcessGroup) -> int:
        """Return the number of a process group."""
        name = group.group_name
        if name not in self._group_numbers:
            self._group_numbers[name] = len(self.groups)
            self.groups.append((tuple(dist.get_process_group_ranks(group)), group.group_desc))
        return self._group_numbers[name]

    def work(self, number: int) -> Any:
        """Return what a program waits for, whose ``seq_id`` names the communication."""
        work = FakeWork()
        work.seq_id = number
        return work.boxed()

    def begin_batch(self) -> None:
        """Let the messages that follow start together."""
        self._batch = next(self._batches)

    def end_batch(self) -> FakeWork:
        """End them; returns what to wait for."""
        self._batch = 0
        work = FakeWork()
        work.seq_id = len(self._recorder.communications) - 1
        return work

    def joined(self, work: FakeWork) -> None:
        """Note that a work is waited for."""
        if 0 <= work.seq_id < len(self._recorder.communications):
            self._recorder.join(work.seq_id)

    def barrier(self, given: _Arguments | None = None) -> Any:
        """Note a barrier: NCCL's reduces a float over all ranks, and the host waits for it."""
        group = _group_in(given) if given else dist.distributed_c10d._get_default_group()
        number = self._recorder.communicate(Communication("all_reduce", 4, self.group_number(group)))
        self._recorder.host_waits()
        return self.work(number)

    def _functional(self, func: Any, args: Any, kwargs: Any, number: int, fake_mode: Any) -> Any:
        if func._schema.is_mutable:
            out = kwargs["out"] if "out" in kwargs else args[0]
        else:
            with fake_mode:
                out = func(*args, **kwargs)
        for one in out if isinstance(out, list | tuple) else (out,):
            self._memory.track(one)
            self._results[one.untyped_storage()._cdata] = number
        if func._schema.name.endswith("all_to_all_single") and isinstance(args[0], FakeTensor):
            self._exchange_parts(args[0], out, _group_in({"group_name": args[3]}))
        return out

    def _note_copy(self, tensor: torch.Tensor) -> None:
        if self._recorder.is_on:
            shape = (tuple(tensor.shape),)
            copy = KernelKey(str(torch.ops.aten.clone.default), shape, (str(tensor.dtype)[6:],), shape)
            self._recorder.kernel(copy)

    def _wait(self, tensor: torch.Tensor) -> torch.Tensor:
        number = self._results.pop(tensor.untyped_storage()._cdata, None)
        if number is not None:
            self._recorder.join(number)
        return tensor

    def _exchange_values(self, name: str, given: _Arguments) -> None:
        """Say what integers are known after a collective of c10d."""
        if name == "alltoall_base_":
            self._exchange_parts(given["input"], given["output"], _group_in(given))
        elif name == "broadcast_":
            self._broadcast_values(given)
        elif name == "_allgather_base_":
            value = self.shadows.get(given["input_tensor"])
            if value is not None:
                out = given["output_tensor"]
                self.shadows.set(out, value.reshape(-1).repeat(out.numel() // value.numel()).reshape(out.shape))

    def _broadcast_values(self, given: _Arguments) -> None:
        group = _group_in(given)
        for one in given["tensors"]:
            value = self.shadows.get(one)
            if value is not None:
                said = self.broadcast(value, _root(given), group)
                if said is None:
                    self.shadows.drop(one)
                else:
                    self.shadows.set(one, said)

    def _exchange_parts(self, sent: torch.Tensor, received: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Say what integers an all-to-all brings: each peer's part for this rank, which is this rank's for itself."""
        value, size = self.shadows.get(sent), group.size()
        if value is None or value.shape != received.shape or value.shape[0] % size:
            return
        mine = value.reshape(size, -1)[group.rank()]
        self.shadows.set(received, mine.repeat(size).reshape(received.shape))

    def _on_host(self, func: Any, name: str, given: _Arguments, args: Any, kwargs: Any) -> Any:
        """Exchange the host's tensors: with peers that run as well, else as if all ranks had the same."""
        group = _group_in(given)
        if name in ("send", "recv_") and self.host_messages(name, given, group):
            return self.work(-1)
        if name == "barrier":
            return self.work(-1)
        result = func(*args, **kwargs)
        size = group.size()
        if name == "allgather_":
            for outs, one in zip(given["output_tensors"], given["input_tensors"], strict=True):
                for out in outs:
                    out.copy_(one)
        elif name == "_allgather_base_":
            out = given["output_tensor"]
            out.view(-1).copy_(given["input_tensor"].reshape(-1).repeat(size))
        elif name == "broadcast_":
            for one in given["tensors"]:
                said = self.broadcast(one, _root(given), group)
                if said is not None:
                    one.copy_(said)
        elif name == "allreduce_" and given["reduce_op"].op() == dist.ReduceOp.SUM:
            for one in given["tensors"]:
                one.mul_(size)
        return result


def _group_in(given: _Arguments) -> dist.ProcessGroup:
    if "process_group" in given:
        group = given["process_group"]
        return group if isinstance(group, dist.ProcessGroup) else dist.ProcessGroup.unbox(group)
    named = given["group_name"]
    if isinstance(named, dist.ProcessGroup):
        return named
    if isinstance(named, torch.ScriptObject):
        return dist.ProcessGroup.unbox(named)
    return dist.distributed_c10d._resolve_process_group(named)


def _root(given: _Arguments) -> int:
    return int(given["root_rank"] if "root_rank" in given else given.get("src") or 0)


def _parts(given: _Arguments) -> tuple[int, ...] | None:
    """Return the bytes to each rank of an all-to-all of unequal parts, None if they are equal."""
    if "input_tensors" in given:
        sizes = [total_bytes(one) for one in given["input_tensors"]]
    else:
        whole = given["input"]
        rows = [int(one) for one in given.get("input_split_sizes") or ()]
        width = math.prod(whole.shape[1:]) * whole.element_size()
        sizes = [one * width for one in rows]
    return tuple(sizes) if len(set(sizes)) > 1 else None
