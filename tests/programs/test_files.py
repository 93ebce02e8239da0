"""Program files: the ten-line sample by hand, what is written comes back, and errors with place, value and choice."""

import gzip
import json

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError, MemoryCapacityError
from rostam_py.programs import Program
from tests.programs.sample import PIPELINE, RING, machine


def written(tmp_path, **changes):
    path = tmp_path / "program.json"
    path.write_text(json.dumps(json.loads(RING) | changes))
    return path


def ring_with(tmp_path, **changes):
    """Return the sample's file with changes of its only step; None takes a key away."""
    step = json.loads(RING)["roles"]["worker"]["steps"][0] | changes
    return written(
        tmp_path, roles={"worker": {"steps": [{key: value for key, value in step.items() if value is not None}]}}
    )


def refusal(path):
    with pytest.raises(ConfigError) as caught:
        Program.load(path)
    return str(caught.value).removeprefix(f"{path}: ")


def test_ten_lines_are_a_program_whose_time_is_that_of_the_ring(tmp_path):
    path = tmp_path / "ring.json"
    path.write_text(RING)
    assert len(RING.splitlines()) == 10
    result = rostam.simulate(Program.load(path).on(machine()))
    # 2 (8 - 1) steps send 1 MiB / 8 at 50 GB/s, and each begins 500 ns after it was sent.
    step_s = 2**20 / 8 / 50e9 + 500e-9
    assert round(result.iteration_time_s * 1e12) == round(14 * step_s * 1e12) == 43_700_160
    assert f"{result.iteration_time_s * 1e6:.3f} us" == "43.700 us"
    # The first one also waits until it has been launched.
    assert round(result.first_iteration_s * 1e12) == 44_700_160
    assert result.bytes_sent["dp"] == 14 * 2**20
    assert [one["algorithm"] for one in result.algorithms] == ["ring"]
    assert any(
        "role 'worker' ends with all_reduce world, which no compute step waits for" in one for one in result.notes
    )


@pytest.mark.parametrize("name", ["program.json", "program.json.gz"])
def test_what_is_saved_comes_back(tmp_path, name):
    path, again = tmp_path / name, tmp_path / f"again.{name}"
    PIPELINE.save(path)
    loaded = Program.load(path)
    loaded.save(again)
    assert path.read_bytes() == again.read_bytes()
    for key in ("name", "num_ranks", "description", "groups", "kernels", "roles"):
        assert getattr(loaded, key) == getattr(PIPELINE, key)
    text = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    assert json.loads(text)["format"] == "rostam-program"


def test_a_saved_program_is_a_line_for_each_step(tmp_path):
    PIPELINE.save(tmp_path / "program.json")
    lines = (tmp_path / "program.json").read_text().splitlines()
    assert sum('"kind": ' in line and '"name": "two stages"' not in line for line in lines) >= 11
    assert max(map(len, lines)) < 160


