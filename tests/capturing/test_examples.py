"""The scripts of examples/: captured, written to a file and timed, each by the commands that a user types."""

import pytest

import rostam_py as rostam
from rostam_py.cli.main import main
from tests.capturing.captured import EXAMPLES

SCRIPTS = {"ddp": 16, "fsdp2": 16, "tensor_parallel": 16, "pipeline": 4}


@pytest.mark.parametrize(("name", "world"), SCRIPTS.items())
def test_an_example_is_captured_and_timed(name, world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["capture", "--world", str(world), "--out", "program.json.gz", "--", "python", str(EXAMPLES / f"{name}.py")]
    assert main(words) == 0
    assert f"{name}: {world} ranks" in capsys.readouterr().out
    servers = max(1, world // 8)
    assert main(["run", "program=program.json.gz", "machine=dgx_h100", f"machine.servers={servers}", "out=run"]) == 0
    program = rostam.Program.load("program.json.gz")
    assert sum(len(role.ranks or ()) for role in program.roles.values()) >= 1
    assert all(role.memory_bytes > 2**20 for role in program.roles.values())


def train():
    """Train as a script does: what rostam.capture is given as a function."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl")
    weight = torch.nn.Parameter(torch.ones(64, 64, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(3):
        (torch.ones(8, 64, device="cuda") @ weight).sum().backward()
        dist.all_reduce(weight.grad)
        optimizer.step()
        optimizer.zero_grad()


def test_a_function_is_captured_as_a_script_is(tmp_path, monkeypatch):
    """It is imported by its module's name in other processes, which find modules as this one does."""
    (tmp_path / "training.py").write_text(f"import sys\n{_source_of(train)}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import training

    program = rostam.capture(training.train, world=8)
    assert [(one.kind, one.num_bytes, one.count) for one in program.messages()] == [("all_reduce", 4 * 64 * 64, 1)]


def _source_of(function):
    import inspect

    return inspect.getsource(function)
