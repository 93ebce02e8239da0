"""Collectives through switches that add up and copy: what links carry, and times by the forms of Klenk et al."""

import itertools
import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.collectives.predicted_time import predict_collective_time
from rostam_py.errors import ConfigError

GIB = 2**30
RATE = 150e9  # of a DGX-2's accelerator: six links of 25 GB/s
FORMS = {"ring": lambda p: 2 * (p - 1) / p, "pull": lambda p: 1 + 1 / p, "push": lambda p: 1.0}


def one_switch(size=16, **more):
    return rostam.fabric(
        "electrical_flat", num_accelerators=size, accelerator_bandwidth=RATE, in_network_reduction=True, **more
    )


def leaf_spine(size=128, **more):
    """Return leaves of eight accelerators below eight spines, nonblocking."""
    return rostam.fabric(
        "fat_tree", num_accelerators=size, radix=16, leaf_down=8, leaf_up=8, num_spines=8,
        accelerator_bandwidth=RATE, in_network_reduction=True, **more,
    )  # fmt: skip


def two_boards():
    """Return DGX-2's planes: six of a switch on each of two boards, eight cables between the two."""
    links = [(f"gpu{k}", f"sw{k // 8}") for k in range(16)] + [("sw0", "sw1")] * 8
    return rostam.fabric("custom", links=links, link_bandwidth="25 GB/s", planes=6, in_network_reduction=True)


def run(fabric, algorithm, num_bytes, collective="all_reduce", **more):
    return rostam.run_collective(fabric, collective, num_bytes=num_bytes, algorithm=algorithm, **more)


def port_bytes(fabric, result):
    """Return what every accelerator's links carried out and in, two arrays."""
    links, count = fabric.links, fabric.num_accelerators
    out = np.bincount(links["src"], weights=result.link_bytes, minlength=count)[:count]
    into = np.bincount(links["dst"], weights=result.link_bytes, minlength=count)[:count]
    return out * fabric.planes, into * fabric.planes


