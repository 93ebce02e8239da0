"""What the tests of programs share: the smallest one, in ten lines, one of everything, and their machine."""

import rostam_py as rostam
from rostam_py.programs import Collective, Compute, Kernel, Program, RankGroups, Receive, Repeat, Role, Send, Wait

RING = """{
  "format": "rostam-program",
  "version": 1,
  "name": "one all_reduce",
  "num_ranks": 8,
  "groups": {"world": {"kind": "dp"}},
  "roles": {"worker": {"steps": [
    {"kind": "collective", "collective": "all_reduce", "num_bytes": "1 MiB", "group": "world", "algorithm": "ring"}
  ]}}
}
"""

# Ranks 0 and 1 send four activations to ranks 2 and 3, which send gradients back; then 0 and 1 add theirs up.
FIRST = {
    "forward": (
        Compute(name="layer", kernels=("layer",)),
        Send(channel="x", num_bytes="8 MiB", group="pp", peer=1),
    ),
    "backward": (Receive(channel="dx", num_bytes="8 MiB", group="pp", peer=1), Compute(time="3 ms")),
    "update": (
        Wait(),
        Collective(collective="all_reduce", num_bytes="32 MiB", group="dp", algorithm="ring", stream="gradients"),
        Compute(kernels=("adam",), is_optimizer=True),
    ),
}
LAST = {
    "both": (
        Receive(channel="x", num_bytes="8 MiB", group="pp", peer=-1),
        Compute(name="there and back", time=4e-3),
        Wait(after=("there and back",)),
        Send(channel="dx", num_bytes="8 MiB", group="pp", peer=-1, after=(1,)),
    ),
    "update": (Compute(kernels=("adam",), is_optimizer=True),),
}
PIPELINE = Program(
    name="two stages",
    num_ranks=4,
    description="one of everything",
    groups={"pp": RankGroups(kind="pp", ranks=((0, 2), (1, 3))), "dp": RankGroups(ranks=(("0-1",),))},
    kernels={"layer": Kernel(op="matmul", shapes=((4096, 4096), (4096, 4096))), "adam": Kernel(time="2 ms", flops=1e9)},
    roles={
        "first": Role(
            phases=FIRST, ranks=("0-1",), memory={"parameters": "10 GB", "activations": 1000},
            iteration=(Repeat(run=("forward",), times=4), Repeat(run=(("backward", 0),), times=4), "update"),
        ),
        "last": Role(
            phases=LAST, ranks=(2, 3), memory={"total": "20 GB"},
            iteration=(Repeat(run=("both", "both"), times=2, stride=2), ("update", 0)),
        ),
    },
)  # fmt: skip


def torus(num=8):
    return rostam.fabric("torus", dims=[num], link_bandwidth="50 GB/s", link_latency="500 ns")


def machine(num=8, **fields):
    return rostam.Machine(fabric=torus(num), **fields)
