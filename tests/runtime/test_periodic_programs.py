"""Programs as blocks that repeat: the same runs as explicit lists, checked without writing them out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostam_py import _core
from rostam_py.errors import ConfigError

MS = 10**9


def periodic(core, blocks):
    """blocks: (count, [(template, micro-batch, stride), ...])."""
    entries = [entry for _, block in blocks for entry in block]
    columns = list(zip(*entries, strict=True)) or [(), (), ()]
    offsets = np.concatenate([[0], np.cumsum([len(block) for _, block in blocks])])
    return core.add_program(*columns[:2], stride=columns[2], block_offset=offsets, count=[c for c, _ in blocks])


def written_out(blocks):
    return [(t, m + k * s) for count, block in blocks for k in range(count) for t, m, s in block]


def one_f_one_b(stage, num_stages, m, forward, backward):
    w = min(m, num_stages - 1 - stage)
    return [
        (count, block)
        for count, block in (
            (w, [(forward, 0, 1)]),
            (m - w, [(forward, w, 1), (backward, 0, 1)]),
            (w, [(backward, m - w, 1)]),
        )
        if count
    ]


def pipeline(graph, m, is_periodic, lengths):
    """Three stages: activations go on channel 0 to the next one, gradients on channel 1 back."""
    g = graph(3, num_slots=3)
    programs = []
    for stage, length in enumerate(lengths):
        g.peer(stage, min(2, stage + 1) if stage < 2 else 1, slot=1)
        g.peer(stage, max(0, stage - 1) if stage else 1, slot=2)
        forward = [g.recv(0, slot=2)] if stage else []
        forward.append(g.compute(length, deps=range(len(forward))))
        if stage < 2:
            forward.append(g.send(0, 1_000, deps=[len(forward) - 1]))
        backward = [g.recv(1)] if stage < 2 else []
        backward.append(g.compute(2 * length, deps=range(len(backward))))
        if stage:
            backward.append(g.send(1, 1_000, deps=[len(backward) - 1], slot=2))
        blocks = one_f_one_b(stage, 3, m, g.template(*forward), g.template(*backward))
        programs.append(periodic(g.core, blocks) if is_periodic else g.program(*written_out(blocks)))
    g.devices(programs)
    return g


@settings(max_examples=30, deadline=None)
@given(m=st.integers(1, 9), lengths=st.lists(st.integers(1, 5_000_000), min_size=3, max_size=3))
def test_repeated_blocks_run_as_the_list_that_they_stand_for(graph, m, lengths):
    options = {"min_iterations": 2, "max_iterations": 2}
    whole, short = (pipeline(graph, m, is_periodic, lengths).run(**options) for is_periodic in (False, True))
    assert short["ends"] == whole["ends"]
    assert short["breakdown"] == whole["breakdown"]
    for key, values in whole["timeline"].items():
        np.testing.assert_array_equal(short["timeline"][key], values)


def test_a_program_of_a_thousand_million_micro_batches_takes_no_memory(graph):
    # What 2^30 micro-batches would hold as a list is 8 GB; the first message's collision is found by arithmetic.
    g = graph(2)
    send = g.template(g.send(0, 8))
    g.peer(0, 1)
    g.devices([periodic(g.core, [(2**30, [(send, 0, 1)])]), g.program(g.template(g.compute(1)))])
    g.core.freeze()
    g = graph(2)
    send = g.template(g.send(0, 8))
    g.peer(0, 1)
    g.devices([
        periodic(g.core, [(2**30, [(send, 0, 1)]), (1, [(send, 2**30 - 1, 0)])]),
        g.program(g.template(g.compute(1))),
    ])  # fmt: skip
    with pytest.raises(ConfigError, match=f"program 0 sends channel 0 of micro-batch {2**30 - 1} twice"):
        g.core.freeze()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(-30, 30), st.integers(-7, 7)), min_size=1, max_size=4))
def test_messages_sent_twice_are_found_as_by_writing_them_out(graph, blocks):
    g = graph(2)
    send = g.template(g.send(0, 8))
    g.peer(0, 1)
    blocks = [(count, [(send, first, stride)]) for count, first, stride in blocks]
    sent = [m for _, m in written_out(blocks)]
    g.devices([periodic(g.core, blocks), g.program(g.template(g.compute(1)))])
    if len(set(sent)) == len(sent):
        g.core.freeze()
        return
    with pytest.raises(ConfigError, match=r"sends channel 0 of micro-batch (-?\d+) twice") as said:
        g.core.freeze()
    twice = int(str(said.value).split("micro-batch ")[1].split()[0])
    assert sent.count(twice) > 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([0], [0], [1], [0, 1], [0]), "repeats a block 0 times"),
        (([0], [0], [1], [0, 1], [2**40]), "micro-batches are 32-bit"),
        (([0], [0], [1], [0, 2], [1]), "entries 0 to 2 of 1"),
        (([0], [0], [1], [0, 1], [1, 1]), "columns of 1 and 2 rows"),
        (([0], [0, 1], [1], [0, 1], [1]), "columns of 1 and 2 rows"),
        (([0] * 3, [0] * 3, [0] * 3, [0, 1, 2, 3], [2**62] * 3), r"2\^63"),
    ],
)
def test_blocks_that_cannot_be_are_refused(arguments, said):
    template, microbatch, stride, offset, count = arguments
    with pytest.raises(ConfigError, match=said):
        _core.TaskGraph(["x"]).add_program(template, microbatch, stride=stride, block_offset=offset, count=count)
