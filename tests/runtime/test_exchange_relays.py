"""Rings both ways round two cycles through the same ranks: most ranks send no message, and all is as if they did."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rostam_py as rostam
from rostam_py.errors import ConfigError

GRIDS = [(2, 2), (3, 3), (4, 4), (8, 4), (5, 5)]  # cycles need rows = k columns and gcd(rows, columns - 1) = 1
LENGTHS = st.one_of(st.just(0), st.integers(0, 9_000), st.integers(0, 40_000_000))


def row_by_row(fabric, grid):
    """Return the accelerators of a grid, row by row; on boards of 2 x 2 they are numbered board by board."""
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    if fabric.name == "torus":
        return (rows * grid[1] + columns).tolist()
    return (4 * (rows // 2 * (grid[1] // 2) + columns // 2) + 2 * (rows % 2) + columns % 2).tolist()


def exchanges(graph, fabric, grid, lengths, num_bytes, slowdown, *, crossing=None):
    """Return a graph: each rank computes, exchanges, computes and exchanges; the ranks stand row by row.

    crossing: ranks (a, b), of which a sends bytes to b from the start.
    """
    p = len(lengths)
    g = graph(p)
    g.fabric = fabric
    schedule = g.core.add_schedule("all_reduce", "dual_hamiltonian_rings", p, grid=grid)
    other = g.core.add_schedule("reduce_scatter", "dual_hamiltonian_rings", p, grid=grid)
    g.group(*row_by_row(fabric, grid))
    g.group(*row_by_row(fabric, grid), slot=2)
    programs = []
    for rank, length in enumerate(lengths):
        tasks = [
            g.compute(length), ("collective", 0, 0, schedule, -1, num_bytes, 0, (0,)),
            g.compute(1000 + rank, (1,)), ("collective", 0, 0, schedule, -1, num_bytes, 0, (2,)),
        ]  # fmt: skip
        if crossing == "slots":
            tasks.append(("collective", 2, 1, other, -1, num_bytes, 0, (0,)))
        elif crossing is not None and rank == crossing[0]:
            g.peer(rank, crossing[1])
            tasks.append(g.send(0, 3 * num_bytes))
        elif crossing is not None and rank == crossing[1]:
            tasks.append(g.recv(0))
        programs.append(g.program(g.template(*tasks)))
    g.devices(programs, slowdown)
    return g


def mesh(name, grid, latency_ps, failed):
    """Return a torus, or boards of 2 x 2, without some of its cables."""
    link = {"link_bandwidth": 1e9, "link_latency": latency_ps * 1e-12}
    if name == "torus":
        fabric = rostam.fabric("torus", dims=list(grid), **link)
    else:
        fabric = rostam.fabric("hammingmesh", board=(2, 2), boards=(grid[0] // 2, grid[1] // 2), planes=1, **link)
    return fabric.with_random_failures("links", failed[0], seed=failed[1]) if failed[0] else fabric


def entries(raw):
    """Return the timeline's rows, sorted: tasks that end together may be listed in either order."""
    columns = ("device", "iteration", "template", "task", "start_ps", "end_ps")
    return sorted(zip(*(raw["timeline"][key].tolist() for key in columns), strict=True))


