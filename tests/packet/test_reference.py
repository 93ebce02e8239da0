"""Random trees of switches against a second simulator, written for clarity alone: one list of what may happen next.

On a tree paths are unique and form no circle, so that one virtual channel is enough. Every link has a bandwidth of its
own and flows begin at odd times, so that no two things that depend on each other happen at once; for that reason ports
feed all outputs at once here (a smaller speed-up is worked out in test_hand_computed.py).
"""

import heapq
import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import PacketOptions

LATENCY, SWITCH = 5_000, 3_000  # ps, of a link and of a switch


@dataclass
class Link:
    """A direction of a cable, what waits at its near end, and the buffer at its far end."""

    rate: float  # bytes/s
    room: int
    free_at: int = 0
    ports: list = field(default_factory=list)  # [port, its items], in the order of their turns
    returns: list = field(default_factory=list)  # (when, bytes) that come back
    bytes: int = 0


@dataclass
class Packet:
    flow: int
    bytes: int
    path: list
    place: int = 0  # on the path, of the link that it waits for
    tail: int = 0


def duration(size, rate):
    return math.ceil(size / rate * 1e12)


class Reference:
    """Flows over links, each along its own path of links."""

    def __init__(self, rates, paths, sizes, starts, options):
        self.options = options
        self.links = [Link(rate, options["buffer_bytes"]) for rate in rates]
        self.paths, self.left = paths, list(sizes)
        self.sent, self.arrived = [0] * len(sizes), [0] * len(sizes)
        self.events, self.order = [], itertools.count()
        for flow, start in enumerate(starts):
            self.at(start, self.next_of, flow)

    def at(self, when, what, *arguments):
        heapq.heappush(self.events, (when, next(self.order), what, arguments))

    def run(self):
        while self.events:
            self.now, _, what, arguments = heapq.heappop(self.events)
            what(*arguments)

    def next_of(self, flow):
        size = min(self.left[flow], self.options["packet_bytes"])
        if size > 0:
            self.line(Packet(flow, size, self.paths[flow]))

    def line(self, packet):
        link = self.links[packet.path[packet.place]]
        port = packet.path[packet.place - 1] if packet.place else "own"
        for known, items in link.ports:
            if known == port:
                items.append(packet)
                break
        else:
            link.ports.append([port, [packet]])
        self.serve(link)

    def serve(self, link):
        """Start the first packet that may go."""
        for when, size in [one for one in link.returns if one[0] <= self.now]:
            link.returns.remove((when, size))
            link.room += size
        if link.free_at > self.now:
            return
        for turn, (port, items) in enumerate(link.ports):
            if link.room < items[0].bytes:
                continue
            packet = items.pop(0)
            link.ports = link.ports[turn + 1 :] + link.ports[:turn] + ([[port, items]] if items else [])
            self.go(link, packet)
            return

    def go(self, link, packet):
        tail = link.free_at = self.now + duration(packet.bytes, link.rate)
        link.room -= packet.bytes
        link.bytes += packet.bytes
        self.at(tail, self.serve, link)
        if packet.place == 0:
            self.left[packet.flow] -= packet.bytes
            self.sent[packet.flow] = tail
            self.next_of(packet.flow)
        else:
            self.give_back(self.links[packet.path[packet.place - 1]], packet.bytes, tail)
        if packet.place + 1 == len(packet.path):
            self.give_back(link, packet.bytes, tail + LATENCY)
            self.arrived[packet.flow] = max(self.arrived[packet.flow], tail + LATENCY)
            return
        packet.place += 1
        packet.tail = tail + LATENCY + SWITCH
        flit = min(self.options["flit_bytes"], packet.bytes)
        head = self.now + LATENCY + SWITCH + (duration(flit, link.rate) if flit else 0)
        onwards = duration(packet.bytes, self.links[packet.path[packet.place]].rate)
        self.at(max(head, packet.tail - onwards), self.line, packet)

    def give_back(self, link, size, tail):
        link.returns.append((tail + LATENCY, size))
        self.at(tail + LATENCY, self.serve, link)


def random_case(seed):
    """A tree of switches with accelerators at them, flows between these, and options."""
    rng = np.random.default_rng(seed)
    num_switches, count = int(rng.integers(1, 5)), int(rng.integers(3, 8))
    rate = lambda: float(rng.integers(1_000_000_000, 9_000_000_000))  # noqa: E731
    cables = [(f"s{s}", f"s{rng.integers(s)}", rate()) for s in range(1, num_switches)]
    cables += [(f"a{a}", f"s{rng.integers(num_switches)}", rate()) for a in range(count)]
    fabric = rostam.fabric(
        "custom", links=[(*one, LATENCY * 1e-12) for one in cables], switch_latency=SWITCH * 1e-12, forwarding=False
    )
    size = int(rng.integers(50, 900))
    options = {
        "packet_bytes": size, "flit_bytes": int(rng.choice([0, 17, size])),
        "buffer_bytes": size * int(rng.integers(1, 5)) + int(rng.integers(size)),
        "crossbar_speedup": 64,
    }  # fmt: skip
    num_flows = int(rng.integers(2, 12))
    src = rng.integers(0, count, num_flows)
    dst = (src + rng.integers(1, count, num_flows)) % count
    sizes = rng.integers(1, 12_000, num_flows)
    starts = rng.integers(0, 2_000_000, num_flows)
    return fabric, options, src, dst, sizes, starts


def paths_of(fabric, src, dst):
    """The links from src to dst, in order, for each flow."""
    links = fabric.links
    found = []
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        line, seen = [(a, [])], {a}
        for at, way in line:
            if at == b:
                found.append(way)
                break
            for k in np.flatnonzero(links["src"] == at).tolist():
                to = int(links["dst"][k])
                if to not in seen:
                    seen.add(to)
                    line.append((to, [*way, k]))
    return found


@pytest.mark.parametrize("part", range(4))
def test_random_trees_take_what_a_second_simulator_says(part):
    for seed in range(100 * part, 100 * (part + 1)):
        fabric, options, src, dst, sizes, starts = random_case(seed)
        run = rostam.run_flows(
            fabric, src=src.tolist(), dst=dst.tolist(), num_bytes=sizes.tolist(), start_s=(starts * 1e-12).tolist(),
            routing="hash", fidelity="packet", packets=PacketOptions(**options),
        )  # fmt: skip
        rates = fabric.links["bandwidth_bytes_per_s"].tolist()
        by_hand = Reference(rates, paths_of(fabric, src, dst), sizes.tolist(), starts.tolist(), options)
        by_hand.run()
        assert np.round(run.sent_s * 1e12).astype(int).tolist() == by_hand.sent, seed
        assert np.round(run.finish_s * 1e12).astype(int).tolist() == by_hand.arrived, seed
        assert run.link_bytes.tolist() == [link.bytes for link in by_hand.links], seed
