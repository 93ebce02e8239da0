"""Rates of sums through full tables, against a switch that is walked packet by packet.

p accelerators on one switch, each with a link up and one down that sends one packet after another. A packet of a sum
takes an entry of the switch's table from its request (pull), or a credit for it (push), until its last operand has
come; then the sum goes down. Operands are integers, ties go in a drawn order, and every accelerator must end with all
sums.
"""

import heapq
import random

import pytest

import rostam_py as rostam

RATE = 10e9
PACKET = 128
HOP_S = 1e-6
ACCESS_S = 0.5e-6


class Wire:
    """A link that sends a packet at a time; ``send`` returns when one that is there at ``now`` is through."""

    def __init__(self):
        self.free = 0.0

    def send(self, now):
        self.free = max(self.free, now) + PACKET / RATE
        return self.free


class Switch:
    """Walks an all-reduce through one switch with ``entries`` entries, in the order of events; sums what comes."""

    def __init__(self, size, packets, entries, is_pull, seed):
        rng = random.Random(seed)
        self.size, self.packets, self.entries, self.is_pull = size, packets, entries, is_pull
        self.up, self.down = ([Wire() for _ in range(size)] for _ in range(2))
        self.data = [[rng.randrange(-(2**40), 2**40) for _ in range(size * packets)] for _ in range(size)]
        self.held = [[None] * (size * packets) for _ in range(size)]
        self.waiting, self.events, self.order = [], [], 0
        self.sums, self.count = {}, {}
        self.end = 0.0
        # Owners' packets in turn: all shares are summed at once. Ties go by a drawn number.
        self.todo = [owner * packets + k for k in range(packets) for owner in range(size)]
        self.rng = rng

    def at(self, time, what, *more):
        heapq.heappush(self.events, (time, self.rng.random(), self.order, what, more))
        self.order += 1

    def run(self):
        self.start(0.0)
        while self.events:
            now, _, _, what, more = heapq.heappop(self.events)
            what(now, *more)
        total = [sum(column) for column in zip(*self.data, strict=True)]
        assert self.held == [total] * self.size
        return self.end

    def start(self, now):
        """Give free entries to the next packets; accelerators inject at once what has one."""
        while self.todo and len(self.sums) < self.entries:
            packet = self.todo.pop(0)
            self.sums[packet], self.count[packet] = 0, 0
            for source in range(self.size):
                # A request goes to every accelerator, which reads its memory; a push is credited the same way.
                ready = now + HOP_S + (ACCESS_S if self.is_pull else 0.0)
                self.at(ready, self.inject, source, packet)

    def inject(self, now, source, packet):
        self.at(self.up[source].send(now) + HOP_S, self.add, source, packet)

    def add(self, now, source, packet):
        self.sums[packet] += self.data[source][packet]
        self.count[packet] += 1
        if self.count[packet] < self.size:
            return
        value = self.sums.pop(packet)
        if self.is_pull:
            owner = packet // self.packets
            self.at(self.down[owner].send(now) + HOP_S, self.write, owner, packet, value)
        else:
            self.spread(now, packet, value)
        self.start(now)

    def write(self, now, owner, packet, value):
        self.at(self.up[owner].send(now) + HOP_S, self.spread, packet, value)

    def spread(self, now, packet, value):
        for target in range(self.size):
            self.at(self.down[target].send(now) + HOP_S, self.keep, target, packet, value)

    def keep(self, now, target, packet, value):
        assert self.held[target][packet] is None
        self.held[target][packet] = value
        self.end = now


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("algorithm", ["pull", "push"])
@pytest.mark.parametrize("share", [0.25, 0.4, 0.6])
def test_full_tables_slow_sums_as_packets_walked_one_by_one(algorithm, share, seed):
    size, packets, is_pull = 4, 400, algorithm == "pull"
    held = RATE * (2 * HOP_S + (ACCESS_S if is_pull else 0.0))
    entries = round(share * held / PACKET)
    walked = Switch(size, packets, entries, is_pull, seed).run()
    num_bytes = size * packets * PACKET
    fabric = rostam.fabric(
        "electrical_flat", num_accelerators=size, accelerator_bandwidth=RATE, in_network_reduction=True,
        latency=2 * HOP_S, reduction_memory=ACCESS_S, reduction_table=entries * PACKET,
    )  # fmt: skip
    time_s = rostam.run_collective(fabric, "all_reduce", num_bytes=num_bytes, algorithm=algorithm).time_s
    # Without what the first packet takes: a credit or request, data, a sum, of a pull a write and its copy; barriers.
    if is_pull:
        walked, time_s = walked - 5 * HOP_S - ACCESS_S, time_s - 8 * HOP_S - ACCESS_S
    else:
        walked, time_s = walked - 3 * HOP_S, time_s - 4 * HOP_S - ACCESS_S
    assert time_s == pytest.approx(num_bytes / RATE / share, rel=0.02)
    assert walked == pytest.approx(time_s, rel=0.05)
