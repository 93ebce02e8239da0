"""Chakra: a program out and in again takes the same time; others' traces load, or are refused with their node."""

import random
import tarfile
from pathlib import Path

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, RostamError
from rostam_py.programs import Collective, Compute, Program, RankGroups, Role
from rostam_py.simulation.picoseconds import seconds_to_ps
from rostam_py.traces import read_trace, write_trace
from rostam_py.traces.chakra_schema import COMM_COLL, COMP, framed, messages, set_attributes
from rostam_py.traces.picoseconds import whole_ps
from tests.programs.sample import PIPELINE

pytest.importorskip("google.protobuf")

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "traces"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded traces are not here")


def machine(size=8, **more):
    fabric = rostam.fabric("torus", dims=[size], link_bandwidth="50 GB/s", link_latency="500 ns")
    return rostam.Machine(fabric=fabric, **more)


def node(number, kind, *, deps=(), micros=0, name="n", **attr):
    made = messages().node(id=number, name=name, type=kind, data_deps=deps, duration_micros=micros)
    set_attributes(made, attr)
    return framed(made)


def write(folder, *ranks):
    """Write a trace of the nodes of each rank; return the first file."""
    for rank, nodes in enumerate(ranks):
        (folder / f"t.{rank}.et").write_bytes(framed(messages().metadata(version="1.0")) + b"".join(nodes))
    return folder / "t.0.et"


@pytest.mark.parametrize("host", ["graphs", "eager"])
def test_a_program_out_and_in_again_takes_the_same_time_to_the_picosecond(tmp_path, host):
    placed = PIPELINE.on(machine(host=host))
    files = write_trace("chakra", placed, tmp_path / "run")
    assert [one.name for one in files] == [*(f"run.{k}.et" for k in range(PIPELINE.num_ranks)), "run.groups.json"]
    again = read_trace(files[0])
    again.save(tmp_path / "again.json")
    again = Program.load(tmp_path / "again.json").on(machine(host=host))
    one, two = rostam.simulate(placed), rostam.simulate(again)
    assert one.iteration_times_s == two.iteration_times_s
    assert one.first_iteration_s == two.first_iteration_s
    assert one.bytes_sent == two.bytes_sent


def test_a_plan_out_and_in_again_takes_the_same_time_to_the_picosecond(tmp_path):
    graph = rostam.trace("gpt_125m")
    where = machine(accelerator="h100_80gb")
    strategy = rostam.Strategy(dp=4, pp=2)
    plan = rostam.place(graph, where, global_batch=64, strategy=strategy, software="ideal")
    files = write_trace("chakra", Program.of(plan).on(where, accelerators=plan.devices.tolist()), tmp_path / "gpt")
    again = read_trace(files[3]).on(where, accelerators=plan.devices.tolist())
    assert rostam.simulate(again).iteration_times_s == rostam.simulate(plan).iteration_times_s


def test_others_read_whole_microseconds_and_the_bytes_that_a_rank_gives(tmp_path):
    steps = (
        Compute(time="1 ns"),
        Collective(collective="all_gather", num_bytes="4 kB", group="world"),
        Collective(collective="all_reduce", num_bytes="4 kB", group="world"),
    )
    role = Role(phases={"iteration": steps})
    program = Program(name="p", num_ranks=4, groups={"world": RankGroups()}, roles={"r": role})
    found = raw(write_trace("chakra", program.on(machine(4)), tmp_path / "p")[2])
    assert [(one.type, one.duration_micros) for one in found] == [(COMP, 1), (COMM_COLL, 0), (COMM_COLL, 0)]
    sizes = [next((a.int64_val for a in one.attr if a.name == "comm_size"), None) for one in found]
    assert sizes == [None, 1000, 4000]


def raw(file):
    """Return the nodes of a file, read by hand: no message here is longer than 16,383 bytes."""
    data, place, found = file.read_bytes(), 0, []
    while place < len(data):
        size, place = data[place] & 127, place + 1
        if data[place - 1] > 127:
            size, place = size + 128 * data[place], place + 1
        found.append(data[place : place + size])
        place += size
    return [messages().node.FromString(one) for one in found[1:]]


def test_nodes_run_behind_those_that_they_wait_for(tmp_path):
    # 7 (3 us) and 2 (5 us) on the kernels' stream, then a ring of 4: 6 steps of 1 MB / 4 at 50 GB/s and 500 ns.
    nodes = [
        node(9, COMM_COLL, deps=[2, 4], comm_type=0, comm_size=10**6), node(2, COMP, deps=[7], micros=5),
        node(7, COMP, micros=3), node(4, 1, deps=[7]),
    ]  # fmt: skip
    program = read_trace(write(tmp_path, *[nodes] * 4))
    assert len(program.roles) == 1
    result = rostam.simulate(program.on(machine(4)))
    by_ring = 8e-6 + 6 * (250_000 / 50e9 + 500e-9)
    assert result.first_iteration_s <= by_ring  # auto may do better than a ring in one direction
    assert result.first_iteration_s >= 8e-6 + 2 * 750_000 / 100e9


