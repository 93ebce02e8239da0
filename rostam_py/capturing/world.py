"""The world of a rank: process groups without communication; objects go to captured ranks, or all are alike."""

import functools
import os
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.distributed.tensor  # takes names of what is replaced here, and has to be loaded before
from torch._C._distributed_c10d import FakeProcessGroup, FakeWork
from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers the backend

from rostam_py.capturing.communication import Wires
from rostam_py.capturing.replacing import put, replace
from rostam_py.capturing.request import Request
from rostam_py.capturing.side_channel import SideChannel

_FAKE = "fake"
_MOST_ENTRIES = 1024  # of a tensor that is told to others
_FIRST = 0  # the rank that is always captured, and whose broadcast objects others take


class World:
    """Process groups of a rank. created: (ranks, what the program calls it) of every group that it creates."""

    def __init__(self, request: Request, rank: int, wires: Wires, side: SideChannel) -> None:
        self.created: list[tuple[tuple[int, ...], str]] = []
        self._rank, self._size = rank, request.world
        self._wires, self._side = wires, side
        local = request.local_world
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(request.world), LOCAL_RANK=str(rank % local), GROUP_RANK=str(rank // local),
            LOCAL_WORLD_SIZE=str(local), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", NODE_RANK=str(rank // local),
        )  # fmt: skip

    def install(self) -> None:
        """Let torch.distributed create groups that do nothing, and record what they are asked."""
        self._install_groups()
        self._install_objects()
        joined, wires = self._wires.joined, self._wires

        def wait(work: FakeWork, timeout: Any = None) -> bool:
            joined(work)
            return True

        put(FakeWork, wait=wait, synchronize=lambda work: joined(work), block_current_stream=lambda work: joined(work))
        put(FakeProcessGroup, supports_coalescing=property(lambda group: True))
        put(
            dist.ProcessGroup, _start_coalescing=lambda group, device: wires.begin_batch(),
            _end_coalescing=lambda group, device: wires.end_batch(),
        )  # fmt: skip
        wires.host_messages, wires.broadcast = self._host_message, self._broadcast

    def _install_groups(self) -> None:
        create, start = c10d._new_group_with_tag, c10d.init_process_group
        rank, size, created = self._rank, self._size, self.created

        @functools.wraps(create)
        def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *others: Any, **more: Any) -> Any:
            created.append((tuple(range(size) if ranks is None else ranks), more.get("group_desc") or ""))
            return create(ranks, timeout, _FAKE, None, *others[1:], **{**more, "device_id": None})

        @functools.wraps(start)
        def init_process_group(backend: Any = None, *others: Any, **more: Any) -> None:
            start(_FAKE, rank=rank, world_size=size, store=dist.HashStore())

        replace(create, "_new_group_with_tag", new_group)
        replace(start, "init_process_group", init_process_group)
        replace(c10d.barrier, "barrier", self._barrier)
        replace(c10d.monitored_barrier, "monitored_barrier", self._barrier)
        replace(c10d.is_nccl_available, "is_nccl_available", lambda: True)
        replace(c10d._set_pg_timeout, "_set_pg_timeout", lambda *arguments, **others: None)  # NCCL's would be told
        if not hasattr(dist, "set_timeout"):
            put(dist, set_timeout=lambda *arguments, **others: None)

    def _barrier(self, group: Any = None, *others: Any, async_op: bool = False, **more: Any) -> Any:
        work = self._wires.barrier({"process_group": group or c10d._get_default_group()})
        return FakeWork() if async_op and work is not None else None

    def _install_objects(self) -> None:
        replace(c10d.all_gather_object, "all_gather_object", self._all_gather_object)
        replace(c10d.gather_object, "gather_object", self._gather_object)
        replace(c10d.broadcast_object_list, "broadcast_object_list", self._broadcast_object_list)
        replace(c10d.send_object_list, "send_object_list", self._send_object_list)
        replace(c10d.recv_object_list, "recv_object_list", self._recv_object_list)

    def _all_gather_object(self, object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * len(object_list)

    def _gather_object(self, obj: Any, object_gather_list: Any = None, *others: Any, **more: Any) -> None:
        if object_gather_list:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def _broadcast_object_list(
        self, object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
        group_src: int | None = None,
    ) -> None:  # fmt: skip
        group = group or c10d._get_default_group()
        source = dist.get_global_rank(group, group_src) if group_src is not None else (src or 0)
        if source == _FIRST:
            object_list[:] = self._said_by_first(f"objects {group.group_name}", list(object_list))

    def _broadcast(self, value: torch.Tensor, root: int, group: Any) -> torch.Tensor | None:
        """Return a small tensor as the root has it; None where the root is not the rank that is always captured."""
        source = dist.get_process_group_ranks(group)[root]
        if source != _FIRST:
            return value if source == self._rank else None
        if value.numel() > _MOST_ENTRIES:
            return value
        found = self._said_by_first(f"tensors {group.group_name}", value.numpy())
        return torch.from_numpy(found).reshape(value.shape)

    def _said_by_first(self, topic: str, value: Any) -> Any:
        if self._rank != _FIRST:
            return self._side.published(topic, _FIRST)
        self._side.publish(topic, value)
        return value

    def _send_object_list(
        self, object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
        group_dst: int | None = None, use_batch: bool = False,
    ) -> None:  # fmt: skip
        group = group or c10d._get_default_group()
        self._side.send(group.group_name, self._peer(group, dst, group_dst), list(object_list))

    def _recv_object_list(
        self, object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
        group_src: int | None = None, use_batch: bool = False,
    ) -> int:  # fmt: skip
        group = group or c10d._get_default_group()
        peer = self._peer(group, src, group_src)
        object_list[:] = self._side.receive(group.group_name, peer)
        return peer

    def _peer(self, group: Any, rank: int | None, place: int | None) -> int:
        return rank if rank is not None else dist.get_global_rank(group, place)  # type: ignore[arg-type]

    def _host_message(self, name: str, given: dict[str, Any], group: Any) -> bool:
        """Send or receive tensors of the host."""
        key = "dst" if name == "send" else "src"
        peer = dist.get_global_rank(group, given[key])
        if name == "send":
            self._side.send(group.group_name, peer, [one.numpy() for one in given["tensors"]])
        else:
            for out, found in zip(given["tensors"], self._side.receive(group.group_name, peer), strict=True):
                out.copy_(torch.from_numpy(found))
        return True
