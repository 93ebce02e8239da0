"""MODEL F20 on random collectives: what holds for every fabric, algorithm, size and routing."""

import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.collectives.pieces import MAX_PIECES, MAX_PIPELINED

# Switches that add up are tested where there are some: tests/collectives/test_transport.py.
NAMES = [tuple(name) for name in _core.schedule_names() if name[0] != "send_recv" and not _core.models_bandwidth(*name)]
NUM_SEEDS = 10
CASES_A_SEED = 60  # x 10 seeds = 600 collectives, each run four times


def random_fabric(rng, latency=True):
    """Return (name, parameters) of a small fabric."""
    name = rng.choice(["electrical_flat", "electrical_cluster", "fat_tree", "torus"])
    rate = float(rng.integers(1, 200)) * 1e9
    parameters = {"accelerator_bandwidth": rate}
    if name == "torus":
        parameters["dims"] = [(2, 3), (8,), (4, 4), (2, 2, 3), (5,)][rng.integers(5)]
    else:
        parameters["num_accelerators"] = int(rng.integers(2, 20))
    if name == "electrical_cluster":
        parameters |= {"server_size": int(rng.integers(1, 6)), "server_bandwidth": float(rng.integers(1, 400)) * 1e9}
    if name == "fat_tree":
        down = int(rng.integers(1, 5))
        parameters |= {"radix": 8, "leaf_down": down, "leaf_up": int(rng.integers(1, 8 - down + 1))}
    if latency:
        if name.startswith("electrical"):
            parameters["link_latency"] = float(rng.integers(0, 1000)) * 1e-9
        else:
            parameters |= {"link_latency": 20e-9, "switch_latency": 40e-9}
    else:
        parameters |= {
            "electrical_flat": {"latency": 0.0, "link_latency": 0.0},
            "electrical_cluster": {"server_latency": 0.0, "network_latency": 0.0, "link_latency": 0.0},
        }.get(name, {"link_latency": 0.0, "switch_latency": 0.0})
    return str(name), parameters


def random_collective(rng, fabric, largest=10**7):
    """Return the keyword arguments of a random collective on a random subset of the accelerators."""
    collective, algorithm = NAMES[rng.integers(len(NAMES))]
    count = int(rng.integers(1, fabric.num_accelerators + 1))
    ranks = rng.permutation(fabric.num_accelerators)[:count].tolist()
    arguments = {"collective": collective, "ranks": ranks, "num_bytes": int(rng.integers(0, largest))}
    if not _core.needs_grid(collective, algorithm):
        return arguments | {"algorithm": algorithm}
    grids = [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]
    if algorithm == "dual_hamiltonian_rings":
        grids = [grid for grid in grids if has_cycles(*grid)]
    if algorithm == "swing_2d":
        grids = [(rows, columns) for rows, columns in grids if rows & (rows - 1) == columns & (columns - 1) == 0]
    # Where a count has no grid with two cycles, or of powers of two, the ring stands in.
    return arguments | ({"algorithm": algorithm, "grid": grids[rng.integers(len(grids))]} if grids else {})


def has_cycles(rows, columns):
    """Condition for two disjoint Hamiltonian cycles, either way round."""
    r, c = max(rows, columns), min(rows, columns)
    return r % c == 0 and math.gcd(r, c - 1) == 1


def scaled(parameters, c):
    """Return the parameters with every capacity multiplied by c."""
    return {key: value * c if key.endswith("bandwidth") else value for key, value in parameters.items()}


def busiest_port_seconds(fabric, result):
    """Longest that any link needs for the bytes that crossed it."""
    return float((result.link_bytes / fabric.links["bandwidth_bytes_per_s"]).max())