def assert_alike(fast, whole):
    """Assert that runs with and without shortcuts gave the same."""
    assert fast["ends"] == whole["ends"]
    assert fast["breakdown"] == whole["breakdown"]
    assert fast["device_end_ps"].tolist() == whole["device_end_ps"].tolist()
    for key in ("sent_bytes", "received_bytes", "num_messages"):
        assert np.asarray(fast[key]).tolist() == np.asarray(whole[key]).tolist()
    assert entries(fast) == entries(whole)
    np.testing.assert_allclose(fast["link_bytes"], whole["link_bytes"], rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(fast["link_busy_s"], whole["link_busy_s"], rtol=1e-9, atol=1e-15)


@settings(max_examples=120, deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(["torus", "hammingmesh"]),
    grid=st.sampled_from(GRIDS),
    num_bytes=st.integers(0, 60_000),
    latency_ps=st.sampled_from((0, 300, 20_000, 900_000)),
    iterations=st.integers(1, 3),
    failed=st.tuples(st.integers(0, 2), st.integers(0, 99)),
    crossing=st.booleans(),
)
def test_ranks_end_as_message_by_message(graph, data, name, grid, num_bytes, latency_ps, iterations, failed, crossing):
    p = grid[0] * grid[1]
    if name == "hammingmesh" and (grid[0] % 2 or grid[1] % 2):
        name = "torus"
    if p < 9:
        failed = (0, 0)
    fabric = mesh(name, grid, latency_ps, failed)

    def draw(values):
        return data.draw(st.lists(values, min_size=p, max_size=p))

    lengths = draw(LENGTHS) if data.draw(st.booleans()) else [data.draw(LENGTHS)] * p
    slowdown = draw(st.sampled_from((1.0, 1.25, 3.0)))
    ends = data.draw(st.sampled_from([(0, p - 1), (p // 2, 0), (1, 2), "slots"])) if crossing else None
    options = {"min_iterations": iterations, "max_iterations": iterations}
    options["min_collective_ps"] = data.draw(st.sampled_from((0, 5_000, 90_000_000)))
    fast, whole = (
        exchanges(graph, fabric, list(grid), lengths, num_bytes, slowdown, crossing=ends).run(
            shortcuts=shortcuts, **options
        )
        for shortcuts in (True, False)
    )  # fmt: skip
    assert_alike(fast, whole)


@pytest.mark.parametrize("grid", GRIDS[1:])
def test_rings_on_links_of_their_own_need_no_message_and_end_as_by_hand(graph, grid):
    # 2 (p - 1) steps of a latency and a quarter of a p-th of the buffer, at a byte in 1,000 ps.
    p = grid[0] * grid[1]
    fabric = mesh("torus", grid, 700, (0, 0))
    raw = exchanges(graph, fabric, list(grid), [0] * p, 40 * p, None).run(
        shortcuts=True, min_iterations=1, max_iterations=1
    )
    one = 2 * (p - 1) * (700 + 10 * 1000)
    assert raw["ends"][1] >= 2 * one + 1000  # the second begins when the slowest rank has computed
    assert raw["num_solves"] == 0
    first = raw["timeline"]["end_ps"][raw["timeline"]["task"] == 1]
    assert set(first.tolist()) == {one}


def test_a_failed_link_costs_messages_round_it_alone(graph):
    # 64 ranks; a few of them send over the network what goes round the failed cable or shares links with that.
    grid = (8, 8)
    fabric = mesh("hammingmesh", grid, 100, (1, 3))
    fast, whole = (
        exchanges(graph, fabric, list(grid), [0] * 64, 64 * 4000, None).run(
            shortcuts=shortcuts, min_iterations=1, max_iterations=1
        )
        for shortcuts in (True, False)
    )  # fmt: skip
    assert_alike(fast, whole)
    assert fast["num_solves"] > 0
    assert 4 * fast["num_events"] < whole["num_events"]


def test_ranks_that_disagree_on_the_buffer_are_named(graph):
    g = graph(9)
    g.fabric = mesh("torus", (3, 3), 0, (0, 0))
    schedule = g.core.add_schedule("all_reduce", "dual_hamiltonian_rings", 9, grid=[3, 3])
    g.group(*range(9))
    programs = [
        g.program(g.template(("collective", 0, 0, schedule, -1, num_bytes, 0, ())))
        for num_bytes in 8 * [36 * 100] + [36 * 200]
    ]
    g.devices(programs)
    with pytest.raises(ConfigError, match="joins collective 0 on slot 0 with chunks of 200 bytes, others with"):
        g.run(shortcuts=True)
