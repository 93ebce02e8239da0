"""Addresses of InfiniBand: how many local identifiers (LIDs) layered routing takes, and whether there are as many.

Example:
    num_lids(num_endpoints=200, layers=4, num_switches=50)     # 850 of UNICAST_LIDS
"""

from rostam_py.errors import ConfigError

UNICAST_LIDS = 49_151  # 0x0001 to 0xBFFF: InfiniBand Architecture Specification 1.4, volume 1, section 4.1.3


def num_lids(num_endpoints: int, layers: int, num_switches: int) -> int:
    """Return the addresses of one plane: one for each endpoint and layer, one for each switch.

    Model: a port of InfiniBand has a power of two of addresses (LMC); those that another number of layers leaves unused
        are not counted, as in the paper's bound.
    Source: Blach et al., NSDI 2024, section 5.
    """
    return num_endpoints * layers + num_switches


def check_lids(routing: str, layers: int, num_endpoints: int, num_switches: int, nearest: str = "") -> None:
    """Raise ConfigError where layered routing needs more addresses than there are.

    Args:
        routing: as it was asked for.
        layers: of it.
        num_endpoints: accelerators of the fabric.
        num_switches: of one plane.
        nearest: what the error says of the nearest fabric that the layers fit; "" for nothing.
    """
    needed = num_lids(num_endpoints, layers, num_switches)
    if needed <= UNICAST_LIDS:
        return
    most = (UNICAST_LIDS - num_switches) // num_endpoints
    allowed = f"at most layers:{most} fits" if most > 0 else "no number of layers fits"
    raise ConfigError(
        f"routing is {routing!r}: {layers} layers of {num_endpoints:,} accelerators and {num_switches:,} switches take "
        f"{needed:,} addresses (LIDs), InfiniBand has {UNICAST_LIDS:,}; {allowed} this fabric"
        + (f", and {nearest}" if nearest else "")
    )