@pytest.mark.parametrize("algorithm", FORMS)
@pytest.mark.parametrize("size", [4, 16, 64, 128])
def test_large_all_reduces_move_what_the_paper_counts(algorithm, size):
    fabric = one_switch(size)
    result = run(fabric, algorithm, GIB)
    assert result.time_s == pytest.approx(FORMS[algorithm](size) * GIB / RATE, rel=0.02)
    moved = round(FORMS[algorithm](size) * size) * (GIB // size)
    for carried in port_bytes(fabric, result):
        assert carried == pytest.approx(np.full(size, moved), abs=1e-3)
    assert result.bytes_sent == result.bytes_received == size * moved


def test_gains_over_the_ring_at_sixteen():
    times = {name: run(one_switch(latency=0), name, GIB).time_s for name in FORMS}
    # 2 (p-1)/(p+1) and 2 (p-1)/p.
    assert times["ring"] / times["pull"] == pytest.approx(1.765, abs=0.001)
    assert times["ring"] / times["push"] == pytest.approx(1.875, abs=0.001)


@pytest.mark.parametrize(("control", "factor"), [(0, 9 / 8), (1, 10 / 8)])
def test_packets_put_headers_on_every_algorithms_links(control, factor):
    # 128 B of payload, a header flit of 16 B, and a request or an acknowledgement each way.
    fabric = one_switch(latency=0, reduction_flit="16 B", reduction_control_flits=control)
    for name, form in FORMS.items():
        result = run(fabric, name, GIB)
        assert result.time_s == pytest.approx(factor * form(16) * GIB / RATE, rel=1e-6)
        assert port_bytes(fabric, result)[0].sum() == pytest.approx(factor * result.bytes_sent)


@pytest.mark.parametrize("name", ["pull", "push"])
@pytest.mark.parametrize("speedup", [0.5, 1.0, 1.5, 2.0, 4.0])
def test_switches_below_twice_their_ports_rate_slow_sums_down(name, speedup):
    full = run(one_switch(latency=0), name, GIB).time_s
    slow = run(one_switch(latency=0, reduction_speedup=speedup), name, GIB).time_s
    assert full / slow == pytest.approx(min(1, speedup / 2), rel=1e-6)


@pytest.mark.parametrize("name", ["pull", "push"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0, 3.0])
def test_tables_that_hold_less_than_the_round_trip_slow_sums_down(name, share):
    # One switch: d = 1 hop to the farthest accelerator, t_hop half of the latency end to end.
    hop_s, access_s = 0.5e-6, 0.3e-6
    held = RATE * (2 * 1 * hop_s + (access_s if name == "pull" else 0))
    limits = {"latency": 2 * hop_s, "reduction_memory": access_s}
    table = round(share * held)
    slow = run(one_switch(reduction_table=table, **limits), name, GIB).time_s
    assert slow == pytest.approx(GIB / RATE * max(FORMS[name](16), held / table), rel=0.01)


def test_tables_of_two_levels_hold_three_hops():
    # Leaf, spine, leaf, accelerator: d = 3 of four links, each 20 ns, and three switches of 40.
    latency_s = 4 * 20e-9 + 3 * 40e-9
    held = RATE * 2 * 3 * latency_s / 4
    slow = run(leaf_spine(reduction_table=round(held / 4)), "push", GIB)
    assert slow.time_s == pytest.approx(4 * GIB / RATE, rel=0.01)


def waves_s(num_bytes, wave, count, rate, round_trip_s):
    """Step through waves: each sent behind the one before, at most ``count`` of them not summed yet."""
    summed, free = [], 0.0
    for w in range(num_bytes // wave):
        start = max(free, summed[w - count] if w >= count else 0.0)
        free = start + wave / rate
        summed.append(free + round_trip_s)
    return summed[-1]


@pytest.mark.parametrize(("wave", "count"), [(2**14, 1), (2**16, 1), (2**16, 2), (2**16, 4), (2**20, 1), (2**20, 2)])
def test_few_waves_under_way_leave_links_idle(wave, count):
    latency_s = 1e-6
    fabric = one_switch(latency=latency_s, reduction_wave=wave, reduction_waves=count)
    expected = waves_s(GIB, wave, count, RATE, 2 * latency_s / 2)
    assert run(fabric, "push", GIB).time_s == pytest.approx(expected, rel=0.01)


def test_injection_limits_what_is_sent():
    for name in ("pull", "push"):
        slow = run(one_switch(reduction_injection=0.75), name, GIB).time_s
        assert slow == pytest.approx(FORMS[name](16) * GIB / RATE / 0.75, rel=0.01)
    gathered = run(one_switch(reduction_injection=0.75), "multicast", GIB, "all_gather").time_s
    assert gathered == pytest.approx(GIB / RATE / 0.75, rel=0.01)


@pytest.mark.parametrize(("crossing_ns", "flag_ns", "access_ns"), [(500, 0, 0), (500, 200, 300), (300, 900, 500)])
@pytest.mark.parametrize("size", [2, 4, 16])
def test_small_messages_gain_by_the_crossings_saved(crossing_ns, flag_ns, access_ns, size):
    fabric = one_switch(
        size, latency=crossing_ns * 1e-9, reduction_flag=flag_ns * 1e-9, reduction_memory=access_ns * 1e-9
    )
    times = {name: run(fabric, name, size).time_s for name in FORMS}
    crossing, flag, access = (one * 1e-9 for one in (crossing_ns, flag_ns, access_ns))
    ring, push = 2 * (size - 1) * (crossing + flag), 2 * crossing + access + flag
    assert times["ring"] / times["push"] == pytest.approx(ring / push, rel=0.05)
    assert times["pull"] == pytest.approx(4 * crossing + access + 2 * flag, rel=0.05)


@pytest.mark.parametrize(("crossing_ns", "access_ns"), [(500, 0), (500, 300), (400, 800)])
def test_the_published_gain_of_eighteen_lies_on_a_line(crossing_ns, access_ns):
    # 2 x 15 (L + s) = 18 (2 L + g + s) where 12 s = 6 L + 18 g.
    flag_ns = (crossing_ns + 3 * access_ns) / 2
    fabric = one_switch(latency=crossing_ns * 1e-9, reduction_flag=flag_ns * 1e-9, reduction_memory=access_ns * 1e-9)
    assert run(fabric, "ring", 16).time_s / run(fabric, "push", 16).time_s == pytest.approx(18, rel=0.01)


def test_two_boards_carry_the_buffer_once_between_them():
    fabric = two_boards()
    cut = (fabric.links["src"] == 16) & (fabric.links["dst"] == 17)
    for name in ("pull", "push"):
        result = run(fabric, name, GIB)
        assert result.time_s == pytest.approx(FORMS[name](16) * GIB / RATE, rel=0.02)
        # Sums of one board's eight accelerators one way, results of the other's the other way: S each way.
        assert result.link_bytes[cut].sum() * 6 == pytest.approx(GIB)
    ring = run(fabric, "ring", GIB)
    assert ring.time_s == pytest.approx(FORMS["ring"](16) * GIB / RATE, rel=0.02)


@pytest.mark.parametrize("size", [16, 64, 128])
def test_leaves_and_spines_carry_sums_and_results_once(size):
    fabric = leaf_spine(size)
    links = fabric.links
    for name in ("pull", "push"):
        result = run(fabric, name, GIB)
        assert result.time_s == pytest.approx(FORMS[name](size) * GIB / RATE, rel=0.02)
        for leaf in range(size // 8):
            up = (links["src"] == size + leaf) & (links["dst"] >= size)
            # All owners elsewhere get the leaf's sum, all leaves elsewhere its owners' results: S in all.
            assert result.link_bytes[up].sum() == pytest.approx(GIB)
            assert result.link_bytes[up] == pytest.approx(np.full(8, GIB / 8))


@pytest.mark.parametrize("make", [one_switch, leaf_spine, two_boards])
@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [("all_reduce", "pull"), ("all_reduce", "push"), ("reduce_scatter", "pull"), ("all_gather", "multicast"),
     ("broadcast", "multicast")],
)  # fmt: skip
def test_folded_unfolded_and_predicted_times_agree(make, collective, algorithm):
    fabric = make(16) if make is not two_boards else make()
    num_bytes = 16 * 123_456
    folded, whole = (run(fabric, algorithm, num_bytes, collective, fold=fold) for fold in (True, False))
    assert folded.num_simulated_ranks <= whole.num_simulated_ranks == 16
    assert folded.time_ps == pytest.approx(whole.time_ps, abs=8)
    assert folded.link_bytes == pytest.approx(whole.link_bytes, rel=1e-9)
    assert (folded.bytes_sent, folded.bytes_received) == (whole.bytes_sent, whole.bytes_received)
    predicted = predict_collective_time(fabric, collective, algorithm, num_bytes)
    assert predicted == pytest.approx(whole.time_s, abs=8e-12)


@pytest.mark.parametrize("size", [2, 5, 16])
def test_gathers_scatters_and_broadcasts_carry_the_buffer_once(size):
    fabric, num_bytes = one_switch(size, latency=1e-6), size * 10_000_000
    cases = [
        # what ports carry out and in; crossings; copies of the own data go through the switch as well
        ("reduce_scatter", "pull", size, 1, 3),
        ("all_gather", "multicast", 1, size, 2),
    ]
    for collective, algorithm, out, into, crossings in cases:
        result = run(fabric, algorithm, num_bytes, collective)
        carried = port_bytes(fabric, result)
        assert carried[0] == pytest.approx(np.full(size, out * 10_000_000.0))
        assert carried[1] == pytest.approx(np.full(size, into * 10_000_000.0))
        assert (result.bytes_sent, result.bytes_received) == (size * out * 10_000_000, size * into * 10_000_000)
        assert result.time_s == pytest.approx(num_bytes / RATE + crossings * 1e-6, abs=1e-9)
    result = run(fabric, "multicast", num_bytes, "broadcast")
    out, into = port_bytes(fabric, result)
    assert out.tolist() == pytest.approx([num_bytes] + [0] * (size - 1))
    assert into.tolist() == pytest.approx([num_bytes] * size)
    assert result.time_s == pytest.approx(num_bytes / RATE + 2e-6, abs=1e-9)


def reduced(schedule, data):
    """Carry out every transfer through regions on integers, int array (p, chunks, values); return what ranks then hold.

    A rank owns the chunk of its number, of a broadcast rank 0's all.
    """
    held = data.copy()
    for step in range(schedule.num_steps):
        for rank in range(schedule.num_ranks):
            for op, members, num_chunks in schedule.region_transfers(rank, step):
                if num_chunks == 0:
                    continue
                own = rank % schedule.num_chunks
                value = data[rank, own] if op == "multicast" else data[members, own].sum(axis=0)
                held[[rank] if op == "reduce" else members, own] = value
    return held


@pytest.mark.parametrize("size", [2, 3, 8, 16])
def test_integers_come_out_summed_and_copied(size):
    rng = np.random.default_rng(size)
    data = rng.integers(-(2**40), 2**40, size=(size, size, 3))
    total = data.sum(axis=0)
    for algorithm in ("pull", "push", "nvls"):
        assert (reduced(_core.Schedule("all_reduce", algorithm, size), data) == total).all()
    scattered = reduced(_core.Schedule("reduce_scatter", "pull", size), data)
    gathered = reduced(_core.Schedule("all_gather", "multicast", size), data)
    for rank in range(size):
        assert (scattered[rank, rank] == total[rank]).all()
        assert (gathered[:, rank] == data[rank, rank]).all()
    spread = reduced(_core.Schedule("broadcast", "multicast", size), data[:, :1])
    assert (spread == data[0, 0]).all()


def drawn_tree(rng, num_switches, num_accelerators):
    """Return the cables of a random tree: switches below earlier ones, accelerators below any."""
    cables = [(f"s{k}", f"s{rng.integers(k)}") for k in range(1, num_switches)]
    return cables + [(f"a{k}", f"s{rng.integers(num_switches)}") for k in range(num_accelerators)]


@pytest.mark.parametrize("seed", range(8))
def test_every_cable_of_a_drawn_tree_carries_each_sum_and_each_result_once(seed):
    rng = np.random.default_rng(seed)
    size, chosen = 9, sorted(rng.choice(9, 5, replace=False).tolist())
    fabric = rostam.fabric(
        "custom", links=drawn_tree(rng, 5, size), link_bandwidth="10 GB/s", in_network_reduction=True
    )
    links = fabric.links
    sides = []  # of every link the accelerators behind its start, once the cable is cut
    for src, dst in zip(links["src"], links["dst"], strict=True):
        seen = {src}
        while True:
            more = {
                int(d) for s, d in zip(links["src"], links["dst"], strict=True)
                if s in seen and d not in seen and (s, d) != (src, dst)
            }  # fmt: skip
            if not more:
                break
            seen |= more
        sides.append(seen)
    chunk = 1000
    for collective, algorithm in (
        ("all_reduce", "pull"), ("all_reduce", "push"), ("reduce_scatter", "pull"), ("all_gather", "multicast")
    ):  # fmt: skip
        result = run(fabric, algorithm, chunk * 5, collective, ranks=chosen, fold=False)
        for link, (dst, behind) in enumerate(zip(links["dst"], sides, strict=True)):
            expected = 0
            for owner in chosen:
                is_sum = any(m in behind for m in chosen) and owner not in behind
                is_copy = owner in behind and any(m not in behind for m in chosen)
                is_own = links["src"][link] == owner or dst == owner  # its own data goes up, its copy comes down
                if algorithm == "push":
                    expected += bool(is_sum or is_copy)
                else:
                    adds, copies = collective != "all_gather", collective != "reduce_scatter"
                    expected += adds * (is_sum or (is_own and links["src"][link] == owner))
                    expected += copies * (is_copy or (is_own and dst == owner))
            assert result.link_bytes[link] == pytest.approx(chunk * expected), (collective, algorithm, link)


@pytest.mark.parametrize("board", [(1, 1), (2, 2)])
def test_hammingmesh_reduces_in_its_switches(board):
    fabric = rostam.fabric(
        "hammingmesh", board=board, boards=(4, 4), link_bandwidth="50 GB/s", in_network_reduction=True
    )
    size = fabric.num_accelerators
    for name in ("pull", "push"):
        whole = run(fabric, name, size * 1_000_000, fold=False)
        # Accelerators' links carry at least what each must send, and what they carry is checked against what all sent.
        assert whole.link_bytes.sum() >= size * size * 1_000_000
        assert whole.time_s >= 1_000_000 * size / (4 * 50e9)
        assert run(fabric, name, size * 1_000_000).time_ps == pytest.approx(whole.time_ps, abs=16)


def test_auto_weighs_switches_that_reduce():
    chosen = [
        run(one_switch(), "auto", num_bytes, collective).algorithm
        for collective, num_bytes in itertools.product(("all_reduce", "all_gather", "broadcast"), (1024, GIB))
    ]
    assert chosen == ["push", "push", "multicast", "ring", "multicast", "multicast"]
    # A gather's own chunk comes back through the switch, so that a ring carries less of a large buffer.
    plain = rostam.fabric("electrical_flat", num_accelerators=16, accelerator_bandwidth=RATE)
    assert run(plain, "auto", GIB).algorithm not in ("pull", "push")
    two = run(one_switch(2), "auto", GIB)
    assert two.time_s <= run(one_switch(2), "ring", GIB).time_s


def test_fabrics_that_cannot_are_refused():
    plain = rostam.fabric("electrical_flat", num_accelerators=4)
    with pytest.raises(ConfigError, match=r"do not reduce \(fabric.in_network_reduction\)"):
        run(plain, "push", GIB)
    servers = rostam.fabric("fat_tree", num_accelerators=16, server_size=8, in_network_reduction=True)
    with pytest.raises(ConfigError, match="networks without servers"):
        run(servers, "pull", GIB)
    with pytest.raises(ConfigError, match="fidelity=packet, routing=adaptive and planes"):
        run(one_switch(4), "pull", 4096, fidelity="packet")
    with pytest.raises(ConfigError, match="knows neither flits nor flags"):
        run(one_switch(4, reduction_flit="16 B"), "ring", GIB, fidelity="analytic")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"reduction_speedup": 0}, "reduction_speedup is 0; it must be a number > 0"),
        ({"reduction_injection": 1.5}, "reduction_injection is 1.5; it must be a share"),
        ({"reduction_table": 0}, "reduction_table is 0; it must be at least 1 B"),
        ({"reduction_waves": 0}, "reduction_waves is 0; it must be an integer >= 1"),
        ({"reduction_wave": "8"}, "reduction_wave is '8', a number without a unit"),
        ({"in_network_reduction": 2}, "in_network_reduction is 2; it must be true or false"),
    ],
)
def test_bad_switches_are_refused_by_name(params, words):
    with pytest.raises(ConfigError, match=words):
        rostam.fabric("electrical_flat", num_accelerators=4, **params)