def test_a_pipeline_takes_what_its_messages_and_kernels_do():
    # The last stage is busy without a gap from its first activation on. 0 -> 2 and 1 -> 3 go half each way round, so
    # that every link carries two halves; each is two hops of 500 ns.
    quiet = machine(4, launch_latency=0.0, min_kernel_time=0.0, accelerator="h100_80gb")
    placed = PIPELINE.on(quiet)
    layer_s = placed.stages[0].templates["forward"][0].duration_s
    result = rostam.simulate(placed)
    message_s = 8 * 2**20 / 50e9
    hops_s = 2 * 500e-9 + 40e-9  # the accelerator between passes it on
    reduce_s = 2 * (32 * 2**20 / 2 / 50e9 + 500e-9)
    last_s = layer_s + message_s + hops_s + 4 * 4e-3
    first_s = last_s + message_s + hops_s + 3e-3
    assert result.first_iteration_s == pytest.approx(first_s + reduce_s + 2e-3, rel=1e-9)
    assert result.memory_bytes == 20 * 10**9
    assert result.ranks_of_roles == {"first": 2, "last": 2}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "broadcst"}, "roles.worker.steps[0]: a step is a mapping whose kind is one of: compute, wait, coll"),
        ({"num_bytes": "1 MiBs"}, "roles.worker.steps[0]: num_bytes is '1 MiBs'; "),
        ({"num_bytes": 0}, "roles.worker.steps[0]: num_bytes is 0; it must be at least 1 byte"),
        ({"num_bytes": None}, "roles.worker.steps[0]: num_bytes is 0; it must be at least 1 byte"),
        ({"collective": "allreduce"}, "roles.worker.steps[0]: collective is 'allreduce'; it must be one of: "),
        ({"algorithm": "rings"}, "roles.worker.steps[0]: algorithm is 'rings'; of all_reduce it must be one of: auto"),
        ({"groop": "world"}, "roles.worker.steps[0] has an unknown key 'groop'; keys are: name, after, stream, "),
        ({"group": "word"}, "the program is refused: roles.worker.steps[0].group is 'word'; groups are: world"),
        ({"after": [0]}, "the program is refused: roles.worker.steps[0].after has 0; it must be the index of an earl"),
        ({"after": ["x"]}, "the program is refused: roles.worker.steps[0].after names 'x'; earlier steps of the ph"),
        ({"name": 3}, "roles.worker.steps[0].name: input should be a valid string (it is 3)"),
    ],
)
def test_a_wrong_step_is_refused_with_its_place(tmp_path, changes, said):
    assert refusal(ring_with(tmp_path, **changes)).startswith(said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 3}, "has version 3 of rostam-program; this rostam reads 1 and 2"),
        ({"format": "rostam-plan"}, "is not a program saved by rostam: its format is 'rostam-plan'"),
        ({"num_ranks": 0}, "the program is refused: num_ranks is 0; it must be an integer >= 1"),
        ({"num_ranks": 2**31}, "the program is refused: num_ranks is 2147483648"),
        ({"ranks": 8}, "the document has an unknown key 'ranks'; keys are: format, version, name, num_ranks, roles"),
        ({"groups": {"world": {"size": 3}}}, "the program is refused: groups.world has size 3 and stride 1, whose"),
        ({"groups": {"world": {"kind": "ddp"}}}, "groups.world: kind is 'ddp'; it must be one of: cp, dp, ep, "),
        ({"groups": {"world": {"ranks": [[0, 1], [2]]}}}, "the program is refused: groups.world has groups of 1, 2 ra"),
        ({"groups": {"world": {"ranks": [[0, 0]]}}}, "the program is refused: groups.world.ranks[0] names rank 0 more"),
        ({"groups": {"world": {"ranks": [["0-8"]]}}}, "the program is refused: groups.world.ranks[0] has '0-8'; the p"),
        ({"groups": {"world": {"size": 8, "ranks": [[0]]}}}, "groups.world: ranks is given together with size"),
        ({"groups": {"compute": {}}}, "the program is refused: groups.compute is called as the stream of kernels is"),
        ({"roles": {"a": {"steps": [], "after": "none"}}}, "roles.a: after is 'none'; it must be one of: previous, st"),
        ({"groups": {"world": {"ranks": [["0-6"]]}}}, "the program is refused: roles.worker.steps[0].group is 'world'"),
        ({"kernels": {"k": {}}}, "kernels.k: a kernel needs a time, or an op and its shapes; neither is given"),
        ({"kernels": {"k": {"time": "1 ms", "shapes": [[1]]}}}, "kernels.k: time and shapes are both given"),
        ({"kernels": {"k": {"op": "mm"}}}, "kernels.k: op is 'mm'; an op without a time must be one of: matmul, "),
        ({"kernels": {"k": {"op": "matmul", "shapes": [[2, 3], [4, 5]]}}}, "kernels.k: shapes of matmul are [[2, 3], "),
        ({"roles": {}}, "the program is refused: roles is empty"),
        ({"roles": {"a": {}}}, "roles.a: a role needs steps, or phases and an iteration"),
        ({"roles": {"a": {"steps": []}}}, "the program is refused: no role computes or communicates in its iteration"),
        ({"roles": {"a": {"phases": {"p": []}, "iteration": ["q"]}}}, "roles.a: iteration[0] names 'q'; phases are: p"),
        ({"roles": {"a": {"phases": {"p": []}, "iteration": []}}}, "roles.a: iteration is empty"),
        ({"roles": {"a": {"phases": {"p": []}, "iteration": [{"times": 2}]}}}, "roles.a.iteration[0].run: field requi"),
        ({"roles": {"a": {"phases": {"p": []}, "iteration": [3]}}}, "roles.a.iteration[0]: an entry is a phase, a li"),
        ({"roles": {"a": {"ranks": [0], "steps": []}}}, "the program is refused: rank 1 has no role; roles are: a"),
        ({"roles": {"a": {"steps": []}, "b": {"steps": []}}}, "the program is refused: rank 0 is in roles 'a' and 'b'"),
        ({"roles": {"a": {"steps": [], "memory": {"disk": 1}}}}, "roles.a: memory.disk is unknown; parts are: param"),
        ({"roles": {"a": {"steps": [], "memory": {"total": 1, "gradients": 1}}}}, "roles.a: memory has total besides"),
        ({"roles": {"a": {"steps": [], "memory": {"peak": 1, "gradients": 2}}}}, "roles.a: memory.peak is 1, but its"),
        ({"roles": {"a": {"phases": {"p": json.loads(RING)["roles"]["worker"]["steps"]}, "iteration": ["p"]}}},
         "the program is refused: roles.a.phases.p[0] communicates, and would not wait for the phases before its own"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_place(tmp_path, changes, said):
    path = written(tmp_path, **changes)
    assert refusal(path).removeprefix(f"{path} ").startswith(said)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"kind": "compute"}, "a compute step has kernels or a time"),
        ({"kind": "compute", "time": "1 ms", "kernels": ["k"]}, "a compute step has kernels or a time"),
        ({"kind": "compute", "time": "1"}, "time is '1', a number without a unit; expected a time such as"),
        ({"kind": "compute", "time": -1}, "time is -1.0; it must be finite and >= 0"),
        ({"kind": "compute", "time": "200 d"}, "time is 1.728e+07 s; simulated time ends at 106 days"),
        ({"kind": "send", "channel": "x", "num_bytes": 1, "group": "world", "peer": 0}, "peer is 0"),
        ({"kind": "send", "channel": "", "num_bytes": 1, "group": "world", "peer": 1}, "channel is ''"),
    ],
)
def test_other_kinds_of_steps_are_checked_too(tmp_path, step, said):
    assert refusal(written(tmp_path, roles={"a": {"steps": [step]}})).startswith(f"roles.a.steps[0]: {said}")


