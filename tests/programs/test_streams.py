"""Streams of a program: kernels on several, one for several groups, issue order of a communicator, older files."""

import itertools
import json

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.programs import Collective, Compute, Program, RankGroups, Role, Wait
from rostam_py.report.report import run_page
from rostam_py.simulation.detail import run_detail
from tests.programs.sample import machine, torus

# Of a ring of four: 6 steps of 1 MiB at 50 GB/s and 500 ns.
STEP_S = 2**20 / 50e9 + 500e-9
QUIET = {"launch_latency": 0.0, "min_kernel_time": 0.0, "comm_compute_fraction": 0.0}


def ring(name, **fields):
    return Collective(
        name=name, collective="all_reduce", num_bytes="4 MiB", algorithm="ring", **{"group": "dp", **fields}
    )  # fmt: skip


def simulated(steps, tmp_path=None, groups=("dp",), after="stream", iterations=1, **options):
    program = Program(
        name="streams", num_ranks=4, groups={label: RankGroups(kind="dp") for label in groups},
        roles={"all": Role(phases={"iteration": tuple(steps)}, after=after)},
    )  # fmt: skip
    if tmp_path is not None:
        program.save(tmp_path / "program.json")
        program = Program.load(tmp_path / "program.json")
    return rostam.simulate(
        program.on(machine(4, **QUIET)), min_iterations=iterations, max_iterations=iterations, timeline=True, **options
    )


def timeline(result, tmp_path):
    """Return the slices of rank 0 in a saved timeline: name -> (stream, start [s], end [s])."""
    result.save_timeline(str(tmp_path / "timeline.json"))
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0}
    return {
        e["name"]: (threads[e["tid"]], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6)
        for e in events
        if e["ph"] == "X" and e["pid"] == 0
    }


def close(seconds):
    return pytest.approx(seconds, rel=1e-6, abs=1e-11)


def test_copies_of_a_side_stream_share_the_device_with_compute(tmp_path):
    # FSDP2's first block: copy in on its own stream, gather on its own, then the block; block 2's copy beside block 1.
    steps = [
        Compute(name="copy 1", time=100e-6, stream="copy-in"),
        ring("gather 1", stream="gather", after=("copy 1",)),
        Compute(name="copy 2", time=100e-6, stream="copy-in", after=("gather 1",)),
        Compute(name="block 1", time=300e-6, after=("gather 1",)),
        ring("gather 2", stream="gather", after=("copy 2",)),
        Compute(name="block 2", time=300e-6, after=("gather 2",)),
    ]
    result = simulated(steps, tmp_path)
    found = timeline(result, tmp_path)
    ready = 100e-6 + 6 * STEP_S
    # Both begin at once, each at half speed: the copy ends 200 us later, when block 1 has 200 us left.
    assert found["copy 2"] == ("copy-in", close(ready), close(ready + 200e-6))
    assert found["block 1"] == ("compute", close(ready), close(ready + 400e-6))
    assert found["gather 2"] == ("gather", close(ready + 200e-6), close(ready + 200e-6 + 6 * STEP_S))
    end = ready + max(400e-6, 200e-6 + 6 * STEP_S) + 300e-6
    assert found["block 2"] == ("compute", close(end - 300e-6), close(end))
    assert result.first_iteration_s == close(end)
    # The parts sum to the iteration, and what computes took all of its work.
    assert sum(result.breakdown.values()) == close(end)
    assert result.breakdown["compute"] == close(800e-6)
    assert result.breakdown["dp"] == close(end - 800e-6)
    assert sum(one.duration_s for one in result.critical_path()) == close(end)


