"""``rostam run program=FILE``: a head, a run folder, a timeline and a report, as of a plan; keys that do not fit."""

import json

import pytest

import rostam_py as rostam
from rostam_py.cli.main import main
from tests.programs.sample import RING, machine

TORUS = ("fabric=torus", "fabric.dims=[8]", "fabric.link_bandwidth=50 GB/s", "fabric.link_latency=500 ns")


@pytest.fixture
def ring(tmp_path):
    path = tmp_path / "ring.json"
    path.write_text(RING)
    return path


def test_a_program_is_printed_written_and_drawn(ring, tmp_path, capsys):
    pytest.importorskip("polars")
    out = tmp_path / "run"
    assert main(["run", f"program={ring}", *TORUS, "timeline=true", "report=true", f"out={out}"]) == 0
    printed = capsys.readouterr().out
    for words in ("one all_reduce on torus", "8 x a100_80gb", "worker (8 ranks)", "43.7 us", "all_reduce ring"):
        assert words in printed
    assert {path.name for path in out.iterdir()} >= {
        "config.yaml", "detail.json.gz", "notes.txt", "report.html", "result.json", "run.json", "timeline.json",
    }  # fmt: skip
    result = json.loads((out / "result.json").read_text())
    assert result["iteration_time_s"] == pytest.approx(43.70016e-6, rel=1e-12)
    assert result["roles"] == [{"name": "worker", "num_ranks": 8, "memory_bytes": 0}]
    assert "one all_reduce on torus" in (out / "report.html").read_text()


def test_the_command_says_what_python_does(ring, capsys):
    assert main(["run", f"program={ring}", *TORUS, "routing=hash", "fold=false", "--json"]) == 0
    own = json.loads(capsys.readouterr().out)
    result = rostam.simulate(rostam.Program.load(ring).on(machine()), routing="hash", fold=False)
    assert {key: own[key] for key in result.to_dict()} == json.loads(result.to_json())


