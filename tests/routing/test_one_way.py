"""Routings where one direction of a cable is gone: circuits are one-way, and so is a transceiver's failure."""

import numpy as np
import pytest

import rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError


@pytest.mark.parametrize("routing", _core.routing_names())
def test_what_leaves_arrives_over_links_of_its_direction(routing):
    # Seven servers of one, each on the network and, in regions of three, on circuits of one direction to the others.
    params = {"num_accelerators": 7, "server_size": 1, "region_servers": 3, "num_ocs": 2, "num_electrical": 1}
    for seed in range(6):
        fabric = rostam.fabric("regional_ocs", **params).with_random_failures("links", 2, seed, scope="network")
        table = fabric.links
        try:
            router = fabric.router(routing)
        except ConfigError:  # not a routing for such a fabric
            return
        for src, dst in np.argwhere(~np.eye(7, dtype=bool)).tolist():
            try:
                links, shares, _ = router.route(src, dst, 0)
            except NoRouteError:
                continue
            net = np.zeros(int(table["dst"].max()) + 1)
            np.add.at(net, table["src"][links], shares)
            np.add.at(net, table["dst"][links], -np.asarray(shares))
            assert not table["is_failed"][links].any()
            assert net[src] == pytest.approx(1)
            assert net[dst] == pytest.approx(-1)