def test_a_synchronous_collective_is_in_the_compute_stream(tmp_path):
    steps = [Compute(name="a", time=1e-3), ring("sum", stream="compute"), Compute(name="b", time=1e-3)]
    found = timeline(simulated(steps, tmp_path), tmp_path)
    assert found["sum"] == ("compute", close(1e-3), close(1e-3 + 6 * STEP_S))
    assert found["b"] == ("compute", close(1e-3 + 6 * STEP_S), close(2e-3 + 6 * STEP_S))
    # On the communicator's own stream nothing waits for it.
    apart = [steps[0], ring("sum"), steps[2]]
    found = timeline(simulated(apart, tmp_path), tmp_path)
    assert found["sum"][:2] == ("dp", close(0))
    assert found["b"][:2] == ("compute", close(1e-3))


def test_one_stream_of_two_groups_and_a_kernel(tmp_path):
    steps = [
        ring("first", stream="side"), Compute(name="copy", time=1e-3, stream="side"),
        ring("second", group="ep", stream="side"), Wait(after=("second",)),
    ]  # fmt: skip
    found = timeline(simulated(steps, tmp_path, groups=("dp", "ep")), tmp_path)
    assert found["first"] == ("side", close(0), close(6 * STEP_S))
    assert found["copy"] == ("side", close(6 * STEP_S), close(6 * STEP_S + 1e-3))
    assert found["second"] == ("side", close(6 * STEP_S + 1e-3), close(12 * STEP_S + 1e-3))


@pytest.mark.parametrize("fidelity", ["flow", "packet"])
def test_collectives_of_one_communicator_run_in_issue_order_on_two_streams(tmp_path, fidelity):
    steps = [
        Compute(name="a", time=1e-3), ring("reduce", stream="reduce", after=("a",)), ring("gather", stream="gather"),
        Wait(after=("reduce", "gather")),
    ]  # fmt: skip
    found = timeline(simulated(steps, tmp_path, fidelity=fidelity), tmp_path)
    assert found["reduce"][:2] == ("reduce", close(1e-3))
    assert found["gather"][:2] == ("gather", close(found["reduce"][2]))
    # Two communicators of the same ranks go their own ways.
    apart = [steps[0], steps[1], ring("gather", group="ep", stream="gather"), steps[3]]
    assert timeline(simulated(apart, tmp_path, groups=("dp", "ep"), fidelity=fidelity), tmp_path)["gather"][1] == 0


def test_folded_and_unfolded_runs_and_shortcuts_agree():
    steps = [
        Compute(name="a", time=1e-3), ring("reduce", stream="reduce", after=("a",)), ring("gather", stream="gather"),
        Compute(name="b", time=2e-3, stream="side"), ring("sum", stream="compute"), Compute(name="c", time=1e-3),
        Wait(after=(1, 2, 3)),
    ]  # fmt: skip
    ways = itertools.product((True, False), (True, False))
    times = {simulated(steps, iterations=4, fold=f, shortcuts=s).iteration_times_s for f, s in ways}
    assert len(times) == 1


def test_a_named_point_of_a_stream_is_an_event(tmp_path):
    # The stream's later kernel waits for the point; the compute stream goes on.
    steps = [
        Compute(name="a", time=1e-3), Wait(name="event", stream="side", after=("a",)),
        Compute(name="copy", time=1e-3, stream="side"), Compute(name="b", time=1e-3),
    ]  # fmt: skip
    found = timeline(simulated(steps, tmp_path), tmp_path)
    assert found["copy"] == ("side", close(1e-3), close(3e-3))
    assert found["b"] == ("compute", close(1e-3), close(3e-3))


def test_files_of_the_first_version_mean_what_they_meant(tmp_path):
    one = {"kind": "collective", "collective": "all_reduce", "num_bytes": 8, "group": "world", "stream": "s"}
    document = {
        "format": "rostam-program", "version": 1, "name": "old", "num_ranks": 4, "groups": {"world": {}},
        "roles": {"all": {"steps": [one, one]}},
    }  # fmt: skip
    path = tmp_path / "program.json"
    path.write_text(json.dumps(document))
    assert rostam.simulate(Program.load(path).on(rostam.Machine(fabric=torus(4)))).iteration_time_s > 0
    document["roles"]["all"]["steps"][1] = one | {"stream": "t"}
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"program.json: groups.world communicate on several streams, which ran at"):
        Program.load(path)
    path.write_text(json.dumps(document | {"version": 2}))
    Program.load(path)


