"""A small GPT, traced once."""

import pytest

import rostam_py as rostam


@pytest.fixture(scope="session")
def gpt():
    """Two layers of gpt_125m: h 768, 12 heads, s 2,048, V 50,257."""
    return rostam.trace("gpt_125m", num_layers=2)
