"""Names of the kinds of islands: importing them loads none."""

from rostam_py.registry import Registry

ISLANDS = Registry("kind of islands")
ISLANDS.add("server", "rostam_py.fleet.islands.server:Server")
ISLANDS.add("nvl72", "rostam_py.fleet.islands.nvl72:Nvl72")
ISLANDS.add("cube", "rostam_py.fleet.islands.cube:Cube")
ISLANDS.add("k_hop_ring", "rostam_py.fleet.islands.k_hop_ring:KHopRing")
ISLANDS.add("switch", "rostam_py.fleet.islands.switch:Switch")
