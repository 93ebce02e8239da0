"""All-to-alls of unequal parts: by hand, in both tiers, put together from roles, and refused where ranks disagree."""

import pickle

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.unequal import UnequalBytes, least_time_s
from rostam_py.errors import ConfigError
from rostam_py.programs import Collective, Program, RankGroups, Role, Wait

RATE, ALPHA = 1e9, 1e-6
QUIET = {"launch_latency": 0.0, "min_kernel_time": 0.0}
# What each rank has for each: rank 2 receives most, 9 MB; rank 1 sends 8 MB; ranks keep what is on the diagonal.
MATRIX = ((5_000_000, 1_000_000, 4_000_000), (3_000_000, 0, 5_000_000), (0, 2_000_000, 7_000_000))


def flat(num=3):
    fabric = rostam.fabric("electrical_flat", num_accelerators=num, link_bandwidth=RATE, latency=ALPHA)
    return rostam.Machine(fabric=fabric, **QUIET)


def unequal(send, **fields):
    return Collective(collective="all_to_all", group="ep", send_bytes=send, **fields)


def program(*roles, size=3, groups=3):
    """Return a program of groups of so many ranks. roles: the steps of each, and its ranks, None for all."""
    made = {
        f"role {k}": Role(phases={"iteration": (*steps, Wait())}, ranks=ranks) for k, (steps, ranks) in enumerate(roles)
    }
    return Program(name="unequal", num_ranks=size, groups={"ep": RankGroups(kind="ep", size=groups)}, roles=made)


def run(made, tmp_path=None, **options):
    if tmp_path is not None:
        made.save(tmp_path / "program.json")
        made = Program.load(tmp_path / "program.json")
    options = {"min_iterations": 1, "max_iterations": 1} | options
    return rostam.simulate(made.on(flat(made.num_ranks)), **options)


@pytest.mark.parametrize("fold", [True, False])
def test_the_busiest_port_decides(tmp_path, fold):
    result = run(program(([unequal(MATRIX)], None)), tmp_path, fold=fold)
    # Rank 2's port receives 4 + 5 MB and is never idle.
    least_s = least_time_s(UnequalBytes(MATRIX), latency=ALPHA, bandwidth=RATE)
    assert least_s == pytest.approx(ALPHA + 9e-3)
    assert result.first_iteration_s == pytest.approx(least_s, abs=1e-9)
    assert result.bytes_sent["ep"] == result.bytes_received["ep"] == 1_000_000 + 4_000_000 + 8_000_000 + 2_000_000
    assert result.num_messages["ep"] == 5  # nothing goes from rank 2 to rank 0, nor to oneself
    assert [(one["collective"], one["algorithm"]) for one in result.algorithms] == [("all_to_all", "direct")]


def test_packets_take_as_long(tmp_path):
    made = program(([unequal(MATRIX)], None))
    flow, packet = (run(made, tmp_path, fidelity=name) for name in ("flow", "packet"))
    assert packet.first_iteration_s == pytest.approx(flow.first_iteration_s, rel=0.02)
    assert packet.bytes_sent["ep"] == flow.bytes_sent["ep"]


def test_equal_parts_are_the_equal_collective():
    step = Collective(collective="all_to_all", group="ep", num_bytes=9_000_000, algorithm="direct")
    even = run(program(([step], None))).first_iteration_s
    assert run(program(([unequal(((3_000_000,) * 3,) * 3)], None))).first_iteration_s == even
    assert run(program(([unequal((3_000_000,) * 3)], None))).first_iteration_s == even


def test_roles_say_their_own_rows(tmp_path):
    steps = [
        ([unequal(row, receive_bytes=tuple(column))], (k,))
        for k, (row, column) in enumerate(zip(MATRIX, zip(*MATRIX, strict=True), strict=True))
    ]
    apart = run(program(*steps), tmp_path)
    assert apart.first_iteration_s == run(program(([unequal(MATRIX)], None))).first_iteration_s
    assert apart.bytes_sent["ep"] == 15_000_000


def test_all_to_alls_of_one_size_and_other_parts_are_told_apart():
    # Both have 8 MB on the rank with the most; the second one's busiest port has 16 MB.
    first = ((0, 8_000_000, 0), (0, 0, 8_000_000), (8_000_000, 0, 0))
    second = ((0, 0, 8_000_000), (0, 0, 8_000_000), (0, 0, 0))
    both = run(program(([unequal(first), unequal(second)], None)))
    assert both.first_iteration_s == pytest.approx(2 * ALPHA + 8e-3 + 16e-3, abs=1e-9)