def num_steps(arguments):
    """Dependency steps of the collective in its most pieces, each rounded up to 1 ps."""
    names = arguments["collective"], arguments.get("algorithm", "ring")
    pieces = MAX_PIPELINED if _core.is_pipelined(*names) else MAX_PIECES
    schedule = _core.Schedule(*names, len(arguments["ranks"]), 1, arguments.get("grid", (0, 0)), pieces)
    return 8 * schedule.num_steps + 8  # messages of a step end at several times


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_random_collectives_keep_bounds_conservation_and_folding(seed):
    rng = np.random.default_rng(seed)
    for _ in range(CASES_A_SEED):
        name, parameters = random_fabric(rng)
        fabric = rostam.fabric(name, **parameters)
        arguments = random_collective(rng, fabric)
        routing = str(rng.choice(["spray", "hash"]))
        result = rostam.run_collective(fabric, routing=routing, fold=False, **arguments)
        where = (name, parameters, arguments, routing)

        # T >= bytes of the busiest port / B
        assert result.time_s >= busiest_port_seconds(fabric, result) * (1 - 1e-9), where
        # T >= critical path at infinite bandwidth
        endless = {k: 1e18 if k in ("accelerator_bandwidth", "server_bandwidth") else v for k, v in parameters.items()}
        free = rostam.run_collective(rostam.fabric(name, **endless), routing=routing, fold=False, **arguments)
        named = (arguments["collective"], arguments.get("algorithm", "ring"))
        assert result.time_ps >= free.time_ps or _core.takes_trees(*named), where  # packed over what links carry
        # conservation: what is sent is received, and crosses as many links as its routes have
        assert result.bytes_sent == result.bytes_received, where
        into = np.isin(fabric.links["dst"], arguments["ranks"])
        out = np.isin(fabric.links["src"], arguments["ranks"])
        if name != "torus":
            assert result.link_bytes[out].sum() == pytest.approx(result.bytes_sent, rel=1e-9), where
            assert result.link_bytes[into].sum() == pytest.approx(result.bytes_sent, rel=1e-9), where
        else:
            assert result.link_bytes.sum() >= result.bytes_sent * (1 - 1e-9), where
        # folding changes no time by more than 1 ps a step, and is off where routes are hashed
        folded = rostam.run_collective(fabric, routing=routing, fold=True, **arguments)
        assert abs(folded.time_ps - result.time_ps) <= (num_steps(arguments) if routing == "spray" else 0), where
        assert folded.bytes_sent == result.bytes_sent, where


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_without_latency_time_scales_with_one_over_c(seed):
    # 400 cases. Every message is rounded up to 1 ps, so "exactly" means to 1 ps a step.
    rng = np.random.default_rng(100 + seed)
    for _ in range(40):
        name, parameters = random_fabric(rng, latency=False)
        fabric = rostam.fabric(name, **parameters)
        arguments = random_collective(rng, fabric)
        c = float(rng.choice([0.25, 0.5, 2.0, 3.0, 10.0]))
        base = rostam.run_collective(fabric, **arguments)
        other = rostam.run_collective(rostam.fabric(name, **scaled(parameters, c)), **arguments)
        tolerance = num_steps(arguments) * max(1.0, 1 / c)
        assert abs(other.time_ps - base.time_ps / c) <= tolerance, (name, parameters, arguments, c)


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_a_flat_fabric_is_never_slower_than_another_of_equal_bandwidth_and_latency(seed):
    # 400 cases: identical messages, no latency anywhere, equal injection bandwidth B.
    rng = np.random.default_rng(200 + seed)
    for _ in range(40):
        name, parameters = random_fabric(rng, latency=False)
        fabric = rostam.fabric(name, **parameters)
        arguments = random_collective(rng, fabric)
        named = (arguments["collective"], arguments.get("algorithm", "ring"))
        if _core.takes_trees(*named):
            continue  # packed over the links of each fabric: messages differ
        if _core.works_in_pieces(*named):
            count = len(arguments["ranks"])  # which ranks are close is the fabric's word, and changes the messages
            arguments["group"] = next((g for g in range(2, count + 1) if count % g == 0), 1)
        flat = rostam.fabric(
            "electrical_flat", num_accelerators=fabric.num_accelerators, latency=0.0,
            accelerator_bandwidth=parameters["accelerator_bandwidth"],
        )  # fmt: skip
        routing = str(rng.choice(["spray", "hash"]))
        best = rostam.run_collective(flat, **arguments)
        other = rostam.run_collective(fabric, routing=routing, **arguments)
        assert best.time_ps <= other.time_ps + num_steps(arguments), (name, parameters, arguments, routing)
