"""Distil measurements into the kernel tables that the product ships, one for each accelerator.

Invariant: the same inputs give the same bytes; every series names its file, and the provenance its hash.
"""

from pathlib import Path
from typing import Any

from calibration import library, published
from calibration.measurements import Measurements
from rostam_py.costs.kernel_table import TABLES, KernelTable

LICENCES = {
    "OpenXLA": "Apache-2.0, copyright The OpenXLA Authors",
    "SimuMax": "Apache-2.0, copyright Moore Threads Technology Co., Ltd",
    "FlashAttention-3 paper": "facts from figures of arXiv 2407.08608",
    "NeuSight": "MIT, copyright Georgia Institute of Technology and Microsoft Corporation",
    "liger": "BSD-2-Clause, copyright LinkedIn Corporation",
    "pytorch-159682": "facts from pull request 159682 of pytorch/pytorch",
    "rostam": "measured by rostam, its own licence",
    library.PACKAGE: "Apache-2.0, copyright NVIDIA Corporation",
}
Source = tuple[Measurements, str]  # with the SHA-256 of what it was read from


def sources(data: Path | None) -> list[Source]:
    """Return all measurements that go into tables. Args: data: the library's folder, None to leave it out."""
    found = [(one, published.digest(one.source.split()[0])) for one in published.published()]
    if data is not None:
        found += [(one, library.digest(files)) for one, files in library.library(data)]
    return found


def provenance(chosen: list[Source]) -> dict[str, Any]:
    """Return where a table's rows come from."""
    lines = [{"source": one.source, "sha256": digest, "rows": len(one.rows)} for one, digest in chosen]
    licences = {name: text for name, text in LICENCES.items() if any(name in one.source for one, _ in chosen)}
    return {"made_by": "make calibrate", "sources": lines, "licences": licences}


def distil(accelerator: str, found: list[Source]) -> KernelTable:
    """Return the table of one accelerator. Cost: a fit for each series, seconds each."""
    chosen = [(one, digest) for one, digest in found if one.accelerator == accelerator]
    return KernelTable(accelerator, provenance(chosen), tuple(one.series() for one, _ in chosen))


def table_path(accelerator: str, folder: Path = TABLES) -> Path:
    """Return where an accelerator's table lies."""
    return folder / f"{accelerator}.kernels.json"
