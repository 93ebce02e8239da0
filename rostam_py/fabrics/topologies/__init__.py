"""Topology files of other simulators, read as links of fabric=custom: a reader and a line for each format.

A reader is called with the path and the file's lines, and returns rows (line, src, dst, bandwidth, latency).
"""

from pathlib import Path

from rostam_py.registry import Registry

TOPOLOGIES = Registry("topology format")
TOPOLOGIES.add("astra_sim", "rostam_py.fabrics.topologies.astra_sim:read_astra_sim")
TOPOLOGIES.add("nccl", "rostam_py.fabrics.topologies.nccl:read_nccl")
TOPOLOGIES.add("simai", "rostam_py.fabrics.topologies.simai:read_simai")
_YAML = (".yml", ".yaml")

Row = tuple[int, str, str, str, str]


def format_of(path: str, first_line: str) -> str:
    """Return the format of a file, of TOPOLOGIES; "" for a list of links.

    Args: first_line: of SimAI's files a row of numbers and a word, of NCCL's XML; of a list of links a header.
    """
    if Path(path).suffix == ".xml" or first_line.lstrip().startswith("<"):
        return "nccl"
    if Path(path).suffix in _YAML:
        return "astra_sim"
    return "simai" if first_line.split() and first_line.split()[0].isdecimal() else ""
