"""Run what both tiers simulate, packet by packet and as flows, and print how far apart they are (MODEL I25)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import rostam_py as rostam
from rostam_py.fabrics.fabric import Fabric
from rostam_py.reproduction import Figure

Run = Callable[[str], float]  # fidelity -> seconds

RING, EVERYONE = 0.05, 0.15  # bounds of MODEL I25
NO_BOUND = math.inf

TREE = {"num_accelerators": 64, "radix": 16}
FABRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "tree of 2 levels, 64": ("fat_tree", TREE),
    "tree of 3 levels, 54": ("fat_tree", {"num_accelerators": 54, "radix": 6, "levels": 3}),
    "tree of 2 levels, 256": ("fat_tree", {"num_accelerators": 256}),
    "Hx2Mesh, 64": ("hammingmesh", {"board": (2, 2), "boards": (4, 4)}),
    "Hx2Mesh, 256": ("hammingmesh", {"board": (2, 2), "boards": (8, 8)}),
    "Hx4Mesh, 64": ("hammingmesh", {"board": (4, 4), "boards": (2, 2)}),
    "Hx4Mesh, 256": ("hammingmesh", {"board": (4, 4), "boards": (4, 4)}),
    "torus, 64": ("torus", {"dims": (8, 8)}),
    "torus, 256": ("torus", {"dims": (16, 16)}),
    "hyperx, 64": ("hyperx", {"dims": (4, 4), "terminals": 4}),
    "Dragonfly, 72": (
        "dragonfly",
        {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 9},
    ),
}


@dataclass(frozen=True)
class Case:
    """One run of both tiers. bound: share by which the packet tier may differ from the flow tier."""

    name: str
    bound: float
    run: Run

    def difference(self) -> float:
        """Return by what share packets take longer than flows."""
        return self.run("packet") / self.run("flow") - 1


def fabric_of(name: str) -> Fabric:
    """Return one of FABRICS."""
    kind, parameters = FABRICS[name]
    return rostam.fabric(kind, **parameters)


def collective(where: str, what: str, algorithm: str, num_bytes: str) -> Run:
    """Return the time of a collective under spray."""
    fabric = fabric_of(where)
    how = {"num_bytes": num_bytes, "algorithm": algorithm, "routing": "spray"}
    return lambda fidelity: rostam.run_collective(fabric, what, fidelity=fidelity, **how).time_s


def flows(fabric: Fabric, pairs: list[tuple[int, int]], num_bytes: int, routing: str) -> Run:
    """Return the time until the last of flows that start together has arrived."""
    src, dst = zip(*pairs, strict=True)
    how = {"src": src, "dst": dst, "num_bytes": [num_bytes] * len(pairs), "routing": routing}
    return lambda fidelity: float(rostam.run_flows(fabric, fidelity=fidelity, **how).finish_s.max())


def shift(count: int, step: int) -> list[tuple[int, int]]:
    """Everyone sends to the one so many ranks on."""
    return [(rank, (rank + step) % count) for rank in range(count)]


def shifts(where: str, num_bytes: int, routing: str) -> Run:
    """Return the time of shifts by 1, 8, 15, ... ranks, each behind a barrier."""
    fabric = fabric_of(where)
    count = fabric.num_accelerators
    rounds = [flows(fabric, shift(count, step), num_bytes, routing) for step in range(1, count, 7)]
    return lambda fidelity: sum(one(fidelity) for one in rounds)


def apart(where: str, num_bytes: int) -> Run:
    """Return the time of pairs, drawn until as many as there are accelerators were, whose paths share no link."""
    fabric, rng = fabric_of(where), np.random.default_rng(0)
    taken = np.zeros(len(fabric.links), bool)
    pairs: list[tuple[int, int]] = []
    for src, dst in enumerate(rng.permutation(fabric.num_accelerators).tolist()):
        if src == dst:
            continue
        alone = rostam.run_flows(fabric, src=[src], dst=[dst], num_bytes=[1], routing="spray").link_bytes > 0
        if not (alone & taken).any():
            pairs.append((src, dst))
            taken |= alone
    return flows(fabric, pairs, num_bytes, "spray")


def cases() -> Iterator[Case]:
    """Yield all cases, those with a bound first."""
    for where in FABRICS:
        if where.endswith("256"):
            continue
        yield Case(f"ring all-reduce of 64 MiB, {where}", RING, collective(where, "all_reduce", "ring", "64 MiB"))
        yield Case(f"pairs that share no link, 1 MiB, {where}", RING, apart(where, 2**20))
    for where in ("tree of 2 levels, 64", "tree of 3 levels, 54"):
        for routing in ("spray", "adaptive"):
            yield Case(f"shifts of 4 MiB behind barriers, {routing}, {where}", RING, shifts(where, 2**22, routing))
    for where in ("tree of 2 levels, 256", "Hx2Mesh, 256"):
        for size in ("1 MiB", "16 MiB"):
            yield Case(f"all-to-all of {size}, {where}", EVERYONE, collective(where, "all_to_all", "direct", size))
    yield from unbounded()


def unbounded() -> Iterator[Case]:
    """Yield the cases that MODEL I25 gives no bound."""
    for where in ("torus, 256", "Hx4Mesh, 256", "Dragonfly, 72"):
        for size in ("1 MiB", "16 MiB"):
            yield Case(f"all-to-all of {size}, {where}", NO_BOUND, collective(where, "all_to_all", "direct", size))
    for where in ("tree of 2 levels, 64", "tree of 3 levels, 54"):
        yield Case(f"shifts of 128 KiB behind barriers, spray, {where}", NO_BOUND, shifts(where, 2**17, "spray"))
    for where in ("Hx2Mesh, 64", "Hx4Mesh, 64", "torus, 64", "hyperx, 64"):
        order = np.random.default_rng(1).permutation(fabric_of(where).num_accelerators).tolist()
        pairs = [(src, dst) for src, dst in enumerate(order) if src != dst]
        for routing in ("spray", "adaptive", "valiant", "ugal"):
            run = flows(fabric_of(where), pairs, 2**20, routing)
            yield Case(f"permutation of 1 MiB, {routing}, {where}", NO_BOUND, run)
    for routing in ("spray", "valiant", "ugal"):
        run = flows(fabric_of("Dragonfly, 72"), shift(72, 8), 2**24, routing)
        yield Case(f"all to the next group, 16 MiB, {routing}, Dragonfly, 72", NO_BOUND, run)


def figures() -> list[Figure]:
    """Return the ledger's figures: how much longer packets take, met within the bound, and always without one."""
    found = []
    for case in cases():
        difference = case.difference()
        bound = "no bound, a table" if case.bound == NO_BOUND else f"within {case.bound:.0%}"
        found.append(
            Figure(
                name=case.name, published=f"{bound} (MODEL I25)", ours=f"{difference:+.2%}",
                is_met=abs(difference) <= case.bound,
            )
        )  # fmt: skip
    return found


def main() -> None:
    """Print the table."""
    table = Table(title="Time by packets over time by flows, less 1")
    for column in ("what", "bound", "difference"):
        table.add_column(column, justify="right" if column == "difference" else "left")
    for one in figures():
        table.add_row(one.name, one.published, one.ours)
    Console().print(table)


if __name__ == "__main__":
    main()