@pytest.mark.parametrize("fidelity", ["flow", "packet"])
def test_a_program_runs_on_every_tier(ring, fidelity, capsys):
    assert main(["run", f"program={ring}", *TORUS, f"fidelity={fidelity}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iteration_time_s"] == pytest.approx(43.70016e-6, rel=0.05)


def test_a_program_meets_failures(ring, capsys):
    slower = ["outages.events=[{kind: links, number: 0, time: 100 us, repair: 1 ms}]", "outages.iterations=10"]
    assert main(["run", f"program={ring}", *TORUS, *slower, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["outages"]
    assert found["total_s"] > found["without_s"]
    failed = ["failures.links=1", "failures.seed=3"]
    assert main(["run", f"program={ring}", *TORUS, *failed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iteration_time_s"] > 43.70016e-6


def test_a_saved_plan_of_a_run_is_a_program_with_its_time(tmp_path, capsys):
    fabric = ("fabric=torus", "fabric.dims=[2,2]", "accelerator=h100_80gb")
    planned, again = tmp_path / "planned", tmp_path / "again"
    given = ("model=gpt_125m", "global_batch=32", "strategy.tp=2", "software=ideal", "save_program=true")
    assert main(["run", *given, *fabric, f"out={planned}"]) == 0
    assert main(["run", f"program={planned / 'program.json'}", *fabric, f"out={again}"]) == 0
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (planned, again))
    for key in ("iteration_times_s", "breakdown_s", "bytes_sent", "memory_bytes"):
        assert first[key] == second[key]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "model=gpt_125m",
            "needs a model that rostam places; a program has its own ranks and kernels; leave out",
        ),
        ("strategy.tp=2", "'strategy.tp=2' needs a model that rostam places"),
        ("software=torchtitan", "needs a model that rostam places"),
        ("convergence=resnet50_mlperf", "needs a model that rostam places"),
        ("outages.shrink=keep", "with program it must be null"),
        ("fabric.dims=[4]", "program 'one all_reduce' has 8 ranks; the machine has 4 accelerators that work"),
    ],
)
def test_keys_that_do_not_fit_a_program_are_refused(ring, override, said, capsys):
    given = [one for one in TORUS if not one.startswith(override.partition("=")[0])]
    assert main(["run", f"program={ring}", *given, override]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_two_programs_are_compared(ring, capsys):
    sides = (f"program={ring} {' '.join(TORUS[:2])}", f"program={ring} fabric=torus fabric.dims=[2,4]")
    assert main(["compare", *sides, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["a"]["model"] == document["b"]["model"] == "one all_reduce"
    assert main(["compare", *sides, "strategy.tp=2"]) == 2
    assert "needs a model that rostam places" in capsys.readouterr().err


def test_what_a_program_cannot_say_is_refused_before_the_simulation(tmp_path, capsys):
    given = ("model=gpt_125m", "fabric=torus", "fabric.dims=[8]", "strategy.max_circuit_degree=7", "software=ideal")
    assert main(["run", *given, "save_program=true", f"out={tmp_path / 'out'}"]) == 2
    assert "max_circuit_degree" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_task_graph_names_the_key_that_it_cannot_have(ring, tmp_path, capsys):
    path = tmp_path / "tasks.json"
    rostam.TaskGraph.of(rostam.Program.load(ring).on(machine())).save(path)
    assert main(["run", f"task_graph={path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iteration_time_s"] == pytest.approx(43.70016e-6, rel=1e-12)
    assert main(["run", f"task_graph={path}", f"program={ring}"]) == 2
    assert "leave out" in capsys.readouterr().err


STAGES = {
    "format": "rostam-program", "version": 2, "name": "two stages", "num_ranks": 8,
    "groups": {"all": {"kind": "dp"}, "pp": {"kind": "pp", "size": 2, "stride": 4}},
    "kernels": {"up": {"time": "2 ms", "op": "aten.mm.default"}, "down": {"time": "1 ms", "op": "aten.mm.default"}},
    "roles": {
        "first": {"ranks": ["0-3"], "phases": {"run": [
            {"kind": "compute", "kernels": ["up"]},
            {"kind": "send", "channel": "x", "num_bytes": 1000, "group": "pp", "peer": 1},
        ]}, "iteration": [{"run": ["run"], "times": 3}]},
        "last": {"ranks": ["4-7"], "phases": {"run": [
            {"kind": "recv", "channel": "x", "num_bytes": 1000, "group": "pp", "peer": -1},
            {"kind": "compute", "kernels": ["up", "down"]},
        ]}, "iteration": [{"run": ["run"], "times": 3}]},
    },
}  # fmt: skip


def test_what_ranks_run_is_compared_where_a_side_is_a_program(ring, tmp_path, capsys):
    """Half of the ranks send three messages and launch three kernels of 2 ms, half launch these and three of 1 ms."""
    path = tmp_path / "stages.json"
    path.write_text(json.dumps(STAGES))
    assert main(["compare", f"program={ring}", f"program={path}", *TORUS, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {name: {row["name"]: (row["a"], row["b"]) for row in document[name]} for name in ("messages", "kernels")}
    assert rows["messages"] == {
        "all_reduce of 1,048,576 B among 8": (1.0, 0.0), "send of 1,000 B": (0.0, 1.5), "recv of 1,000 B": (0.0, 1.5),
    }  # fmt: skip
    assert rows["kernels"] == {"aten.mm.default": (0.0, 4.5)}
    assert [row["b"] for row in document["kernels_s"]] == pytest.approx([0.5 * 3 * 2e-3 + 0.5 * 3 * 3e-3])


@pytest.mark.usefixtures("cached_traces")
def test_a_plan_and_the_program_of_it_run_the_same(tmp_path, capsys):
    fabric = ("fabric=torus_8x8", "fabric.dims=[2,4]")
    given = "model=gpt_125m global_batch=32 strategy.tp=2 software=ideal"
    folder = tmp_path / "plan"
    assert main(["run", *given.split(), *fabric, "save_program=true", f"out={folder}"]) == 0
    capsys.readouterr()
    assert main(["compare", f"program={folder / 'program.json'}", given, *fabric]) == 0
    assert "messages of a rank (mean) in an iteration" in capsys.readouterr().out
    assert main(["compare", f"program={folder / 'program.json'}", given, *fabric, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for name in ("messages", "kernels", "kernels_s"):
        assert document[name]
        assert [row["difference"] for row in document[name]] == pytest.approx([0.0] * len(document[name]), abs=1e-9)