def test_unread_parameters_are_noted():
    fabric = rostam.fabric("electrical_flat", num_accelerators=4, reduction_table="1 MiB")
    notes = rostam.run_collective(fabric, "all_reduce", num_bytes=4096).notes
    assert any("fabric.reduction_table is '1 MiB'" in note for note in notes)


def test_late_ranks_hold_all_others():
    starts = [0.0] * 15 + [1e-3]
    result = run(one_switch(latency=1e-6), "push", 16_000_000, start_s=starts)
    assert result.time_s == pytest.approx(1e-3 + 2e-6 + 16e6 / RATE, abs=1e-9)
    assert (result.finish_s == result.finish_s[0]).all()


def test_failed_spines_leave_trees_over_the_others():
    fabric = leaf_spine(64).with_failures(switches=[8])  # the first of eight spines behind eight leaves
    result = run(fabric, "push", GIB)
    # Seven spines are left for eight accelerators' rate below each leaf, of which a tree needs an eighth.
    assert result.time_s == pytest.approx(GIB / RATE, rel=0.02)
    links = fabric.links
    dead = (links["src"] == 64 + 8) | (links["dst"] == 64 + 8)
    assert result.link_bytes[dead].sum() == 0
    assert math.isclose(result.bytes_sent, result.bytes_received)


