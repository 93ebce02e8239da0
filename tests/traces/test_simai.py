"""SimAI's workload text: a program of the steps and bytes counted by hand; the rest is refused with its line."""

import random

import pytest

import rostam_py as rostam
from rostam_py.cli.main import main
from rostam_py.errors import ConfigError, RostamError
from rostam_py.programs import Program
from rostam_py.traces import read_trace
from rostam_py.traces.simai_reading import read_simai

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tp} ep: {ep} pp: {pp} vpp: 2 ga: {ga} all_gpus: {n}"
ROWS = (
    "attention\t-1\t1000\tALLREDUCE\t4096\t2000\tALLREDUCE\t8192\t3000\tALLREDUCE\t65536\t100",
    "mlp -1 5000 ALLTOALL_EP 2048 7000 NONE 99 11000 REDUCESCATTER_DP_EP 32768 10",
)


def text(*rows, tp=2, ep=2, pp=1, ga=1, n=8, more=" checkpoints: 0 checkpoint_initiates: 0"):
    head = HEAD.format(tp=tp, ep=ep, pp=pp, ga=ga, n=n) + more
    return "\n".join((head, str(len(rows)), *rows)) + "\n"


def read(tmp_path, words):
    file = tmp_path / "w.txt"
    file.write_text(words, encoding="utf-8")
    return read_trace(file)


def machine(size):
    fabric = rostam.fabric("torus", dims=[size], link_bandwidth="50 GB/s", link_latency="500 ns")
    return rostam.Machine(fabric=fabric, launch_latency="0 us")


def said(steps):
    return [
        (step.collective, step.group, step.size_bytes) if step.kind == "collective" else getattr(step, "time", "wait")
        for step in steps
    ]


def test_rows_are_steps_in_order_and_groups_are_those_of_the_degrees(tmp_path):
    program = read(tmp_path, text(*ROWS, ga=3))
    # 8 ranks: tp pairs neighbours; ep pairs every second of a dp of four, 0 2 4 6; replicas of experts are 0 4.
    assert {label: one.members.tolist() for label, one in program.group_sets.items()} == {
        "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
        "ep": [[0, 2], [1, 3], [4, 6], [5, 7]],
        "dp": [[0, 2, 4, 6], [1, 3, 5, 7]],
        "dp_ep": [[0, 4], [1, 5], [2, 6], [3, 7]],
    }
    phases = program.roles["stage 0"].phases
    assert said(phases["forward"]) == [
        "1000 ns", ("all_reduce", "tp", 4096), "5000 ns", ("all_to_all", "ep", 2048), "wait",
    ]  # fmt: skip
    assert said(phases["backward"]) == [
        "7000 ns", "11000 ns", ("reduce_scatter", "dp_ep", 32768),
        "2000 ns", ("all_reduce", "tp", 8192), "3000 ns", ("all_reduce", "dp", 65536),
    ]  # fmt: skip
    assert said(phases["update"]) == ["wait", "wait", "110 ns"]
    order = [name for name, _ in program.roles["stage 0"].order]
    assert order == ["forward", "backward"] * 3 + ["update"]


def test_time_is_that_counted_by_hand(tmp_path):
    # tp 2 on a ring of 2 ranks, which two links of 50 GB/s join; an all-gather of 100 kB sends 50 kB each way.
    row = "a -1 1000 ALLGATHER 100000 2000 NONE 0 3000 NONE 0 40"
    program = read(tmp_path, text(row, row, tp=2, ep=1, n=2, ga=3))
    kernels = 3 * 2 * (1000 + 2000 + 3000) + 2 * 40
    one_link, two_links = (50_000 / (links * 50e9) + 500e-9 for links in (1, 2))
    time = rostam.simulate(program.on(machine(2))).first_iteration_s - kernels * 1e-9
    assert 6 * two_links - 1e-12 <= time <= 6 * one_link + 1e-12


