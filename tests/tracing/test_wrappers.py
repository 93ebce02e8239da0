"""Wrapped modules are refused by the wrapper's name, with the keys of a strategy that replace it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, SplitPoint, pipeline
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from rostam_py.errors import TracingError
from rostam_py.tracing import trace
from rostam_py.tracing.sources import load_source

X = torch.zeros(2, 8)


@pytest.fixture(autouse=True)
def fake_ranks() -> Iterator[None]:
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    distributed.destroy_process_group()


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def _mesh() -> Any:
    return init_device_mesh("cpu", (2,))


def _with_dtensor() -> nn.Module:
    module = nn.Linear(8, 8)
    module.weight = nn.Parameter(distribute_tensor(module.weight, _mesh(), [Shard(0)]))
    return module


def _stage() -> PipelineStage:
    return PipelineStage(_net(), 0, 2, torch.device("cpu"))


WRAPPED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "DDP": (lambda: DistributedDataParallel(_net()), "DistributedDataParallel", r"set strategy\.dp$"),
    "DataParallel": (lambda: nn.DataParallel(_net()), r"torch\.nn\.DataParallel", r"set strategy\.dp$"),
    "FSDP": (lambda: FullyShardedDataParallel(_net(), device_id=torch.device("cpu")), "FSDP", r"strategy\.shard=3"),
    "FSDP2": (lambda: fully_shard(_net(), mesh=_mesh()), r"fully_shard \(FSDP2\)", r"strategy\.shard=3"),
    "DTensor": (_with_dtensor, "'weight' of Linear is a DTensor", r"strategy\.tp .* strategy\.shard=3"),
    "tensor parallel": (
        lambda: parallelize_module(_net(), _mesh(), {"0": ColwiseParallel()}),
        "'0.weight' of Sequential is a DTensor, made by parallelize_module",
        r"strategy\.tp",
    ),
    "stage": (_stage, "PipelineStage", r"strategy\.pp .*strategy\.schedule"),
    "schedule": (lambda: ScheduleGPipe(_stage(), 2), "a schedule of torch's pipelining", r"strategy\.pp"),
    "pipeline": (
        lambda: pipeline(_net(), (X,), split_spec={"1": SplitPoint.BEGINNING}),
        r"torch\.distributed\.pipelining\.pipeline",
        r"strategy\.pp",
    ),
    "script": (lambda: torch.jit.script(_net()), r"made by torch\.jit\.script", "Pass the module that was compiled"),
    "compiled DDP": (lambda: torch.compile(DistributedDataParallel(_net())), "DistributedDataParallel", "strategy.dp"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_module_is_refused_by_name(name: str) -> None:
    make, wrapper, instead = WRAPPED[name]
    with pytest.raises(TracingError, match=rf"(?s){wrapper}.*{instead}"):
        trace(make(), X)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["DDP", "FSDP2", "script"])
def test_a_wrapper_inside_is_named_with_its_path(name: str) -> None:
    make, wrapper, instead = WRAPPED[name]
    with pytest.raises(TracingError, match=rf"(?s)'1' of Sequential is .*{wrapper}.*{instead}"):
        trace(nn.Sequential(nn.Linear(8, 8), make()), X)


def test_a_file_that_makes_a_stage_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "stage.py"
    path.write_text(
        "import torch\nfrom torch import nn\nfrom torch.distributed.pipelining import PipelineStage\n"
        "def build():\n    return PipelineStage(nn.Linear(8, 8), 0, 2, torch.device('cpu'))\n"
    )
    with pytest.raises(TracingError, match=r"build\(\) in .*stage\.py' is wrapped by PipelineStage.*strategy\.pp"):
        load_source(f"{path}:build")


@pytest.mark.filterwarnings("ignore")
def test_compiled_and_traced_modules_are_the_programs_they_were() -> None:
    plain = trace(_net(), X)
    for made in (torch.compile(_net()), torch.jit.trace(_net(), X), nn.Sequential(torch.compile(_net()))):
        assert trace(made, X).forward_flops(1) == plain.forward_flops(1)
