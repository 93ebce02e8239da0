"""Collectives: which algorithm a group runs, over which ranks, and what it costs on a fabric."""
