"""Options of ``rostam capture``: what help prints, and what the command reads."""

from types import MappingProxyType
from typing import NamedTuple


class Option(NamedTuple):
    """An option. value: what stands for its value in help. meaning: in words."""

    value: str
    meaning: str


OPTIONS = MappingProxyType(
    {
        "--world": Option("N", "ranks that the program runs on; torchrun's words say it as well"),
        "--ranks": Option(
            "auto|0,8",
            "ranks that are captured; auto (default): the first and the last of each pipeline stage, and those between"
            " where these run differently. Named ones stand for those that follow, up to the next",
        ),
        "--step": Option(
            "K",
            "step of training that is recorded, from 1, at least 3: it must be the one before once more. By default the"
            " first from 3 to 6 that is",
        ),
        "--gpu": Option("NAME", "what the device says that it is: h100_80gb by default (rostam list accelerators)"),
        "--stub": Option("A,B", "packages that need a GPU to be imported, and are replaced; triton always is"),
        "--splits": Option(
            "balanced|FILE",
            "how routers spread tokens over experts: evenly, or a JSON file with the share of every expert",
        ),
        "--assume-bandwidth": Option(
            "OP,OP", "ops without a cost that are priced by the bytes that they read and write, and are noted as such"
        ),
        "--out": Option("FILE", "the program that is written: NAME.json.gz in this folder by default"),
    }
)