def test_kernels_and_peers_must_exist(tmp_path):
    path = written(tmp_path, roles={"a": {"steps": [{"kind": "compute", "kernels": ["k"]}]}})
    assert refusal(path).endswith("roles.a.steps[0].kernels[0] is 'k'; kernels are: none")
    send = {"kind": "send", "channel": "x", "num_bytes": 1, "group": "world", "peer": 1}
    said = refusal(written(tmp_path, roles={"a": {"steps": [send]}}))
    assert "roles.a.steps[0].peer is +1, but rank 7 is number 7 of 8 in its group of 'world'" in said


def test_what_the_core_cannot_do_yet_is_refused_by_name(tmp_path):
    one = {"kind": "collective", "collective": "all_reduce", "num_bytes": 8, "group": "world", "stream": "s"}
    path = written(tmp_path, roles={"a": {"steps": [one, one | {"algorithm": "ring"}]}})
    assert "equal collectives of a group run one algorithm" in refusal(path)


def test_a_program_fits_its_machine_or_is_refused(tmp_path):
    program = Program.load(ring_with(tmp_path))
    with pytest.raises(DegreeError, match=r"has 8 ranks; the machine has 4 accelerators"):
        program.on(machine(4))
    with pytest.raises(ConfigError, match="which the machine does not have, or which has failed"):
        program.on(machine(8), accelerators=[*range(7), 8])
    with pytest.raises(ConfigError, match="accelerators names 7 different ones; program 'one all_reduce' has 8 ranks"):
        program.on(machine(8), accelerators=range(7))
    failed = rostam.Machine(fabric=rostam.fabric("torus", dims=[3, 3]).with_failures(accelerators=[2]))
    assert program.on(failed).devices.tolist() == [0, 1, 3, 4, 5, 6, 7, 8]
    steps = json.loads(RING)["roles"]["worker"]["steps"]
    large = Program.load(written(tmp_path, roles={"worker": {"memory": "100 GB", "steps": steps}}))
    with pytest.raises(MemoryCapacityError, match=r"role 'worker' .* needs 100 GB a rank; a a100_80gb has 85.9 GB"):
        large.on(machine())


