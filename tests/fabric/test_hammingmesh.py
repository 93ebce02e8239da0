"""HammingMesh: counts, distances and diameters of its wirings against search and the paper; failed boards."""

import itertools

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.failures import RandomFailures

BOARDS = [(1, 1), (1, 2), (3, 1), (2, 2), (3, 2), (4, 4), (1, 9), (9, 2), (8, 8)]
WIRINGS = ["auto", "board_row", "accelerator_row", "tree", "wrap"]


def mesh(board, boards, **params):
    return build_fabric("hammingmesh", board=board, boards=boards, **params)


def distances(core, dst):
    searched = core.search_distances(dst)
    return searched.tolist(), [core.closed_form_distance(vertex, dst) for vertex in range(len(searched))]


def fitting_meshes(board, rows, columns):
    """Yield small meshes of these boards and wirings; a wiring that does not fit is left out."""
    for boards in [(1, 1), (1, 3), (2, 1), (3, 2), (4, 5), (7, 2)]:
        for radix, taper in [(4, 1.0), (8, 0.5), (64, 1.0)]:
            try:
                yield mesh(board, boards, wiring=(rows, columns), radix=radix, taper=taper)
            except ConfigError:
                continue


# Long boards make two crossings of a shared network shorter than a walk to the end of a board.
@pytest.mark.parametrize("board", BOARDS)
def test_distance_function_equals_breadth_first_search(board, told):
    for rows, columns in itertools.product(WIRINGS, WIRINGS):
        with told(rows, columns):
            cores = [fabric.core for fabric in fitting_meshes(board, rows, columns)]
            assert cores or (board, rows, columns) == ((1, 1), "wrap", "wrap")
            for core in cores:
                for dst in range(0, core.num_accelerators, 1 + core.num_accelerators // 25):
                    searched, closed = distances(core, dst)
                    assert closed == searched


@pytest.mark.parametrize("board", [(1, 1), (3, 1), (3, 2), (4, 4), (1, 9)])
def test_diameter_equals_the_longest_distance_found_by_search(board, told):
    for rows, columns in itertools.product(WIRINGS, WIRINGS):
        for fabric in fitting_meshes(board, rows, columns):
            count = fabric.num_accelerators
            longest = max(int(fabric.core.search_distances(dst)[:count].max()) for dst in range(count))
            with told(rows, columns):
                assert fabric.diameter() == longest


# HammingMesh, appendix C: switches and cables to accelerators and between switches, per plane.
@pytest.mark.parametrize(
    ("board", "boards", "wiring", "num_switches", "num_ends", "num_between", "diameter"),
    [
        ((1, 1), (32, 32), "board_row", 64, 4096, 0, 4),
        ((2, 2), (16, 16), "board_row", 32, 2048, 0, 4),
        ((4, 4), (8, 8), "board_row", 16, 1024, 0, 6),
        ((1, 1), (128, 128), "tree", 256 * 12, 65536, 65536, 8),
        ((2, 2), (64, 64), "tree", 1536, 32768, 32768, 8),
        ((4, 4), (32, 32), "accelerator_row", 256, 16384, 0, 8),
    ],
)
def test_the_papers_meshes_have_the_published_counts(
    board, boards, wiring, num_switches, num_ends, num_between, diameter
):
    fabric = mesh(board, boards)
    count = fabric.num_accelerators
    assert [dimension.wiring for dimension in fabric.config.dimensions] == [wiring, wiring]
    assert fabric.num_switches == num_switches
    assert fabric.diameter() == diameter
    on_switches = (fabric.links["src"] >= count).astype(int) + (fabric.links["dst"] >= count)
    a, b = board
    traces = boards[0] * boards[1] * (b * (a - 1) + a * (b - 1))
    assert np.bincount(on_switches, minlength=3).tolist() == [2 * traces, 2 * num_ends, 2 * num_between]
    # Four ports each, and no switch with more than 64.
    ports = np.bincount(fabric.links["src"])
    assert set(ports[:count]) == {4}
    assert ports[count:].max() <= 64


def test_wiring_changes_the_length_of_paths():
    # Section III: 2 (1 + 1) hops on boards and 2 + 2 cables; where all rows of boards share a switch the packet arrives
    # at the line it needs and spares the middle board: 1 + 2 + 2 + 1.
    assert mesh((4, 4), (8, 8), wiring="accelerator_row").diameter() == 8
    assert mesh((4, 4), (8, 8), wiring="board_row").diameter() == 6
    assert mesh((4, 4), (8, 8), wiring="tree").diameter() == 8
    # 2 x 20 ports of a row in leaves of 32: two levels, so 4 cables a dimension.
    assert mesh((4, 4), (20, 20), wiring="tree").diameter() == 12


@pytest.mark.parametrize(
    ("board", "boards", "radix"),
    [
        ((4, 4), (32, 32), 64), ((2, 2), (8, 8), 8), ((3, 5), (4, 8), 8), ((1, 1), (9, 3), 8), ((1, 1), (17, 16), 8),
        ((2, 1), (64, 5), 8), ((1, 1), (1025, 4), 64),
    ],
)  # fmt: skip
def test_diameter_of_networks_of_one_line_is_the_papers_formula(board, boards, radix):
    # 2 (floor((a-1)/2) + floor((b-1)/2)) + 2 (levels of rows + levels of columns), with levels as in section III:
    # ceil(log_{k/2}(2x/k)) + 1 counts one level up to k ports, two up to k^2/2 and three up to k^3/4.
    fabric = mesh(
        board, boards, radix=radix, wiring=tuple("accelerator_row" if 2 * n <= radix else "tree" for n in boards)
    )
    levels = sum(1 if 2 * n <= radix else 2 if 2 * n <= radix**2 / 2 else 3 for n in boards)
    assert fabric.diameter() == 2 * sum((n - 1) // 2 for n in board) + 2 * levels


def test_a_single_board_in_line_is_wrapped_by_a_cable():
    # One row of boards: columns close on themselves, as in the paper's 1D variant; without rows and columns of boards
    # the mesh is a torus.
    row = mesh((2, 4), (3, 1))
    assert row.num_switches == 1
    assert [dimension.wiring for dimension in row.config.dimensions] == ["board_row", "wrap"]
    assert row.core.closed_form_distance(0, 6) == 1
    torus, alone = build_fabric("torus", dims=(4, 5)), mesh((5, 4), (1, 1))
    assert (alone.num_links, alone.num_switches, alone.diameter()) == (torus.num_links, 0, torus.diameter())
    rows = [distances(fabric.core, 7)[0] for fabric in (torus, alone)]
    assert rows[0] == rows[1]


def test_latency_counts_traces_cables_and_everything_on_the_way():
    fabric = mesh((2, 2), (4, 4), wiring="accelerator_row")
    router = fabric.router()
    assert router.route(0, 1)[2] == 1_000
    # Accelerator 0 to the same place of the board to the east: over one switch.
    assert router.route(0, 4)[2] == 2 * 20_000 + 40_000
    # Row switch, middle accelerator, column switch.
    assert router.route(0, 4 * 5)[2] == 4 * 20_000 + 3 * 40_000


def test_a_dimension_of_boards_of_one_accelerator_is_two_bundled_cables():
    fabric = mesh((1, 1), (4, 4))
    router = fabric.router()
    links, shares, _ = router.route(0, 1)
    assert shares.tolist() == [1, 1]
    assert [len(router.members[link]) for link in links] == [2, 2]
    assert set(router.capacities[links]) == {2 * fabric.links["bandwidth_bytes_per_s"][0]}


def test_a_failed_board_is_routed_around():
    # Boards 0 1 / 2 3 of 2 x 2. Rows and columns meet on boards 1 and 2: without board 1 all of 0 -> 3 goes over 2.
    fabric = mesh((2, 2), (2, 2), wiring="accelerator_row")
    broken = fabric.with_failures(boards=[1])
    assert broken.failures.accelerators == (4, 5, 6, 7)
    assert broken.num_boards == 4
    before, after = (f.router() for f in (fabric, broken))
    on_board = {int(v) for link in after.route(0, 12)[0] for v in fabric.links[["src", "dst"]][after.members[link][0]]}
    assert on_board & {8, 9, 10, 11}
    assert not on_board & {4, 5, 6, 7}
    assert after.route(0, 12)[2] == before.route(0, 12)[2]
    assert broken.diameter() == fabric.diameter()
    assert fabric.with_failures(boards=[1]).with_failures(boards=[1]).failures == broken.failures


def test_without_both_corners_a_path_detours_over_a_third_network():
    # 3 x 3 boards without 1 and 3, the corners between 0 and 4: 0 -> 2 -> 5 -> 4 crosses three networks of two cables.
    fabric = mesh((1, 1), (3, 3))
    assert fabric.core.search_distances(4)[0] == 4
    assert fabric.with_failures(boards=[1, 3]).core.search_distances(4)[0] == 6


def test_random_boards_fail_whole_and_follow_the_seed():
    for fabric in (mesh((2, 3), (3, 4)), build_fabric("torus", dims=(6, 8), board=(3, 2))):
        once, again = (fabric.with_random_failures("boards", 4, seed=5) for _ in range(2))
        assert once.failures == again.failures != fabric.with_random_failures("boards", 4, seed=6).failures
        assert len(once.failures.accelerators) == 4 * 6
        assert len({accelerator // 6 for accelerator in once.failures.accelerators}) == 4
        more = once.with_random_failures("boards", fabric.num_boards - 5, seed=5)
        assert len(more.healthy_accelerators) == 6


@pytest.mark.parametrize(
    ("name", "params"),
    [("fat_tree", {"num_accelerators": 8}), ("torus", {"dims": (4, 4)}), ("electrical_flat", {"num_accelerators": 4})],
)
def test_fabrics_without_boards_refuse_to_fail_them(name, params):
    fabric = build_fabric(name, **params)
    assert fabric.num_boards == 0
    with pytest.raises(ConfigError, match=f"failures.boards names 1; fabric {name} has no boards"):
        fabric.with_failures(boards=[1])
    with pytest.raises(ConfigError, match=f"failures.boards is 1, but fabric '{name}' has no boards"):
        fabric.with_random_failures("boards", 1)
    for none in (0, "0", "0%", "0.0 %"):
        assert RandomFailures(boards=none).applied_to(fabric) is fabric


def test_boards_that_do_not_exist_are_config_errors():
    fabric = mesh((2, 2), (4, 4))
    with pytest.raises(ConfigError, match=r"failures.boards names 16; this fabric's boards are 0\.\.15"):
        fabric.with_failures(boards=[16])
    with pytest.raises(ConfigError, match=r"failures.boards is 17; allowed: 0\.\.16, the working boards"):
        fabric.with_random_failures("boards", 17)
    with pytest.raises(ConfigError, match=r"kind is 'racks'; it must be one of: .*, boards$"):
        fabric.with_random_failures("racks", 1)
