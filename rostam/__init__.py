"""The name to import: ``import rostam`` has every public name of ``rostam_py``, the same objects, as lazily.

The packages inside (rostam_py.errors, rostam_py.costs, ...) have that one name only.
"""

from typing import Any

import rostam_py
from rostam_py import __all__, __version__  # noqa: F401


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(rostam_py, name)
    raise AttributeError(f"module 'rostam' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
