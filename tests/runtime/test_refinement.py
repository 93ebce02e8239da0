"""Devices told apart by how far they are from what is different, however far that is."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import NoRouteError

# The length of a ring; its slow ranks; how many devices must be told apart: the places between two that are alike.
RINGS = [
    (1200, [], 1),
    (1200, [7], 1200),
    (1200, [0, 600], 600),
    (1200, [0, 400, 800], 400),
    (960, [5, 6, 485, 486], 480),
]


def ring(graph, length, slow):
    g = graph(length, alpha_ps=500, num_slots=1)
    g.group(*range(length))
    program = g.program(g.template(g.compute(1_000), g.all_reduce(7 * length, deps=[0]), g.compute(10, deps=[1])))
    g.devices([program] * length, slowdown=[3.0 if d in slow else 1.0 for d in range(length)])
    return g


@pytest.mark.parametrize(("length", "slow", "num_classes"), RINGS)
def test_a_long_ring_folds_by_the_period_of_its_slow_ranks(graph, length, slow, num_classes):
    options = {"shortcuts": True, "timeline_devices": [], "min_iterations": 2, "max_iterations": 2}
    folded, whole = (ring(graph, length, slow).run(fold=fold, **options) for fold in (True, False))
    assert folded["num_simulated_devices"] == num_classes
    assert whole["num_simulated_devices"] == length
    assert folded["ends"] == whole["ends"]
    assert folded["breakdown"] == whole["breakdown"]
    assert folded["device_end_ps"].tolist() == whole["device_end_ps"].tolist()
    np.testing.assert_allclose(folded["link_bytes"], whole["link_bytes"], rtol=1e-9)


def rings_of(successor):
    """Return the cycles of a permutation."""
    rings, seen = [], set()
    for first in range(len(successor)):
        ring, d = [], first
        while d not in seen:
            seen.add(d)
            ring.append(d)
            d = successor[d]
        rings += [ring] if ring else []
    return rings


def classes_by_rounds(successors, colours):
    """Count classes: each device by its own and those before and behind it on each ring, until nothing splits."""
    neighbours = [[*successor, *np.argsort(successor).tolist()] for successor in successors]
    count = len(colours)
    while True:
        keys = [(c, *(colours[near[d + k]] for near in neighbours for k in (0, count))) for d, c in enumerate(colours)]
        index = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        if len(index) == len(set(colours)):
            return len(index)
        colours = [index[key] for key in keys]


@pytest.mark.parametrize("seed", range(20))
def test_devices_on_two_rings_fold_into_as_many_classes_as_rounds_find(graph, seed):
    # Copies of 6 devices with random rings through all of them, which go from copy to copy: (i, c) -> (next(i), c + 1)
    # after the last of a copy. Slow ones are slow in every copy, or in every other one.
    rng = np.random.default_rng(seed)
    base, copies = 6, int(rng.choice([4, 6, 12]))
    length = base * copies
    successors = []
    for _ in range(2):
        order = rng.permutation(base).tolist()
        successor = [0] * length
        for k, i in enumerate(order):
            for c in range(copies):
                successor[i * copies + c] = order[(k + 1) % base] * copies + (c + (k + 1 == base)) % copies
        successors.append(successor)
    slow = rng.choice([1.0, 1.5], (base, int(rng.choice([1, 2]))), p=[0.75, 0.25])
    slowdown = [float(slow[d // copies, d % copies % slow.shape[1]]) for d in range(length)]
    g = graph(length, alpha_ps=500)
    for slot, successor in zip((0, 2), successors, strict=True):
        for ring in rings_of(successor):
            g.group(*ring, slot=slot)
    tasks = [g.compute(1_000), g.all_reduce(50 * length, deps=[0]), g.all_reduce(70 * length, deps=[0], slot=2)]
    g.devices([g.program(g.template(*tasks))] * length, slowdown=slowdown)
    folded, whole = (g.run(freeze=fold, fold=fold, timeline_devices=[]) for fold in (True, False))
    assert folded["num_simulated_devices"] == classes_by_rounds(successors, slowdown) < length
    assert folded["ends"] == whole["ends"]
    assert folded["breakdown"] == whole["breakdown"]


@pytest.mark.parametrize("late", [(0, 1), (2, 3)])
@pytest.mark.parametrize("shortcuts", [False, True])
def test_the_pair_without_a_path_is_that_of_the_first_message_folded_or_not(graph, late, shortcuts):
    # Two pairs without a cable between them; one of them computes before it exchanges anything. Shortcuts look at all
    # rings before the run begins, folded or not.
    errors = []
    for fold in (True, False):
        g = graph(4, num_slots=1)
        cables = [[0, 2], [0, 3], [1, 2], [1, 3]]
        g.fabric = rostam.fabric("custom", num_accelerators=4, links=cables, link_bandwidth=1e9)
        at_once = g.program(g.template(g.all_reduce(1000, ranks=2)))
        later = g.program(g.template(g.compute(10_000), g.all_reduce(1000, deps=[0], ranks=2)))
        g.group(0, 1)
        g.group(2, 3)
        g.devices([later if device in late else at_once for device in range(4)])
        with pytest.raises(NoRouteError, match="no path") as error:
            g.run(fold=fold, shortcuts=shortcuts)
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    first = 0 if shortcuts else 2 - late[0]
    assert f"from accelerator {first} to accelerator {first + 1} " in errors[0]
