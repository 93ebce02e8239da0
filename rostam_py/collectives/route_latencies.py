"""The longest latencies between accelerators, which stand for all where a model has one for each kind of link."""

import weakref

import numpy as np

from rostam_py import _core
from rostam_py.fabrics.fabric import Fabric

_NUM_ROUTES = 256  # whose latencies stand for all
_LATENCIES: "weakref.WeakKeyDictionary[Fabric, tuple[float, float]]" = weakref.WeakKeyDictionary()


def route_latencies(fabric: Fabric) -> tuple[float, float]:
    """Return the longest latency from the first working accelerator to others of its server, and to the rest [s]."""
    if fabric not in _LATENCIES:
        first, *others = sorted(fabric.healthy_accelerators)
        src = np.full(len(others), first, np.int32)
        dst = np.asarray(others, np.int32)
        is_inside = dst // fabric.config.accelerators_per_server == first // fabric.config.accelerators_per_server
        found = []
        for chosen in (is_inside, ~is_inside):
            few = np.flatnonzero(chosen)[:: max(1, int(chosen.sum()) // _NUM_ROUTES)]
            latency_ps, _ = _core.route_costs(fabric.router("spray"), src[few], dst[few], np.ones(len(few)))
            found.append(float(latency_ps.max(initial=0)) * 1e-12)
        _LATENCIES[fabric] = found[0], found[1]
    return _LATENCIES[fabric]
