"""Traffic and circuits of sip_ml plans: bytes conserved, degrees recounted, nothing left waiting."""

import random
from collections import Counter
from functools import partial

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import DegreeError
from rostam_py.plan import Machine, Strategy
from rostam_py.simulation import TaskGraph

place = partial(rostam.place, software="ideal", cost="roofline")  # quanta here are set for data-sheet times
MODELS = ("perceptron", "wide_perceptron", "conv_net", "tied_autoencoder", "gpt_125m", "transformer_350m")


def machine(count, fabric="electrical_flat", **params):
    """Return V100s on a fabric at 1 Tb/s each."""
    built = rostam.fabric(fabric, num_accelerators=count, accelerator_bandwidth="1 Tb/s", **params)
    return Machine(fabric=built, accelerator="v100_32gb", min_kernel_time="0 s")


def sip(**options):
    """Return a strategy of Algorithm 1 that ignores memory and does not floor kernel times."""
    return Strategy.of(**({"placer": "sip_ml", "check_memory": False} | options))


def recounted(plan):
    """Return (sender, receiver) -> bytes, from the templates and the ring's closed form, without plan.traffic.

    A ring all-reduce of S bytes over p ranks sends 2 (p - 1) chunks of ceil(S / p) from every rank to the next.
    """
    pairs = Counter()
    num_groups = plan.strategy.dp
    accelerators = plan.accelerators[:, :, 0].tolist()
    for stage in plan.stages:
        for task in stage.templates["iteration"]:
            if task.kind not in ("send", "collective"):
                continue
            for d in range(num_groups):
                own = accelerators[d][stage.index]
                if task.kind == "send":
                    pairs[own, accelerators[d][stage.index + task.peer]] += task.num_bytes
                elif num_groups > 1:
                    following = accelerators[(d + 1) % num_groups][stage.index]
                    pairs[own, following] += 2 * (num_groups - 1) * -(-task.num_bytes // num_groups)
    return pairs


def degree_of(pairs):
    """Return the most distinct peers of one accelerator, outgoing or incoming."""
    out, into = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return max([*out.values(), *into.values()], default=0)


def check_messages(plan):
    """Check that every recv has exactly one send of its size, and the other way round."""
    sent, received = Counter(), Counter()
    for stage in plan.stages:
        for task in stage.templates["iteration"]:
            peer = stage.index + task.peer
            if task.kind == "send":
                sent[stage.index, peer, task.channel, task.num_bytes] += 1
            elif task.kind == "recv":
                received[peer, stage.index, task.channel, task.num_bytes] += 1
    assert sent == received
    assert set(sent.values()) <= {1}


def check_windows(plan, degree):
    """Check from the messages themselves that nobody sends out of range (MODEL D14)."""
    k, is_paper = plan.strategy.mp, plan.strategy.placing.window == "paper"
    delta = degree - 1 if plan.strategy.dp > 1 else degree  # a circuit is the data-parallel ring's
    for stage in plan.stages:
        for task in stage.templates["iteration"]:
            if task.kind == "send":
                step = task.peer % k
                assert (step if is_paper else min(step, k - step)) <= (delta if is_paper else delta // 2)


def random_strategy(rng, is_beyond):
    """Return a strategy whose mp exceeds its circuits if ``is_beyond``."""
    window = rng.choice(["symmetric"] * 4 + ["paper"])
    degree = rng.randint(3 if window == "symmetric" else 2, 9)
    mp = degree + rng.randint(1, 8) if is_beyond else rng.randint(1, degree)
    return sip(
        dp=rng.randint(1, 4), mp=mp, max_circuit_degree=degree, window=window,
        quantum=rng.choice(["0.2 us", "1 us", "5 us"]),
    )  # fmt: skip


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_circuit_degree_of_random_plans_is_kept_and_no_dependency_is_left_open(small_graphs, count):
    rng = random.Random(11)
    num_beyond = num_spread = num_relocated = num_simulated = 0
    names = Counter()
    for case in range(count):
        strategy = random_strategy(rng, is_beyond=case % 5 < 3)
        graph = small_graphs[rng.choice(MODELS)]
        batch = strategy.dp * rng.choice([1, 2, 3, 4, 8, 64])
        plan = place(graph, machine(strategy.num_ranks), global_batch=batch, strategy=strategy)
        pairs, degree = recounted(plan), strategy.max_circuit_degree
        assert degree_of(pairs) <= degree, case
        assert plan.circuit_degree == degree_of(pairs), case
        traffic = zip(plan.traffic.src.tolist(), plan.traffic.dst.tolist(), plan.traffic.num_bytes, strict=True)
        assert {(a, b): size for a, b, size in traffic} == dict(pairs), case
        check_messages(plan)
        names[graph.name] += 1
        if strategy.mp - 1 > degree - (strategy.dp > 1):
            num_beyond += 1
            check_windows(plan, degree)
            num_relocated += plan.details.placed.num_relocations > 0
            num_spread += len({d for devices in plan.details.placed.devices for d in devices}) > 2
        if case % 20 == 0:
            result = rostam.simulate(plan, max_iterations=2)  # ends: else DeadlockError
            assert result.iteration_time_s > 0
            num_simulated += 1
    assert num_beyond >= 0.5 * count
    assert num_spread > 0.3 * count  # most of them exchange data between several devices
    assert num_relocated > 0.04 * count
    assert num_simulated == count // 20
    assert len(names) == len(MODELS)


@pytest.mark.parametrize("fabric", ["electrical_flat", "sip_ocs"])
@pytest.mark.parametrize(("dp", "mp", "model"), [(1, 4, "gpt_125m"), (2, 4, "transformer_350m"), (4, 2, "perceptron")])
def test_traffic_sums_to_what_a_run_sends_and_receives(small_graphs, fabric, dp, mp, model):
    strategy = sip(dp=dp, mp=mp, quantum="1 us")
    plan = place(small_graphs[model], machine(dp * mp, fabric), global_batch=8 * dp, strategy=strategy)
    result = rostam.simulate(plan)
    assert plan.traffic.total_bytes == sum(result.bytes_sent.values()) == sum(result.bytes_received.values()) > 0
    assert plan.traffic.total_bytes == sum(recounted(plan).values())
    assert (result.bytes_sent["mp"] > 0, result.bytes_sent["dp"] > 0) == (True, dp > 1)


@pytest.mark.parametrize(("dp", "mp", "num_ocs"), [(2, 4, 16), (2, 8, 5), (3, 6, 6)])
def test_optical_links_carry_the_pairs_of_the_plan_and_no_others(small_graphs, dp, mp, num_ocs):
    plan = place(
        small_graphs["transformer_350m"], machine(dp * mp, "sip_ocs", num_ocs=num_ocs), global_batch=8 * dp,
        strategy=sip(dp=dp, mp=mp),
    )  # fmt: skip
    result = rostam.simulate(plan)
    fabric = plan.fabric_with_circuits()
    links = fabric.links
    used = result.link_bytes > 0
    assert used.any()
    # Every circuit is a link from one accelerator to another; sum the bytes of parallel ones.
    pairs = Counter()
    ends = zip(np.asarray(links["src"])[used], np.asarray(links["dst"])[used], result.link_bytes[used], strict=True)
    for src, dst, size in ends:
        pairs[int(src), int(dst)] += float(size)
    expected = dict(zip(zip(plan.traffic.src.tolist(), plan.traffic.dst.tolist(), strict=True),
                        plan.traffic.num_bytes.tolist(), strict=True))  # fmt: skip
    assert set(pairs) == set(expected)
    assert pairs == pytest.approx(expected, rel=1e-9)
    assert degree_of(pairs) <= num_ocs


def test_perceptron_in_columns_and_rows_sends_what_a_count_by_hand_says(perceptron):
    # Batch 4, k = 4. y (1,024 bytes): each of four parts gets its quarter of three other summands, 4 x 3 x 256. Its
    # gradient is gathered, 4 x 3 x 256. The loss gradient's factor (one part, device 0) is scattered, 3 x 256.
    plan = place(perceptron, machine(4), global_batch=4, strategy=sip(mp=4, quantum="0.2 us"))
    assert plan.traffic.total_bytes == 3072 + 3072 + 768
    assert plan.traffic_matrix.sum(axis=1).tolist() == [768 + 1536, 1536, 1536, 1536]
    # Two groups: each device's quarter of both weights, 32,768 bytes, is sent once in halves and once back.
    twice = place(perceptron, machine(8), global_batch=8, strategy=sip(dp=2, mp=4, quantum="0.2 us"))
    assert twice.traffic.total_bytes == 2 * 6912 + 8 * 2 * 16384


def test_groups_exchange_data_inside_themselves_and_rings_join_counterparts(small_graphs):
    plan = place(small_graphs["perceptron"], machine(12), global_batch=12, strategy=sip(dp=3, mp=4, quantum="0.2 us"))
    groups = plan.traffic.src // 4, plan.traffic.dst // 4
    inside = groups[0] == groups[1]
    across = ~inside
    assert inside.any()
    assert across.sum() == 12
    assert np.array_equal(plan.traffic.dst[across], (plan.traffic.src[across] + 4) % 12)


def test_too_few_circuits_are_refused_before_any_work():
    # A symmetric window needs one circuit on either side and the ring's.
    for degree, window in ((1, "symmetric"), (2, "symmetric"), (1, "paper")):
        strategy = sip(dp=2, mp=4, max_circuit_degree=degree, window=window)
        with pytest.raises(DegreeError, match=rf"strategy\.mp is 4.* only {degree} circuits.*Allow \d or more"):
            place(None, machine(8), global_batch=8, strategy=strategy)  # the graph is not looked at


@pytest.mark.parametrize(("degree", "mp"), [(1, 1), (2, 2), (3, 4)])
def test_the_fewest_circuits_that_work(small_graphs, degree, mp):
    plan = place(
        small_graphs["wide_perceptron"], machine(4 * mp), global_batch=32,
        strategy=sip(dp=4, mp=mp, max_circuit_degree=degree, quantum="1 us"),
    )  # fmt: skip
    assert 1 <= plan.circuit_degree <= degree
    assert rostam.simulate(plan).iteration_time_s > 0


def test_an_all_reduce_with_more_peers_than_circuits_is_refused(perceptron):
    # Halving and doubling over 8 ranks meets 3 peers.
    strategy = sip(dp=8, max_circuit_degree=2, algorithms={"all_reduce": "halving_doubling"})
    with pytest.raises(DegreeError, match=r"sends to 3 .* strategy\.max_circuit_degree allows it 2"):
        place(perceptron, machine(8), global_batch=8, strategy=strategy)
    with pytest.raises(DegreeError, match=r"sends to 3 .* sip_ocs gives it 2"):
        place(
            perceptron, machine(8, "sip_ocs", num_ocs=2), global_batch=8,
            strategy=sip(dp=8, algorithms={"all_reduce": "halving_doubling"}),
        )  # fmt: skip


def test_a_limit_on_circuits_holds_for_megatron_too(perceptron):
    # Rings: one peer in the pair of tp and one in the group of dp.
    degrees = {"dp": 4, "tp": 2}
    with pytest.raises(DegreeError, match=r"sends to 2 and receives from 2 .*max_circuit_degree allows it 1 circuit;"):
        place(perceptron, machine(8), global_batch=8, strategy=Strategy.of(**degrees, max_circuit_degree=1))
    plan = place(perceptron, machine(8), global_batch=8, strategy=Strategy.of(**degrees, max_circuit_degree=2))
    assert plan.circuit_degree == 2


def test_several_plans_share_circuits_set_for_all_of_them(small_graphs):
    shared = machine(12, "sip_ocs")
    plans = [
        place(
            small_graphs[model], shared, global_batch=8,
            strategy=sip(dp=dp, mp=mp, quantum="1 us", allow_idle=True, accelerators=list(ids)),
        )
        for model, dp, mp, ids in (("perceptron", 1, 4, range(4)), ("transformer_350m", 2, 4, range(4, 12)))
    ]  # fmt: skip
    results = rostam.simulate(plans)
    for plan, result in zip(plans, results, strict=True):
        assert sum(result.bytes_sent.values()) == plan.traffic.total_bytes
    carried = TaskGraph.of(plans).machine.fabric.circuits
    joined = set(zip(carried.src.tolist(), carried.dst.tolist(), strict=True))
    both = {pair for plan in plans for pair in zip(plan.traffic.src.tolist(), plan.traffic.dst.tolist(), strict=True)}
    assert joined == both