def test_a_host_that_waits_launches_later_steps_of_all_streams_late(tmp_path):
    # The host launches a at 10 us, then waits until a has ended; b and c, of two streams, are 10 and 20 us behind that.
    # Without the wait both are launched long before.
    steps = [
        Compute(name="a", time=1e-3), Wait(name="item", host=True), Compute(name="b", time=1e-3, stream="side"),
        Compute(name="c", time=1e-3),
    ]  # fmt: skip
    program = Program(name="host", num_ranks=4, roles={"all": Role(phases={"iteration": tuple(steps)}, after="stream")})
    program.save(tmp_path / "program.json")
    program = Program.load(tmp_path / "program.json")
    slow = machine(4, **QUIET, host_launch=10e-6, host_sync="none")
    found = timeline(rostam.simulate(program.on(slow), min_iterations=1, max_iterations=1, timeline=True), tmp_path)
    assert found["a"][1:] == (close(10e-6), close(1.01e-3))
    assert found["b"][1] == close(1.02e-3)
    assert found["c"][1] == close(1.03e-3)
    assert not any("have the host wait" in note for note in program.on(slow).notes)
    # c ran 10 us less with b than b ran: 10 us alone, the rest at half speed, 10 us alone at the end.
    assert found["b"][2] == close(1.02e-3 + 10e-6 + 2 * 0.99e-3)
    ideal = program.on(machine(4, **QUIET))
    assert any(note.startswith("1 steps have the host wait, which delays no launch here") for note in ideal.notes)
    assert timeline(rostam.simulate(ideal, max_iterations=1, min_iterations=1, timeline=True), tmp_path)["b"][1] == 0


def test_the_page_names_the_streams_as_the_program_does():
    steps = [
        Compute(name="copy 1", time=100e-6, stream="copy-in"), ring("gather 1", stream="gather", after=("copy 1",)),
        Compute(name="block", time=300e-6, after=("gather 1",)), Compute(time=50e-6, stream="copy-in"),
    ]  # fmt: skip
    detail = run_detail(simulated(steps))
    assert detail["streams"] == [
        {"role": "all", "stream": "copy-in", "num_tasks": 2, "kernels_s": 150e-6, "num_bytes": 0},
        {"role": "all", "stream": "gather", "num_tasks": 1, "kernels_s": 0.0, "num_bytes": 4 * 2**20},
        {"role": "all", "stream": "compute", "num_tasks": 1, "kernels_s": 300e-6, "num_bytes": 0},
    ]
    (table,) = (one for one in run_page(detail).tables if one.name == "streams")
    assert [row[:3] for row in table.rows] == [["all", "copy-in", "2"], ["all", "gather", "1"], ["all", "compute", "1"]]
    # A program that names none has no table.
    assert run_detail(simulated([Compute(time=1e-3)], groups=()))["streams"] == []


def test_a_program_says_how_its_code_runs(tmp_path):
    # 100 kernels of 1 us, one behind the other, each launched by eager code in 10 us: the last ends at 1,001 us.
    steps = tuple(Compute(name=f"kernel {k}", time=1e-6) for k in range(100))
    roles = {"all": Role(phases={"iteration": steps}, after="stream")}
    Program(name="small kernels", num_ranks=4, roles=roles, host="eager").save(tmp_path / "program.json")
    program = Program.load(tmp_path / "program.json")

    def taken_s(**fields):
        placed = program.on(machine(4, **QUIET, **fields))
        return rostam.simulate(placed, min_iterations=1, max_iterations=1).first_iteration_s

    assert taken_s() == close(1001e-6)
    assert taken_s(host_launch="20 us") == close(2001e-6)
    assert taken_s(host_launch=0.0) == close(100e-6)
    with pytest.raises(ConfigError, match="host is 'graph'; it must be one of: graphs, compiled, eager"):
        Program(name="small kernels", num_ranks=4, roles=roles, host="graph")
