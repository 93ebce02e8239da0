"""Groups all of whose ranks one simulated device stands for: their collectives are as if they had sent messages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SCHEDULES = [
    ("all_reduce", "halving_doubling"), ("all_gather", "bruck"), ("all_to_all", "bruck"),
    ("all_to_all", "balanced_shift"), ("all_to_all", "direct"), ("all_reduce", "swing"), ("all_reduce", "ring"),
    ("all_reduce", "binomial_tree"),
]  # fmt: skip
SIZES = st.one_of(st.integers(0, 50), st.integers(0, 40_000))


def pipeline(graph, num_stages, p, tasks, alpha_ps, num_microbatches, slowdown=None):
    """Return stages of p ranks that do the same, each rank sending to its like in the next stage.

    tasks: of every stage, (kind, size, kernel): a collective of the group by that schedule, or a message onwards.
    """
    g = graph(num_stages * p, alpha_ps=alpha_ps)
    for stage in range(num_stages):
        g.group(*range(stage * p, stage * p + p))
        for rank in range(p) if stage + 1 < num_stages else ():
            g.peer(stage * p + rank, stage * p + rank + p)
    programs = []
    schedules = {kind: g.core.add_schedule(*kind, p) for kind, _, _ in tasks if kind != "message"}
    for stage in range(num_stages):
        body = []
        for channel, (kind, size, kernel) in enumerate(tasks):
            last = [len(body) - 1] if body else []
            body.append(g.compute(kernel * (stage + 1), last))
            if kind != "message":
                body.append(("collective", 0, 0, schedules[kind], -1, size, 0, (len(body) - 1,)))
                continue
            if stage > 0:
                body.append(g.recv(channel))
            if stage + 1 < num_stages:
                body.append(g.send(channel, size, [len(body) - 2 if stage > 0 else len(body) - 1]))
        template = g.template(*body)
        programs.append(g.program(*((template, m) for m in range(num_microbatches))))
    g.devices(np.repeat(programs, p), slowdown)
    return g


def run(graph, job, *, fold, shortcuts, **options):
    return pipeline(graph, *job).run(fold=fold, shortcuts=shortcuts, **options)


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    num_stages=st.integers(1, 4),
    p=st.sampled_from((2, 3, 4, 8)),
    alpha_ps=st.sampled_from((0, 300, 20_000)),
    num_microbatches=st.integers(1, 4),
)
def test_groups_end_as_message_by_message(graph, data, num_stages, p, alpha_ps, num_microbatches):
    kinds = [kind for kind in SCHEDULES if kind[1] != "swing" or p in (2, 4, 8)]
    tasks = data.draw(
        st.lists(
            st.tuples(st.one_of(st.sampled_from(kinds), st.just("message")), SIZES, st.integers(0, 40_000)),
            min_size=1, max_size=5,
        )
    )  # fmt: skip
    options = data.draw(st.fixed_dictionaries({
        "min_collective_ps": st.sampled_from((0, 30_000, 5_000_000)),
        "comm_compute_fraction": st.sampled_from((0.0, 0.25)),
        "launch_latency_ps": st.sampled_from((0, 700)),
        "num_planes": st.integers(1, 2),
    }))  # fmt: skip
    options["min_iterations"] = options["max_iterations"] = data.draw(st.integers(1, 3))
    job = num_stages, p, tasks, alpha_ps, num_microbatches
    whole = run(graph, job, fold=False, shortcuts=False, **options)
    folded = run(graph, job, fold=True, shortcuts=False, **options)
    fast = run(graph, job, fold=True, shortcuts=True, **options)
    for raw in (folded, fast):
        assert raw["ends"] == whole["ends"]
        assert raw["device_end_ps"].tolist() == whole["device_end_ps"].tolist()
        for key in ("sent_bytes", "received_bytes", "num_messages"):
            assert np.asarray(raw[key]).tolist() == np.asarray(whole[key]).tolist()
        np.testing.assert_allclose(raw["link_bytes"], whole["link_bytes"], rtol=1e-9, atol=1e-3)
        np.testing.assert_allclose(raw["link_busy_s"], whole["link_busy_s"], rtol=1e-9, atol=1e-15)
        assert raw["breakdown"] == whole["breakdown"]


@pytest.mark.parametrize("p", [2, 4, 8])
def test_halving_and_doubling_on_quiet_links_is_an_event_and_ends_as_by_hand(graph, p):
    # 2 log2(p) steps of a latency, and S/2 + S/4 + ... = (1 - 1/p) S twice, at a byte in 1,000 ps.
    size, alpha_ps = 1000 * p, 500
    raw = run(graph, (1, p, [(("all_reduce", "halving_doubling"), size, 7)], alpha_ps, 1), fold=True, shortcuts=True,
              min_iterations=1, max_iterations=1)  # fmt: skip
    steps = 2 * int(np.log2(p))
    assert raw["ends"][1] == 7 + steps * alpha_ps + 2 * (size - size // p) * 1000
    assert raw["num_solves"] == 0


def test_a_message_on_the_links_disturbs_and_they_go_on_quietly_behind_it(graph):
    # Stage 0 sends 1,000 bytes on and begins an all-reduce of 400 at once: both share its link while the message lasts.
    job = 2, 4, [("message", 1000, 0), (("all_reduce", "halving_doubling"), 40_000, 0)], 0, 1
    whole = run(graph, job, fold=False, shortcuts=False, min_iterations=1, max_iterations=1)
    fast = run(graph, job, fold=True, shortcuts=True, min_iterations=1, max_iterations=1)
    assert fast["ends"] == whole["ends"]
    # By hand: 1,000 bytes of each in 2 us; then 19,000 + 10,000 + 10,000 + 20,000 bytes alone.
    assert fast["ends"][1] == 2_000_000 + 59_000_000
    assert 0 < fast["num_solves"] <= 4