def test_engines_and_routings_without_trees_take_other_algorithms():
    fabric = leaf_spine(16)
    assert run(fabric, "auto", 16_384, fidelity="packet").algorithm not in ("pull", "push")
    assert run(fabric, "auto", 16_384, routing="adaptive").algorithm not in ("pull", "push")
    with pytest.raises(ConfigError, match="fidelity=packet, routing=adaptive and planes"):
        run(fabric, "push", 16_384, routing="adaptive")


@pytest.mark.parametrize(
    "how", [{"routing": "adaptive"}, {"routing": "adaptive", "fold": False}, {"fidelity": "packet"}]
)
def test_nvls_is_messages_to_a_neighbour_where_there_are_no_trees(how):
    server = rostam.fabric(
        "fat_tree", num_accelerators=8, server_size=8, server_bandwidth="150 GB/s", in_server_reduction=True
    )
    result, trees = run(server, "nvls", 8_000_000, **how), run(server, "nvls", 8_000_000)
    assert result.time_s == pytest.approx(trees.time_s, rel=0.01)
    assert result.bytes_sent == trees.bytes_sent


def test_spines_that_fail_on_the_way_are_left_for_others():
    fabric = leaf_spine(32)
    events = [rostam.Failure(time=1e-3, kind="switches", number=4)]  # the first spine
    result = run(fabric, "push", 320_000_000, events=events)
    # One link's rate is all that a leaf's sums take, and seven spines have seven of them.
    assert result.time_s == pytest.approx(320e6 / RATE, rel=0.02)
    dead = (fabric.links["src"] == 32 + 4) | (fabric.links["dst"] == 32 + 4)
    others = np.bincount(fabric.links["src"], weights=result.link_bytes)[32 + 5 :]
    assert result.link_bytes[dead].sum() / 2 < 0.6 * others.min()


