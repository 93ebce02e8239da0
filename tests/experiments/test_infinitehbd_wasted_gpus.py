"""GPUs wasted by whole islands: the recorded trace counted anew, moment by moment, and the order of the networks."""

import csv

import pytest


@pytest.fixture(scope="module")
def study(load_experiment):
    return load_experiment("infinitehbd_wasted_gpus")


def rows_of_the_trace(study):
    """Return (start, end, server) of the file, read by hand [days]."""
    lines = [line for line in study.TRACE.open() if not line.startswith("#")]
    return [(float(row["start_days"]), float(row["end_days"]), int(row["server"])) for row in csv.DictReader(lines)]


def whole(name, tp, down):
    """Return the complete groups of one kind, from the set of servers that are down."""
    if name == "one switch":
        return (400 - len(down)) * 8 // tp
    if name == "NVL72":
        racks = [set(range(first, min(first + 9, 400))) for first in range(0, 400, 9)]
        return sum(len(rack - down) * 8 // tp for rack in racks)
    if name == "cubes of 64":
        return sum(64 // tp for first in range(0, 400, 8) if not down & set(range(first, first + 8)))
    if name == "servers of 8 GPUs":
        return 0
    hops = int(name[0])
    begin = next(k for k in range(400) if all((k + step) % 400 not in down for step in range(hops)))
    arc, gap = 0, 0  # from a place that no break lies at, once round
    broken = []
    for step in range(400):
        if (begin + step) % 400 in down:
            gap += 1
            continue
        if gap >= hops:
            broken.append(arc)
            arc = 0
        gap, arc = 0, arc + 1
    if broken and gap < hops:
        broken[0] += arc
    else:
        broken.append(arc)
    return sum(one * 8 // tp for one in broken)


@pytest.mark.parametrize("tp", [16, 32])
def test_shares_as_the_trace_numbers_servers_are_those_counted_at_every_moment(study, tp):
    rows = rows_of_the_trace(study)
    window = max(end for _, end, _ in rows)
    moments = sorted({0.0, window, *(start for start, _, _ in rows), *(end for _, end, _ in rows)})
    totals = dict.fromkeys(study.KINDS, 0.0)
    for at, then in zip(moments, moments[1:], strict=False):
        down = {server for start, end, server in rows if start <= at < end}
        for name in totals:
            working = (400 - len(down)) * 8
            totals[name] += (then - at) * (1 - whole(name, tp, down) * tp / working)
    faults = study.FaultTrace.read(study.TRACE, num_servers=400)
    for name, total in totals.items():
        found = study.wasted_share(faults, study.KINDS[name], tp=tp)
        assert found == pytest.approx(total / window, rel=1e-9), name


def test_rings_waste_least_and_whole_cubes_most(study):
    faults = study.FaultTrace.read(study.TRACE, num_servers=400)
    found = {name: study.wasted(faults, kind, 32, orders=2) for name, kind in study.KINDS.items()}
    means = [found[name].mean for name in ("one switch", "3-hop ring", "2-hop ring", "NVL72", "cubes of 64")]
    assert means == sorted(means)
    assert found["servers of 8 GPUs"].mean == 1
    assert found["cubes of 64"].numbered < min(found["cubes of 64"].shuffled)  # faulty servers are neighbours there