def test_sends_meet_receives_of_their_tag_in_order(tmp_path):
    send = {"comm_src": 0, "comm_dst": 1, "comm_tag": 5, "comm_size": 50_000}
    ranks = [[node(1, 5, **send), node(2, 5, deps=[1], **send)], [node(1, 6, **send), node(2, 6, deps=[1], **send)]]
    # Neighbours on a ring of four share one link of 50 GB/s; of two, there would be two of them.
    result = rostam.simulate(read_trace(write(tmp_path, *ranks)).on(machine(4, launch_latency="0 us")))
    # A send is over when its last byte has left: the second one follows at once, and the latency counts once.
    assert result.first_iteration_s == pytest.approx(2 * 50_000 / 50e9 + 500e-9)


REFUSED = {
    "a kernel of 0 us": ([node(1, COMP, name="gemm")], "node 1 'gemm'.*duration_micros is 0"),
    "no size": ([node(1, COMM_COLL, comm_type=0)], "node 1 'n'.*comm_size is None"),
    "size 0": ([node(1, COMM_COLL, comm_type=0, comm_size=0)], "comm_size is 0"),
    "no type": ([node(1, COMM_COLL, comm_size=8)], "comm_type is None"),
    "unknown type": ([node(1, COMM_COLL, comm_type=10, comm_size=8)], "comm_type is 10"),
    "a text for a size": ([node(1, COMM_COLL, comm_type=0, comm_size="tbd")], "comm_size is 'tbd'"),
    "a host's": ([node(1, COMP, micros=5, is_cpu_op=True)], "is_cpu_op is true"),
    "memory": ([node(1, 2, micros=5)], "type is 2"),
    "a circle": ([node(1, COMP, micros=1, deps=[2]), node(2, COMP, micros=1, deps=[1])], "node 1 .*circle"),
    "missing": ([node(1, COMP, micros=1, deps=[8])], "waits for node 8"),
    "twice": ([node(1, COMP, micros=1)] * 2, "two nodes have this id"),
    "a group": ([node(1, COMM_COLL, comm_type=0, comm_size=8, pg_name="3")], "pg_name is '3'"),
    "cut off": ([node(1, COMP, micros=1)[:-1]], "byte 6: a message of"),
    "nothing": ([], "no node that takes time"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_simulated_is_refused_with_its_node(tmp_path, name):
    nodes, words = REFUSED[name]
    with pytest.raises(ConfigError, match=words):
        read_trace(write(tmp_path, nodes, nodes))


def test_a_rank_without_a_file_is_named(tmp_path):
    nodes = [node(1, COMP, micros=1)]
    file = write(tmp_path, nodes, nodes, nodes)
    (tmp_path / "t.1.et").unlink()
    with pytest.raises(ConfigError, match="rank 1 has no file"):
        read_trace(file)


def mutated(seed, tmp_path):
    """Read a mutant of a small trace: it is a program whose steps all take time, or refused."""
    chance = random.Random(seed)
    folder = tmp_path / str(seed)
    folder.mkdir()
    file = write(
        folder,
        [node(1, COMP, micros=3), node(2, COMM_COLL, deps=[1], comm_type=0, comm_size=4096, is_cpu_op=False)],
        [node(1, COMM_COLL, comm_type=0, comm_size=4096)],
    )
    data = bytearray(file.read_bytes())
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(data))
        if chance.random() < 0.7:
            data[place] = chance.randrange(256)
        elif chance.random() < 0.5:
            del data[place:]
            data += b"\0"
        else:
            data.insert(place, chance.randrange(256))
    file.write_bytes(data)
    try:
        program = read_trace(file)
    except RostamError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert "t." in said
        return
    for kernel in program.kernels.values():
        assert kernel.timed("k").duration_s > 0
    steps = [step for role in program.roles.values() for step in role.phases["iteration"]]
    assert steps
    assert all(step.kind != "collective" or step.size_bytes > 0 for step in steps)


def test_mutants_load_or_are_refused(tmp_path):
    for seed in range(50):
        mutated(seed, tmp_path)


@pytest.mark.slow
def test_many_mutants_load_or_are_refused(tmp_path):
    for seed in range(50, 2050):
        mutated(seed, tmp_path)


def test_picoseconds_are_those_of_the_core():
    for k in range(2000):
        seconds = random.Random(k).random() * 10.0 ** -(k % 12)
        assert whole_ps(seconds) == seconds_to_ps(seconds)


@needs_samples
@pytest.mark.parametrize(("size", "kind"), [(4, "all_gather"), (4, "all_reduce"), (16, "all_reduce")])
def test_recorded_micro_benchmarks_take_the_time_of_their_collective(tmp_path, size, kind):
    with tarfile.open(SAMPLES / "astra_microbenchmarks.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob(f"{kind}/{size}npus_1MB"))
    program = read_trace(folder / f"{kind}.0.et")
    # An all-gather's 1 MiB are what each rank gives: n - 1 of them reach every rank, over two links of a ring.
    step = next(iter(program.roles.values())).phases["iteration"][0]
    assert step.size_bytes == 2**20 * (size if kind == "all_gather" else 1)
    result = rostam.simulate(program.on(machine(size)))
    least = (size - 1) * 2**20 if kind == "all_gather" else 2 * (size - 1) * 2**20 / size
    assert result.first_iteration_s >= least / 100e9


@needs_samples
def test_a_recorded_trace_of_a_host_is_refused_with_its_node(tmp_path):
    with tarfile.open(SAMPLES / "feeder_tests_trace.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    with pytest.raises(ConfigError, match=r"chakra\.0\.et, node \d+ .*is_cpu_op|waits for node"):
        read_trace(tmp_path / "tests" / "data" / "chakra.0.et")
