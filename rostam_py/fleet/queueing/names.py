"""Names of queue orders, places and sources of jobs, for help and completion: importing them loads none."""

from rostam_py.registry import Registry

ORDERS = Registry("order")
ORDERS.add("first_come", "rostam_py.fleet.queueing.orders.first_come:FirstCome")
ORDERS.add("backfill", "rostam_py.fleet.queueing.orders.backfill:Backfill")
ORDERS.add("shortest_first", "rostam_py.fleet.queueing.orders.shortest_first:ShortestFirst")

# Those that share servers among jobs; all others are allocators of the fabric (rostam_py.fleet.allocators).
PLACES = Registry("placement of jobs")
PLACES.add("servers", "rostam_py.fleet.queueing.places.servers:Servers")
PLACES.add("count", "rostam_py.fleet.queueing.places.count:Count")

SOURCES = Registry("source of jobs")
SOURCES.add("families", "rostam_py.fleet.queueing.sources.families:Families")
SOURCES.add("targets", "rostam_py.fleet.queueing.sources.targets:Targets")
