"""Channels: how many of an accelerator's multiprocessors a collective of NCCL's holds while it runs (MODEL B8).

Example:
    taken_share(machine.fabric, key, num_bytes, np.arange(16), machine.device)    # 0.121 of an H100: 16 of 132

One block of threads serves a channel, on a multiprocessor of its own. Ideal links have no channels and take nothing.
"""

import numpy as np

from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.costs.accelerators import Accelerator
from rostam_py.fabrics.fabric import Fabric

MOST_CHANNELS = 32  # MAXCHANNELS of NCCL before 2.27
# Bytes of the buffer for each thread, below which a collective takes fewer channels, by protocol; threads of a channel.
_LEAST_BYTES = {"LL": 8, "LL128": 8, "Simple": 64}
_NUM_THREADS = 512
_DOUBLED_BELOW = 16


def taken_share(
    fabric: Fabric, key: ScheduleKey, num_bytes: int, accelerators: np.ndarray, device: Accelerator
) -> float:
    """Return the share of a device's multiprocessors that a collective holds, 0 to 1. Args: see num_channels."""
    if not device.multiprocessors:
        return 0.0
    return min(1.0, num_channels(fabric, key, num_bytes, accelerators) / device.multiprocessors)


def num_channels(fabric: Fabric, key: ScheduleKey, num_bytes: int, accelerators: np.ndarray) -> int:
    """Return the channels that NCCL runs a collective of ``num_bytes`` in, 0 on links without a class.

    Model: inside a server those of the link class; between servers two for each NIC of the ranks of a server, and as
        many again on Hopper and later while there are fewer than 16. An all-to-all is point-to-point: channels rounded
        up to a power of two, at most two for each peer between servers. Copies (of tensor-parallel parts) are those of
        copy engines, which take no multiprocessor.
    Args:
        num_bytes: as in MODEL A4.
        accelerators: of the ranks, int array (ranks,).
    Source: NVIDIA/nccl: ncclTopoPostset in src/graph/connect.cc; ncclTopoGetNchannels and ncclTopoComputeP2pChannels in
        src/graph/paths.cc; topoGetAlgoInfo (fewer channels for few bytes). Copies: use_ce of Transformer Engine's
        initialize_ub, pytorch/module/base.py.
    """
    inside = fabric.config.link_classes.inside
    if fabric.config.link_classes.are_ideal or key.num_ranks == 1 or key.collective == "copy":
        return 0
    counts = np.unique(accelerators // fabric.config.accelerators_per_server, return_counts=True)[1]
    per_server, num_servers = int(counts.max()), len(counts)
    if num_servers == 1:
        opened = inside.opened.rings
    else:
        opened = min(MOST_CHANNELS, 2 * min(per_server, fabric.config.nics_per_server))
        if inside.opened.doubles and opened < _DOUBLED_BELOW:
            opened *= 2
    if key.collective == "all_to_all":
        most = _power_of_two(opened)
        return most if num_servers == 1 else min(most, 2 * (key.num_ranks - 1))
    if key.collective in ("shift", "send_recv", "halo", "halo_up", "halo_down"):
        return min(2, opened) if num_servers > 1 else inside.message_channels(num_bytes, key.num_ranks)
    if key.algorithm == "nvls":
        return inside.opened.switch
    return max(1, min(opened, num_bytes // (_NUM_THREADS * _LEAST_BYTES[key.protocol or "Simple"])))


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length() if count else 0
