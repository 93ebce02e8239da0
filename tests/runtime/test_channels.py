"""Channels are what they are called: slots beyond 8 and 16 bits, hashed paths, messages that would be mixed up."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError

MS = 10**9
NUM_SLOTS = 520


def star(routing="spray", first_slot=0, num_slots=NUM_SLOTS):
    """Devices 0 and 1 of four send to 2 and 3 on many slots: 1 to 3 on the last one, 0 to 2 on the one 256 below it.

    What 0 sends takes 1 ms, what 1 sends 3 ms: on links of their own. A device number packed above 8 bits of slot
    makes the first one (0, last slot) and the second (1, last slot - 256).
    """
    core = _core.TaskGraph(["x"])
    slots = np.full((4, num_slots, 3), -1, np.int32)
    low, high = first_slot + 3, first_slot + 3 + 256
    slots[0, high, 2], slots[1, low, 2], slots[2, 0, 2], slots[3, 0, 2] = 2, 2, 0, 1

    def columns(slot, size):
        return [2], [slot], [0], [-1], [slot], [size], [0], [0, 0], []

    sends = [core.add_template(*columns(high, 1_000_000)), core.add_template(*columns(low, 3_000_000))]
    recvs = [core.add_template([3, 3], [0, 0], [0, 0], [-1, -1], [high, low], [0, 0], [0, 0], [0, 0, 0], []),
             core.add_template([], [], [], [], [], [], [], [0], [])]  # fmt: skip
    programs = [core.add_program([t], [0]) for t in (*sends, *recvs)]
    core.add_devices(np.arange(4), programs, np.zeros(4), np.ones(4), np.zeros(4), slots)
    core.freeze()
    return core


def test_a_message_on_slot_256_takes_its_own_route():
    # On a ring 0 - 1 - 2 - 3, 1 GB/s a link. 1 -> 2 takes 3 ms on link 1 -> 2. 0 -> 2 may go either way round; it is
    # routed over 0 -> 1 -> 2 and 0 -> 3 -> 2, half each. Device 1's packed key (1, 3) equals device 0's (0, 259).
    fabric = rostam.fabric("torus", dims=(4, 1), link_bandwidth=1e9, link_latency=0.0)
    raw = _core.run_session(star(), fabric.router("spray", enable_bundling=False), fold=False)
    links = fabric.links
    carried = {
        (int(s), int(d)): round(b) for s, d, b in zip(links["src"], links["dst"], raw["link_bytes"], strict=True) if b
    }
    assert carried == {(0, 1): 500_000, (0, 3): 500_000, (1, 2): 3_500_000, (3, 2): 500_000}


@pytest.mark.parametrize("fold", [True, False])
def test_hashed_routes_do_not_depend_on_slot_numbers(fold):
    fabric = rostam.fabric("torus", dims=(4, 4), link_bandwidth=1e9)
    runs = [
        _core.run_session(star(first_slot=shift), fabric.router("hash"), fold=fold, seed=5)["link_bytes"].tolist()
        for shift in (0, 1, 200)
    ]
    assert runs[0] == runs[1] == runs[2]


def test_slots_beyond_16_bits_are_slots_of_their_own():
    fabric = rostam.fabric("torus", dims=(4, 1), link_bandwidth=1e9, link_latency=0.0)
    core = star(first_slot=65_536, num_slots=66_000)
    raw = _core.run_session(core, fabric.router("spray"), fold=False)
    assert raw["jobs"][0]["iteration_ends_ps"].tolist() == [0, 3_500_000_000]


def two_sends(graph, microbatches, num_receives=1):
    g = graph(2)
    first = g.template(g.send(0, 8))
    g.peer(0, 1)
    g.peer(1, 0)
    second = g.template(*[g.recv(0)] * num_receives, g.compute(1, deps=[0]))
    g.devices([g.program(*[(first, m) for m in microbatches]), g.program((second, 0))])
    return g


def test_two_sends_of_a_channel_and_micro_batch_are_refused(graph):
    with pytest.raises(ConfigError, match="program 0 sends channel 0 of micro-batch 3 twice in one iteration"):
        two_sends(graph, [0, 3, 1, 3]).run()
    with pytest.raises(ConfigError, match="program 1 receives channel 0 of micro-batch 0 twice"):
        two_sends(graph, [0], num_receives=2).run()


def test_two_devices_that_send_one_message_are_told(graph):
    g = graph(3)
    send, late = g.template(g.send(0, 8)), g.template(g.compute(10**9), g.recv(0))
    for source in (0, 1):
        g.peer(source, 2)
    g.devices([g.program(send), g.program(send), g.program(g.template(g.compute(10**9)), late)])
    with pytest.raises(ConfigError, match="two messages on channel 0 of micro-batch 0 come to accelerator 2"):
        g.run()
