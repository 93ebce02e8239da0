"""What flags of training programs are tried on: two layers of a language model, and a server."""

import pytest

import rostam_py as rostam


@pytest.fixture(scope="session")
def graph():
    return rostam.trace("gpt_125m", num_layers=2)


@pytest.fixture(scope="session")
def machine():
    fabric = rostam.fabric("fat_tree", num_accelerators=8, server_size=8, server_bandwidth="450 GB/s")
    return rostam.Machine(fabric=fabric, accelerator="h100_80gb")
