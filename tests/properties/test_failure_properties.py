"""Failures of 1, 5, 10% of links or switches on router fabrics: bytes arrive over what works, or NoRouteError."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import NoRouteError

FABRICS = {
    "slim_fly": {"q": 4, "terminals_per_switch": 1},
    "hyperx": {"dims": (4, 5), "terminals": 2},
    "dragonfly": {
        "routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 4,
        "routers_per_switch": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("routing", _core.routing_names())
@pytest.mark.parametrize("kind", ["links", "switches"])
@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize(
    "shares", [{1: 0.05}, pytest.param({0: 0.01, 1: 0.05, 2: 0.1}, marks=pytest.mark.slow)], ids=str
)
def test_what_is_sent_arrives_over_working_links_within_capacity_or_has_no_route(name, kind, routing, shares):
    # shares: of the parts, by the seed that draws which fail
    intact = rostam.fabric(name, link_bandwidth=1e9, **FABRICS[name])
    total = intact.num_switches if kind == "switches" else intact.num_links
    delivered = 0
    for seed, share in shares.items():
        fabric = intact.with_random_failures(kind, max(1, round(share * total)), seed)
        count = len(fabric.healthy_accelerators)
        try:
            result = rostam.run_collective(fabric, "all_to_all", num_bytes=1000 * count, routing=routing)
        except NoRouteError:
            # Only where a rule of its own leaves a pair without a path: up*/down* joins all that is connected.
            assert routing != "up_down"
            continue
        delivered += 1
        assert result.bytes_sent == result.bytes_received == count * (count - 1) * 1000
        links = fabric.links
        assert result.link_bytes[links["is_failed"]].sum() == 0
        assert (result.link_bytes <= links["bandwidth_bytes_per_s"] * result.time_s * (1 + 1e-9)).all()
        ends = np.zeros(links["src"].max() + 1)
        np.add.at(ends, links["src"], result.link_bytes)
        np.add.at(ends, links["dst"], -result.link_bytes)
        assert np.abs(ends).max() < 1e-3  # all_to_all: each vertex passes on, or receives, what it sends
    # Strict dimension order has one path for a pair: every failure cuts some.
    assert delivered > 0 or (name, routing) == ("hyperx", "turns")