@pytest.mark.parametrize(("dp", "tp"), [(8, 1), (4, 2), (2, 4)])
def test_plans_fold_and_account_for_every_byte(dp, tp):
    graph = rostam.trace("transformer_350m")
    for make in (one_switch, leaf_spine):
        machine = rostam.Machine(fabric=make(8 if make is one_switch else 16), accelerator="a100_80gb")
        strategy = rostam.Strategy.of(
            dp=dp * (1 if make is one_switch else 2), tp=tp, algorithms={"all_reduce": "push"}
        )
        plan = rostam.place(graph, machine, global_batch=64, strategy=strategy)
        folded, whole = (rostam.simulate(plan, fold=fold) for fold in (True, False))
        assert folded.iteration_time_s == pytest.approx(whole.iteration_time_s, rel=1e-9)
        assert folded.bytes_sent == whole.bytes_sent
        ring = plan_time(graph, machine, strategy.with_keys(algorithms={"all_reduce": "ring"}))
        assert whole.iteration_time_s < ring


def plan_time(graph, machine, strategy):
    return rostam.simulate(rostam.place(graph, machine, global_batch=64, strategy=strategy)).iteration_time_s


def test_planes_that_differ_know_no_trees():
    whole = one_switch(planes=4)
    assert run(whole, "auto", GIB).algorithm == "push"
    broken = whole.with_failures(links=[3])
    assert run(broken, "auto", GIB).algorithm not in ("pull", "push")
    with pytest.raises(ConfigError, match="planes that differ"):
        run(broken, "push", GIB)
    events = [rostam.Failure(time=1e-3, kind="links", number=3)]
    assert run(whole, "auto", GIB, events=events).algorithm not in ("pull", "push")
    server = rostam.fabric(
        "fat_tree", num_accelerators=16, server_size=8, server_bandwidth="150 GB/s", in_server_reduction=True, planes=2
    )
    times = [run(one, "nvls", 8_000_000, ranks=range(8)).time_s for one in (server, server.with_failures(links=[0]))]
    assert times[0] == pytest.approx(times[1], rel=1e-6)  # an uplink of the network is none of theirs


def test_links_that_slow_down_slow_every_rank():
    fabric = one_switch(4, latency=1e-6)
    slower = [rostam.LinkBandwidth(time=0.0, link=0, scale=0.25)]
    result = run(fabric, "push", 40_000_000, events=slower)
    assert result.time_s == pytest.approx(4 * 40e6 / RATE + 2e-6, rel=1e-6)
    assert (result.finish_s == result.finish_s[0]).all()
