"""Embedding tables spread over ranks: what each holds, looks up and sends.

Example:
    tables = spread_tables(graph, "balanced", degree=8, batch=64, entry_bytes=8, rank_bytes=2e9)
    tables.load.lookups                        # the busiest rank's, of all ranks' sum
"""

from rostam_py.placement.tables.spread import SpreadTables, spread_tables

__all__ = ["SpreadTables", "spread_tables"]
