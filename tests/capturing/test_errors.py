"""What is refused before or after a program runs, with what is wrong and what to do."""

import json
import re
import subprocess
import textwrap
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import rostam_py as rostam
from rostam_py.capturing import host, library
from rostam_py.capturing.expert_loads import counts_of, read_loads
from rostam_py.capturing.gpus import gpu_of
from rostam_py.capturing.records import error_of
from rostam_py.errors import ConfigError
from tests.capturing.captured import document

TRAINING = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
weight = torch.nn.Parameter(torch.ones(8, 8, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range({steps}):
    x = torch.ones({rows}, 8, device="cuda")
    {before}
    (x @ weight).sum().backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
    optimizer.zero_grad()
"""


def script(folder: Path, *, steps: int = 4, rows: str = "4", before: str = "pass") -> Path:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(TRAINING.format(steps=steps, rows=rows, before=before)))
    return path


def test_a_program_that_ends_early_is_told_the_step(tmp_path):
    with pytest.raises(ConfigError, match=r"ended after 2 steps, but step is 3: let it train longer; --step is"):
        document(script(tmp_path, steps=2), 8)


def test_a_step_that_does_not_repeat_names_the_first_row_that_differs(tmp_path):
    said = r"step 3 of rank 0 is not step 2 once more: row 0 is aten.ones.default that makes \[6, 8\] \(at .*train.py:7"
    with pytest.raises(ConfigError, match=said):
        document(script(tmp_path, rows="step + 4"), 8, step=3)


def test_a_program_that_fails_is_told_with_its_line_and_words(tmp_path):
    path = script(tmp_path, before="print('about to fail'); x.view(3, 3)")
    with pytest.raises(ConfigError, match=r"(?s)rank \d of 8: the program fails: .*train.py:8.*about to fail.*Error"):
        document(path, 8)


def test_a_shape_that_depends_on_data_is_named_with_its_line(tmp_path):
    with pytest.raises(
        ConfigError, match=r"nonzero.* of \[4, 8\] makes a tensor whose shape depends on data.*train.py:8"
    ):
        document(script(tmp_path, before="x.nonzero()"), 8)


def test_uneven_ranks_become_roles_of_their_own(tmp_path):
    """Ranks from 5 on compute more: the first of them is found by halving."""
    program = document(script(tmp_path, rows="4 if dist.get_rank() < 5 else 6"), 8)
    assert {name: one["ranks"] for name, one in program["roles"].items()} == {
        "ranks from 0": ["0-4"], "ranks from 5": ["5-7"],
    }  # fmt: skip


def test_named_ranks_stand_for_those_that_follow(tmp_path):
    program = document(script(tmp_path, rows="4 if dist.get_rank() < 5 else 6"), 8, ranks=(0, 6))
    assert {name: one["ranks"] for name, one in program["roles"].items()} == {
        "ranks from 0": ["0-5"], "ranks from 6": ["6-7"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        (["python", "no_such.py"], {"world": 8}, "no_such.py is not there"),
        (["python"], {"world": 8}, "it must be a command line, such as: python train.py"),
        (["accelerate", "launch", "x.py"], {"world": 8}, "started by accelerate, whose words capture does not read"),
        (["python", __file__], {}, "world is not given"),
        (["python", __file__], {"world": 0}, "world is 0; it must be an integer >= 1"),
        (["python", __file__], {"world": 8, "step": 2}, "step is 2; it must be an integer >= 3"),
        (["python", __file__], {"world": 8, "ranks": [8]}, "ranks has 8; ranks of the program are 0 to 7"),
        (["python", __file__], {"world": 8, "gpu": "tpu_v4_32gb"}, "capture has a device of CUDA, and takes one of"),
        (["torchrun", "--nproc-per-node", "0", __file__], {}, "--nproc-per-node is '0'"),
        (["torchrun", "--nproc-per-node", "4", __file__], {"world": 8}, "but torchrun's words start 4 ranks"),
    ],
)
def test_wrong_words_and_settings_are_refused_before_anything_runs(words, settings, said):
    with pytest.raises(ConfigError) as caught:
        rostam.capture(words, **settings)
    assert said in str(caught.value)


def test_functions_must_be_importable():
    with pytest.raises(ConfigError, match="has to stand at the top of a module or script"):
        rostam.capture(lambda: None, world=8)


@pytest.mark.parametrize("version", ["2.12.1", "2.14.0+cpu", "1.13"])
def test_other_releases_of_torch_are_refused(version, tmp_path):
    with pytest.raises(ConfigError, match=rf"torch is {re.escape(version)}; capture needs torch >= 2.13, < 2.14"):
        library.check_torch(library.Torch(tmp_path, version))


def test_a_torch_with_a_device_of_its_own_is_refused(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cuda.so").touch()
    with pytest.raises(ConfigError, match="is built for CUDA, whose device capture would replace"):
        library.check_torch(library.Torch(tmp_path, "2.13.0"))


def test_the_compiler_says_why_it_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("ROSTAM_CACHE_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"(?s)cannot compile fake_device.cpp against torch 2.13.9; it says:.*ATen"):
        library.library_of(library.Torch(tmp_path / "no_torch", "2.13.9"))
    monkeypatch.setenv("CXX", "no_such_compiler")
    with pytest.raises(ConfigError, match=r"finds no C\+\+20 compiler \(no_such_compiler\)"):
        library.library_of(library.Torch(tmp_path, "2.13.9"))
    assert list(tmp_path.rglob("*.partial")) == []


def test_the_library_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ROSTAM_CACHE_DIR", str(tmp_path))
    compiled = []

    def compiler(words, **settings):
        compiled.append(words)
        Path(words[words.index("-o") + 1]).write_bytes(b"")
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(library.subprocess, "run", compiler)
    torch = library.Torch(tmp_path, "2.13.0")
    assert library.library_of(torch) == library.library_of(torch)
    assert len(compiled) == 1


def test_devices_say_what_they_are():
    one = gpu_of("a100")
    assert (one.name, one.capability, one.memory_bytes) == ("NVIDIA A100 80GB", (8, 0), 80 * 2**30)


def test_loads_of_experts_are_read_and_shared_out(tmp_path):
    path = tmp_path / "loads.json"
    path.write_text(json.dumps([4, 2, 1, 1]))
    assert read_loads("balanced") == ()
    assert counts_of(read_loads(path), 16) == [8, 4, 2, 2]
    assert counts_of((1.0, 1.0, 1.0), 8) == [3, 3, 2]
    path.write_text("[1, -1]")
    with pytest.raises(ConfigError, match="must hold a list of numbers >= 0, the share of every expert"):
        read_loads(path)
    with pytest.raises(ConfigError, match="it must be 'balanced' or a JSON file"):
        read_loads(tmp_path / "none.json")


def test_a_step_that_does_something_once_is_passed_over(tmp_path):
    """The third step alone does more than the others: the fifth is the first that is the one before once more."""
    program = document(script(tmp_path, steps=7, rows="6 if step == 2 else 4"), 8, ranks=(0,))
    assert program["description"].startswith("Step 5 of ")


def test_notes_name_lines_that_read_unknown_values_and_compiled_functions(tmp_path):
    before = "y = torch.compile(lambda z: z + 1)(x); print(float(y.sum()))"
    said = document(script(tmp_path, before=before), 8, ranks=(0,))["description"]
    assert f"Values that are not known were read, as 1, at {tmp_path / 'train.py'}:8" in said
    assert "1 calls of compiled functions run their ops one by one" in said


@pytest.mark.parametrize("made", ["torch.cuda.CUDAGraph()", "torch.cuda.graph_pool_handle()"])
def test_cuda_graphs_are_refused_by_name(made, tmp_path):
    with pytest.raises(ConfigError, match=r"makes CUDA graphs, which are not captured: switch them off.*train.py:8"):
        document(script(tmp_path, before=made), 8, ranks=(0,))


def test_an_op_without_a_cost_is_never_free(tmp_path):
    path = script(tmp_path, before="torch.special.bessel_j0(x)")
    said = (
        r"1 kernels have no cost: aten.special_bessel_j0.default of \[4, 8\], 1 in a step \(at .*train.py:8\)."
        r" --assume-bandwidth aten.special_bessel_j0.default prices them"
    )
    with pytest.raises(ConfigError, match=said):
        document(path, 8, ranks=(0,))
    kernels = document(path, 8, ranks=(0,), assumed=("aten.special_bessel_j0",))["kernels"].values()
    (assumed,) = [one for one in kernels if "assume" in one]
    assert (assumed["op"], assumed["shapes"], assumed["assume"]) == (
        "aten.special_bessel_j0.default", [[4, 8]], "bandwidth",
    )  # fmt: skip


def test_a_stubbed_kernel_without_a_cost_is_named(tmp_path):
    (tmp_path / "kernels.py").write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef double(a, b, size: tl.constexpr):\n    pass\n"
    )
    path = script(tmp_path, before="import kernels; kernels.double[(1,)](x, weight, size=8)")
    with pytest.raises(ConfigError, match=r"triton:double of \[4, 8\], \[8, 8\], 1 in a step \(at .*train.py:8\)"):
        document(path, 8, ranks=(0,))
    kernels = document(path, 8, ranks=(0,), assumed=("triton:double",))["kernels"].values()
    assert any(one["op"] == "triton:double" and one["assume"] == "bandwidth" for one in kernels if "assume" in one)


class _Folder:
    """A request, as far as processes of ranks ask for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def record_path(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}.json"


def _ask_for_the_next(request: _Folder, rank: int, library: None, pipe: Connection) -> None:
    pipe.send(json.dumps({"ranks": [rank + 1]}))
    time.sleep(60)


def test_one_rank_too_many_ends_all_and_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_MOST_RANKS", 3)
    ranks = host._Ranks(_Folder(tmp_path), None, _ask_for_the_next)
    ranks.start(0)
    ranks.wait()
    assert error_of(tmp_path / "rank-3.json") == "it would be captured as well, but 3 ranks are; name fewer by --ranks"
