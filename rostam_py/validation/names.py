"""Names of the shipped tables, for help and completion: read from the files' names, nothing is parsed."""

import functools
from importlib import resources
from importlib.resources.abc import Traversable


@functools.cache
def table_files() -> dict[str, Traversable]:
    """Return the file of each shipped table, ``data/<place>-<name>.yaml``, in order of place."""
    folder = resources.files("rostam_py.validation").joinpath("data")
    files = sorted((one for one in folder.iterdir() if one.name.endswith(".yaml")), key=lambda one: one.name)
    return {one.name.removesuffix(".yaml").partition("-")[2]: one for one in files}


def table_names() -> list[str]:
    """Return the names of the shipped tables."""
    return list(table_files())