@pytest.mark.parametrize(
    ("memory", "whole", "parts"),
    [
        ("20 GB", 20 * 10**9, (0, 0)),
        ({"peak": "20 GB"}, 20 * 10**9, (0, 0)),
        ({"peak": "20 GB", "parameters": "3 GB"}, 20 * 10**9, (3 * 10**9, 17 * 10**9)),
        ({"peak": "20 GB", "parameters": "3 GB", "activations": "7 GB"}, 20 * 10**9, (3 * 10**9, 17 * 10**9)),
        ({"parameters": "3 GB", "activations": "7 GB"}, 10 * 10**9, (3 * 10**9, 7 * 10**9)),
    ],
)
def test_memory_is_told_whole_by_part_or_as_a_peak(tmp_path, memory, whole, parts):
    steps = json.loads(RING)["roles"]["worker"]["steps"]
    Program.load(written(tmp_path, roles={"worker": {"memory": memory, "steps": steps}})).save(tmp_path / "again.json")
    placed = Program.load(tmp_path / "again.json").on(machine())
    stage = placed.stages[0]
    assert placed.memory_bytes == whole
    assert (stage.memory.parameters, stage.memory.activations) == parts
    assert stage.memory.total in (0, whole)


def test_several_lists_of_ranks_may_have_one_kind(tmp_path):
    # Two communicators of kind dp: of neighbours, and of ranks four apart; each rank is in one group of each.
    groups = {
        "near": {"kind": "dp", "ranks": [["0-1"], [2, 3], [4, 5], [6, 7]]},
        "far": {"kind": "dp", "ranks": [[0, 4], [1, 5], [2, 6], [3, 7]]},
    }
    step = json.loads(RING)["roles"]["worker"]["steps"][0]
    steps = [step | {"group": "near"}, step | {"group": "far"}, {"kind": "wait"}]
    program = Program.load(written(tmp_path, groups=groups, roles={"worker": {"steps": steps}}))
    result = rostam.simulate(program.on(machine()))
    assert result.bytes_sent["dp"] == 8 * 2 * 2**20  # a ring of two sends the buffer once
    assert [(one["group"], one["num_ranks"]) for one in result.algorithms] == [("far", 2), ("near", 2)]


def test_algorithms_and_circuits_that_the_machine_does_not_have_are_refused(tmp_path):
    grid = Program.load(ring_with(tmp_path, algorithm="torus_2d"))
    flat = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=8))
    with pytest.raises(ConfigError, match=r"program 'one all_reduce': all_reduce in groups 'world' by 'torus_2d' is"):
        rostam.simulate(grid.on(flat))
    optical = rostam.Machine(fabric=rostam.fabric("sip_ocs", num_accelerators=8, num_ocs=2))
    all_pairs = Program.load(ring_with(tmp_path, collective="all_to_all", algorithm="auto"))
    with pytest.raises(DegreeError, match="sends to 7 and receives from 7 others, but sip_ocs gives it 2 circuits"):
        all_pairs.on(optical)


def test_ranks_stand_where_they_are_told_to(tmp_path):
    program = Program.load(ring_with(tmp_path))
    shuffled = [0, 2, 4, 6, 1, 3, 5, 7]
    near, far = (rostam.simulate(program.on(machine(), accelerators=ranks)) for ranks in (range(8), shuffled))
    assert far.iteration_time_s > near.iteration_time_s
    assert far.devices.tolist() == shuffled


def test_a_program_file_runs_no_code(tmp_path):
    touched = tmp_path / "touched"
    code = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    for changes in ({"name": code}, {"description": code}, {"kernels": {"k": {"op": code}}}):
        path = written(tmp_path, **changes)
        try:
            program = Program.load(path)
        except ConfigError:
            continue
        rostam.simulate(program.on(machine()))
    assert not touched.exists()
