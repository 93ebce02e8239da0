"""Parts that fail while packets are under way: everything arrives, once, or the error says who is cut off."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import PacketOptions
from rostam_py.errors import ConfigError, NoRouteError

FABRICS = [
    ("torus", {"dims": (4, 4)}),
    ("torus", {"dims": (7,)}),
    ("hammingmesh", {"board": (2, 2), "boards": (3, 2)}),
    ("hyperx", {"dims": (3, 3), "terminals": 2}),
    ("fat_tree", {"num_accelerators": 24, "radix": 8}),
    ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 4}),
    ("dragonfly", {"routers_per_group": 4, "terminals_per_router": 1, "global_links_per_router": 1, "num_groups": 5}),
    ("slim_fly", {"q": 3, "terminals_per_switch": 1}),
]
ROUTINGS = ("spray", "hash", "adaptive", "up_down", "valiant", "ugal", "layers", "dfsssp", "turns")
MORE_CHANNELS = ("dfsssp", "layers")  # after failures than before


def run_case(seed):
    """Flows of a random case in which up to three parts fail. Returns how many bytes links carried in vain."""
    rng = np.random.default_rng(seed)
    name, parameters = FABRICS[rng.integers(len(FABRICS))]
    fabric = rostam.fabric(name, link_bandwidth=5e10, **parameters)
    routing = ROUTINGS[rng.integers(len(ROUTINGS))]
    count = 20
    src = rng.integers(0, fabric.num_accelerators, count)
    dst = (src + rng.integers(1, fabric.num_accelerators, count)) % fabric.num_accelerators
    sizes = rng.integers(1, 400_000, count)
    events = []
    for _ in range(int(rng.integers(1, 4))):
        kind = "links" if rng.random() < 0.7 or fabric.num_switches == 0 else "switches"
        total = fabric.num_links if kind == "links" else fabric.num_switches
        start = float(rng.uniform(0, 20e-6))
        repair = start + float(rng.uniform(1e-6, 30e-6)) if rng.random() < 0.3 else None
        events.append(rostam.Failure(time=start, kind=kind, number=int(rng.integers(total)), repair=repair))
    recovery = rostam.Recovery(detection=float(rng.uniform(0, 3e-6)), reroute=float(rng.uniform(0, 5e-6)))
    options = PacketOptions(
        packet_bytes=int(rng.choice([1000, 8192])), crossbar_speedup=int(rng.integers(1, 3)),
        num_vcs=16 if routing in MORE_CHANNELS else None,
    )  # fmt: skip
    try:
        run = rostam.run_flows(
            fabric, src=src, dst=dst, num_bytes=sizes.tolist(), routing=routing, seed=seed, fidelity="packet",
            events=events, recovery=recovery, packets=options, start_s=rng.uniform(0, 10e-6, count).tolist(),
        )  # fmt: skip
    except NoRouteError:
        return None
    assert np.isfinite(run.finish_s).all()
    assert (run.finish_s >= run.sent_s).all()
    links = fabric.links
    span = float(run.finish_s.max())
    assert (run.link_bytes <= links["bandwidth_bytes_per_s"] * span * (1 + 1e-9) + 1e-6).all()
    # What every destination's links brought in more than they took out, is what was sent to it: each byte once.
    arrived = np.zeros(int(max(links["src"].max(), links["dst"].max())) + 1)
    np.add.at(arrived, links["dst"], run.link_bytes)
    np.add.at(arrived, links["src"], -run.link_bytes)
    owed = np.zeros_like(arrived)
    np.add.at(owed, dst, sizes)
    np.add.at(owed, src, -sizes)
    in_vain = arrived - owed  # > 0 where packets were lost, < 0 where they were sent again
    assert abs(in_vain.sum()) < 1e-6
    assert in_vain[fabric.num_accelerators :].min(initial=0) >= 0
    return float(np.maximum(in_vain, 0).sum())


@pytest.mark.parametrize("part", range(4))
def test_what_fails_in_a_run_loses_nothing(part):
    lost = [run_case(seed) for seed in range(50 * part, 50 * (part + 1))]
    assert sum(one is not None for one in lost) > 30
    assert any(one for one in lost)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_what_fails_in_thousands_of_runs_loses_nothing(part):
    assert sum(run_case(seed) is not None for seed in range(1000 + 500 * part, 1500 + 500 * part)) > 250


def test_a_collective_goes_round_what_fails():
    fabric = rostam.fabric("torus", dims=(4, 4), link_bandwidth=5e10)
    how = {"num_bytes": "4 MiB", "algorithm": "ring", "routing": "spray", "fidelity": "packet"}
    whole = rostam.run_collective(fabric, "all_reduce", **how)
    failed = rostam.run_collective(
        fabric, "all_reduce", **how, events=[rostam.Failure(time="20 us", kind="links", number=3)],
        recovery=rostam.Recovery(detection="2 us", reroute="3 us"),
    )  # fmt: skip
    assert failed.bytes_received == whole.bytes_received == failed.bytes_sent
    assert failed.time_s > whole.time_s


def test_a_job_that_loses_an_accelerator_is_restarted_on_a_spare():
    graph = rostam.trace("gpt_125m")
    fabric = rostam.fabric("torus", dims=(3, 3), link_bandwidth=5e10)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=8, accelerators=list(range(8)))
    plan = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal")
    flow, packet = (
        rostam.simulate(
            plan, fidelity=fidelity, events=[rostam.Failure(time="30 ms", kind="accelerators", number=5)],
            recovery=rostam.Recovery(detection="1 ms", restart="1 ms", spares=[8]),
        )
        for fidelity in ("flow", "packet")
    )  # fmt: skip
    assert len(packet.restarts) == len(flow.restarts) == 1
    assert packet.iteration_time_s == pytest.approx(flow.iteration_time_s, rel=0.05)


def test_failures_on_several_planes_are_refused_before_the_run():
    fabric = rostam.fabric("torus", dims=(4, 4), planes=2)
    with pytest.raises(ConfigError, match="fidelity='packet' moves no message that is under way over several planes"):
        rostam.run_flows(
            fabric, src=[0], dst=[5], num_bytes=[10**6], fidelity="packet",
            events=[rostam.Failure(time=1e-6, kind="links", number=0)],
        )  # fmt: skip


def test_routes_that_take_more_virtual_channels_after_failures_say_so():
    # dfsssp has one layer on this HyperX, and two once this cable is gone.
    fabric = rostam.fabric("hyperx", dims=(3, 3), terminals=1, link_bandwidth=5e10)
    for how, layers in ((fabric, 1), (fabric.with_failures(links=[11]), 2)):
        assert rostam.check_dependencies(how, "dfsssp").num_virtual_channels == layers
    src, dst = zip(*((a, b) for a in range(9) for b in range(9) if a != b), strict=True)
    flows = {"src": src, "dst": dst, "num_bytes": [10**6] * len(src), "routing": "dfsssp", "fidelity": "packet"}
    failures = [rostam.Failure(time=1e-6, kind="links", number=11)]
    with pytest.raises(ConfigError, match=r"take more after failures than before; set packets\.num_vcs to more"):
        rostam.run_flows(fabric, **flows, events=failures)
    assert rostam.run_flows(fabric, **flows, events=failures, packets=PacketOptions(num_vcs=2)).finish_s.max() > 1e-6


def lost_global_cable():
    """A Dragonfly with one cable between any two groups, and that of groups 0 and 1."""
    fabric = rostam.fabric("dragonfly", link_bandwidth=5e10, **dict(FABRICS)["dragonfly"])
    links, first, per_group = fabric.links, fabric.num_accelerators, 4
    groups = (np.minimum(links["src"], links["dst"]) - first) // per_group
    others = (np.maximum(links["src"], links["dst"]) - first) // per_group
    (cable,) = np.unique(links["cable"][(groups == 0) & (others == 1)])
    is_global = (groups >= 0) & (groups != others)
    return fabric, int(cable), is_global


def between_groups(fabric, routing, **options):
    """The accelerators of group 0 send 1 MB each to those of group 1."""
    return rostam.run_flows(
        fabric, src=[0, 1, 2, 3], dst=[4, 5, 6, 7], num_bytes=[10**6] * 4, routing=routing, fidelity="packet", **options
    )  # fmt: skip


@pytest.mark.parametrize("routing", ["spray", "hash", "adaptive", "valiant", "ugal", "turns", "up_down"])
def test_a_dragonfly_goes_by_way_of_a_third_group(routing):
    fabric, cable, is_global = lost_global_cable()
    failed = fabric.with_failures(links=[cable])
    carried = between_groups(failed, routing).link_bytes[is_global].sum()
    if routing in ("spray", "hash", "adaptive"):
        assert carried == 2 * 4 * 10**6  # two global cables for each byte, one while theirs is there
    else:
        assert carried >= 2 * 4 * 10**6
    broken = between_groups(fabric, routing, events=[rostam.Failure(time=1e-6, kind="links", number=cable)])
    assert np.isfinite(broken.finish_s).all()
    whole = between_groups(fabric, routing)
    assert whole.link_bytes[fabric.links["cable"] == cable].max() > 10**6
    assert broken.link_bytes[fabric.links["cable"] == cable].max() < 10**5


# Local cables are taken in phases 0 and 1, before and behind a global one; where walks may be detours in three more,
# before any, behind one and behind two or more global cables. Valiant's paths have all of them twice.
@pytest.mark.parametrize(("routing", "whole", "failing"), [("spray", 2, 5), ("valiant", 4, 10), ("ugal", 4, 10)])
def test_runs_with_failures_have_channels_for_detours(routing, whole, failing):
    fabric, cable, _ = lost_global_cable()
    failures = [rostam.Failure(time=1e-6, kind="links", number=cable)]
    for how, events in ((fabric, failures), (fabric.with_failures(links=[cable]), [])):
        with pytest.raises(ConfigError, match=rf"at least the {failing} that the routing takes"):
            between_groups(how, routing, events=events, packets=PacketOptions(num_vcs=failing - 1))
    for how, events, needed in ((fabric, [], whole), (fabric, failures, failing)):
        fits = PacketOptions(num_vcs=needed, packet_bytes=1000, buffer_bytes=needed * 100_000)
        assert np.isfinite(between_groups(how, routing, events=events, packets=fits).finish_s).all()


def test_circuits_that_are_set_anew_in_the_run_are_refused():
    fabric = rostam.fabric("sip_ocs", num_accelerators=8, control="periodic", reconfiguration_delay="2 us")
    with pytest.raises(ConfigError, match="fidelity='packet'"):
        rostam.run_collective(fabric, "all_reduce", num_bytes="1 MiB", algorithm="ring", fidelity="packet")
