"""A small GPT, traced once, and machines of eight accelerators."""

import pytest

import rostam_py as rostam


@pytest.fixture(scope="session")
def gpt():
    """Two layers of gpt_125m: h 768, 12 heads, s 2,048, V 50,257."""
    return rostam.trace("gpt_125m", num_layers=2)


@pytest.fixture(scope="session")
def machine():
    """Eight A100s on an ideal switch at 400 Gb/s."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth="400 Gb/s")
    return rostam.Machine(fabric=fabric, accelerator="a100_80gb")


@pytest.fixture(scope="session")
def cluster():
    """Eight A100s in servers of four, 100 Gb/s a server."""
    fabric = rostam.fabric(
        "electrical_cluster", num_accelerators=8, server_size=4, accelerator_bandwidth="400 Gb/s",
        server_bandwidth="100 Gb/s",
    )  # fmt: skip
    return rostam.Machine(fabric=fabric, accelerator="a100_80gb")


@pytest.fixture(scope="session")
def base():
    """What all candidates share."""
    return rostam.Strategy(precision="bf16_mixed")