def test_the_update_waits_for_messages_that_block_nothing(tmp_path):
    # Two rows whose gradients overlap: 2 us of kernels behind the first message, which takes longer than that.
    row = "a -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 1000000 40"
    program = read(tmp_path, text(row, tp=1, ep=1, n=2))
    alone = read(tmp_path, text(row.replace(" 40", " 0"), tp=1, ep=1, n=2))
    both = [rostam.simulate(one.on(machine(2))).first_iteration_s for one in (program, alone)]
    assert both[0] - both[1] == pytest.approx(40e-9, abs=2e-12)
    assert both[1] > 3e-6 + 1_000_000 / 100e9


def test_stages_run_1f1b_and_send_what_the_text_says(tmp_path):
    row = "a -1 1000 NONE 0 1000 NONE 0 1000 NONE 0 0"
    program = read(tmp_path, text(row, tp=1, ep=1, pp=2, ga=4, n=2, more=" pp_comm 50000"))
    orders = [" ".join(f"{name[0]}{k}" for name, k in role.order) for role in program.roles.values()]
    assert orders == ["f0 f1 b0 f2 b1 f3 b2 b3", "f0 b0 f1 b1 f2 b2 f3 b3"]
    result = rostam.simulate(program.on(machine(2)))
    assert sum(result.bytes_sent.values()) == 2 * 4 * 50_000
    # A message takes 0.5 or 1 us and 500 ns: of one micro-batch there and back 2 messages, 2 forwards and 2 backwards.
    single = read(tmp_path, text(row, tp=1, ep=1, pp=2, ga=1, n=2, more=" pp_comm: 50000.0"))
    time = rostam.simulate(single.on(machine(2))).first_iteration_s
    assert 6e-6 + 2 * 1.0e-6 - 1e-12 <= time <= 6e-6 + 2 * 1.5e-6 + 1e-12


def test_a_text_that_holds_all_micro_batches_runs_each_once(tmp_path):
    first, layer = (f"{name} -1 10 NONE 0 10 NONE 0 10 NONE 0 1" for name in ("embedding_layer", "mlp"))
    before = "grad_gather -1 1 NONE 0 1 NONE 0 1 ALLGATHER 4096 1"
    program = read(tmp_path, text(before, *[first, layer] * 3, layer, ga=3))
    role = program.roles["stage 0"]
    steps = [step for name, _ in role.order for step in role.phases[name]]
    assert sum(step.kind == "compute" for step in steps) == 3 * 8 + 1
    assert said(role.phases["first rows backward"]) == ["1 ns", "1 ns", ("all_gather", "dp", 4096)]
    assert said(role.phases["update"])[-1] == "8 ns"
    unlike = first.replace("10", "20")
    with pytest.raises(ConfigError, match="line 6: the text holds 3 micro-batches"):
        read(tmp_path, text(before, first, layer, unlike, layer, first, layer, ga=3))


def test_messages_in_groups_of_one_rank_move_nothing(tmp_path):
    program = read(tmp_path, text(*ROWS, tp=1, ep=1, n=1))
    assert not program.groups


def changed(line, **places):
    """Return a text whose row has other words at some columns."""
    words = ROWS[line].split()
    for place, word in places.items():
        words[int(place[1:])] = word
    rows = list(ROWS)
    rows[line] = " ".join(words)
    return text(*rows)


