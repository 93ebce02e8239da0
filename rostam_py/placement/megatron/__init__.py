"""Megatron-style placement: tensor-parallel splits by sharding propagation, pipeline stages by graph cuts."""
