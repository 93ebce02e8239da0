"""Servers whose ranks hold a table's rows together (strategy.tables=hierarchical), and whether they are servers.

Example:
    table_server_size(strategy, machine)       # 8 on servers of eight accelerators
"""

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.plan.machine import Machine
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.table_groups import HIERARCHICAL


def table_server_size(strategy: Strategy, machine: Machine) -> int:
    """Return the ranks of a server that hold a table's rows together; 1 but for hierarchical tables.

    Raises: ConfigError for a machine without servers, or ranks that do not fill them.
    """
    if strategy.tables != HIERARCHICAL:
        return 1
    degree, size = strategy.num_data_ranks, min(strategy.num_data_ranks, machine.fabric.config.accelerators_per_server)
    if size == 1:
        raise ConfigError(
            f"strategy.tables is 'hierarchical', which needs servers of several accelerators; {machine.fabric.name} has"
            " none: take another fabric, for example machine=dgx_h100, or set strategy.tables=balanced"
        )
    if degree % size:
        raise ConfigError(
            f"strategy.tables is 'hierarchical', but {degree} data-parallel ranks do not fill servers of"
            f" {machine.fabric.config.accelerators_per_server}; choose dp so that they do, or set"
            " strategy.tables=balanced"
        )
    return size


def check_servers(ranks: np.ndarray, server_size: int, per_server: int) -> None:
    """Raise ConfigError where ranks that hold a table's rows together are not on one server.

    Args: ranks: accelerators in the order of data-parallel ranks, int array. server_size: ranks of a server.
        per_server: accelerators of one.
    """
    servers = (ranks // per_server).reshape(-1, server_size)
    if (servers != servers[:, :1]).any():
        raise ConfigError(
            f"strategy.tables is 'hierarchical', but some {server_size} consecutive data-parallel ranks are not on one"
            " server; set strategy.mapping=linear, leave out the servers of failed accelerators, or set"
            " strategy.tables=balanced"
        )