REFUSED = {
    "tbd": (changed(0, c2="tbd"), "line 3: the forward's ns is 'tbd'"),
    "0 ns with bytes": (changed(1, c2="0"), "line 4: the forward's ns of a ALLTOALL_EP is 0"),
    "no bytes": (changed(0, c7="0"), "line 3: the input gradient's bytes of a ALLREDUCE is 0"),
    "negative": (changed(0, c8="-3"), "line 3: the weight gradient's ns is '-3'"),
    "negative bytes": (changed(0, c4="-4096"), "line 3: the forward's bytes is '-4096'"),
    "a type": (changed(1, c3="BROADCAST"), "line 4: the forward's type is 'BROADCAST'"),
    "a suffix": (changed(1, c3="ALLTOALL_TP"), "type is 'ALLTOALL_TP'"),
    "NONE of experts": (changed(1, c3="NONE_EP"), "type is 'NONE_EP'"),
    "a dependency": (changed(1, c1="0"), "line 4: the dependency is '0'"),
    "an update": (changed(1, c11="nan"), "line 4: the update's ns is 'nan'"),
    "a column more": (text(ROWS[0] + " 5"), "line 3: the row has 13 columns; it must have 12"),
    "a column less": (text(ROWS[0].rpartition("\t")[0]), "line 3: the row has 11 columns"),
    "a row less": (text(*ROWS).rpartition("mlp")[0], "line 2: 2 rows, but 1 follow"),
    "no rows": (HEAD.format(tp=1, ep=1, pp=1, ga=1, n=1), "line 2: the number of rows is ''"),
    "no time": (text("a -1 0 NONE 0 0 NONE 0 0 NONE 0 7"), "no row takes time"),
    "pp_comm": (text(*ROWS, pp=2), "line 1: pp is 2 without pp_comm"),
    "degrees": (text(*ROWS, tp=3), "line 1: all_gpus is 8"),
    "a degree of 0": (text(*ROWS, ep=0), "line 1: ep is '0'"),
    "an unknown key": (text(*ROWS, more=" cp: 2"), "line 1 has 'cp'"),
    "a key twice": (text(*ROWS, more=" ep: 2"), "line 1 has 'ep' twice"),
    "checkpoints": (text(*ROWS, more=" checkpoints: 1"), "line 1: checkpoints is 1"),
    "no value": (text(*ROWS, more=" checkpoints:"), "line 1 has 13 words"),
    "no degree": (text(*ROWS).replace("ga: 1 ", ""), "line 1 has no 'ga'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_refused_with_its_line(tmp_path, name):
    words, error = REFUSED[name]
    with pytest.raises(ConfigError, match=error):
        read(tmp_path, words)


def test_other_texts_are_no_workloads(tmp_path):
    (tmp_path / "w.txt").write_text("MICRO\n1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1 begins with 'MICRO'"):
        read_simai(tmp_path / "w.txt")
    with pytest.raises(ConfigError, match="is no trace"):
        read_trace(tmp_path / "w.txt")


def test_import_writes_the_program(tmp_path, capsys):
    (tmp_path / "w.txt").write_text(text(*ROWS), encoding="utf-8")
    assert main(["import", f"{tmp_path}/w.txt", f"out={tmp_path}/p.json"]) == 0
    assert Program.load(tmp_path / "p.json").num_ranks == 8


def mutated(seed, file):
    """Read a mutant of a small text: it is a program whose steps all take time, or refused."""
    chance = random.Random(seed)
    data = bytearray(text(*ROWS, pp=2, ga=2, n=16, more=" pp_comm: 4096").encode())
    for _ in range(chance.randint(1, 3)):
        place, way = chance.randrange(len(data)), chance.random()
        if way < 0.5:
            data[place] = chance.choice(b"0123456789-. \n\tAEN_:\0\xff")
        elif way < 0.7:
            del data[place : place + chance.randint(1, 4)]
        elif way < 0.8:
            del data[max(place, 1) :]
        else:
            data[place:place] = data[place : place + chance.randint(1, 20)]
    file.write_bytes(data)
    try:
        program = read_simai(file)
    except RostamError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert file.name in said
        return False
    steps = [step for role in program.roles.values() for steps in role.phases.values() for step in steps]
    assert any(step.kind == "compute" for step in steps)
    for step in steps:
        assert step.kind == "wait" or (step.kind == "compute" and step.time != "0 ns") or step.size_bytes > 0
    return True


def test_mutants_load_or_are_refused(tmp_path):
    assert 0 < sum(mutated(seed, tmp_path / "w.txt") for seed in range(50)) < 50


@pytest.mark.slow
def test_many_mutants_load_or_are_refused(tmp_path):
    for seed in range(50, 2050):
        mutated(seed, tmp_path / "w.txt")