@pytest.mark.parametrize("name", ["scatter", "gather"])
@pytest.mark.parametrize("root", [0, 2])
def test_scatters_and_gathers_load_the_roots_port(tmp_path, name, root):
    made = program(
        ([Collective(collective=name, group="ep", num_bytes=8_000_000, root=root)], None), size=4, groups=4
    )  # fmt: skip
    result = run(made, tmp_path)
    assert result.first_iteration_s == pytest.approx(ALPHA + 6e-3, abs=1e-9)  # all parts but its own
    assert result.bytes_sent["ep"] == 6_000_000
    assert [one.kind for one in made.messages()] == [name]


def test_two_groups_of_a_label_have_the_same_parts():
    made = program(([unequal(MATRIX)], None), size=6)
    result = run(made)
    assert result.first_iteration_s == pytest.approx(ALPHA + 9e-3, abs=1e-9)
    assert result.bytes_sent["ep"] == 30_000_000
    expected = np.array(MATRIX, float)
    np.fill_diagonal(expected, 0)
    traffic = made.on(flat(6)).traffic.matrix()
    assert np.array_equal(traffic, np.kron(np.eye(2), expected))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"send_bytes": (1, 2)}, r"steps\[0\].send_bytes has 1 rows of 2 sizes; its groups have 3 ranks"),
        ({"send_bytes": ((1, 2, 3), (1, 2, 3))}, r"send_bytes has 2 rows of 3 sizes; its groups have 3 ranks"),
        ({"send_bytes": (1, 2, 3), "receive_bytes": (1, 2, 3)}, r"receive_bytes is \[1, 2, 3\], but the ranks of its"),
        ({"send_bytes": (0, 0, 0)}, "parts are all 0; at least one rank sends a byte"),
    ],
)
def test_lists_that_do_not_fit_are_refused(fields, said):
    with pytest.raises(ConfigError, match=said):
        program(([Collective(collective="all_to_all", group="ep", **fields)], None))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"collective": "all_to_all", "send_bytes": (-1, 2)}, r"send_bytes\[0\]"),
        ({"collective": "all_to_all", "send_bytes": ((1, 2), (1,))}, "send_bytes has rows of different lengths"),
        ({"collective": "all_to_all", "send_bytes": (1, 2), "num_bytes": 3}, "in place of num_bytes"),
        ({"collective": "all_gather", "send_bytes": (1, 2)}, "others have equal parts"),
        ({"collective": "all_to_all", "num_bytes": 8, "receive_bytes": (1,)}, "receive_bytes is given without send"),
        ({"collective": "all_to_all", "send_bytes": (1, 2), "algorithm": "balanced_shift"}, "of unequal all_to_all it"),
        ({"collective": "broadcast", "num_bytes": 8, "root": 1}, "root is 1; a broadcast has none, or begins or ends"),
    ],
)
def test_steps_of_unequal_parts_are_checked(fields, said):
    with pytest.raises(ConfigError, match=said):
        Collective(group="ep", **fields)


def test_roots_and_kinds_must_agree():
    one, other = (Collective(collective="gather", group="ep", num_bytes=9, root=root) for root in (0, 1))
    with pytest.raises(ConfigError, match="run gather of 9 bytes in groups 'ep' 1 and 0 times"):
        program(([one], (0,)), ([other], (1, 2)))
    with pytest.raises(ConfigError, match="root is 3; places of the group are 0 to 2"):
        program(([Collective(collective="gather", group="ep", num_bytes=9, root=3)], None))
    with pytest.raises(ConfigError, match="run all_to_all of unequal parts in groups 'ep' 1 and 0 times"):
        program(([unequal((1, 2, 3))], (0,)), ([Collective(collective="all_to_all", group="ep", num_bytes=9)], (1, 2)))


def test_sizes_are_equal_where_their_parts_are():
    size = UnequalBytes(MATRIX)
    assert (int(size), size.chunk_bytes) == (10_000_000, 10**6)
    assert size == UnequalBytes(MATRIX)
    assert size != int(size)
    assert size.ordered([2, 0, 1]).parts[0] == (7_000_000, 0, 2_000_000)
    assert pickle.loads(pickle.dumps(size)) == size
    with pytest.raises(ConfigError, match="parts are 2 rows of"):
        UnequalBytes([[1, 2], [3]])
    with pytest.raises(ConfigError, match="multiples of 1 only; what a rank has may be at most"):
        UnequalBytes([[1, 2**31], [1, 0]])


def test_a_task_graph_of_unequal_parts_is_not_saved(tmp_path):
    graph = rostam.TaskGraph.of(program(([unequal(MATRIX)], None)).on(flat()))
    with pytest.raises(ConfigError, match="all_to_all of unequal parts, which a task graph's file cannot say"):
        graph.save(tmp_path / "graph.json")
