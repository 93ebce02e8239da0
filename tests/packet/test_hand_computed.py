"""Packets on systems small enough to draw, with times worked out by hand, to the picosecond.

Links of 1 GB/s take 1 ns for a byte, packets are 100 B, a link's latency is 5 ns and a switch's 3 ns. The head of a
packet that starts at t is at the next output at t + 8 (and later by the flit that a switch waits for), its tail at
t + 108, or at its destination at t + 105.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import PacketOptions
from rostam_py.errors import ConfigError

NS = 1e-9
PACKETS = {"packet_bytes": 100, "flit_bytes": 0, "buffer_bytes": 100_000}


def fabric(*rows, forwarding=True, rate=1e9):
    """Cables between the ends of rows, each (end, end) or (end, end, rate)."""
    links = [(*row, 5e-9) if len(row) == 3 else (*row, rate, 5e-9) for row in rows]
    return rostam.fabric("custom", links=links, switch_latency=3e-9, forwarding=forwarding)


def run(where, flows, routing="hash", options=None, **more):
    """Flows are (source, destination, bytes); times in ns."""
    src, dst, size = zip(*flows, strict=True)
    result = rostam.run_flows(
        where, src=src, dst=dst, num_bytes=size, fidelity="packet", routing=routing,
        packets=PacketOptions(**{**PACKETS, **(options or {})}), **more,
    )  # fmt: skip
    return (result.sent_s / NS).round(3).tolist(), (result.finish_s / NS).round(3).tolist(), result


def line(*rates):
    """a0 - a1 - a2 - ..."""
    return fabric(*((f"a{k}", f"a{k + 1}", rate) for k, rate in enumerate(rates)))


def star(count):
    """a0 .. around s0."""
    return fabric(*((f"a{k}", "s0") for k in range(count)), forwarding=False)


def test_a_packet_is_passed_on_before_its_tail_is_there():
    # Starts at 0 and 8, tail off the second link at 108, through at 113: what a flow takes, 100 + 5 + 3 + 5.
    where = line(1e9, 1e9)
    sent, finish, _ = run(where, [(0, 2, 100)])
    assert (sent, finish) == ([100], [113])
    flow = rostam.run_flows(where, src=[0], dst=[2], num_bytes=[100])
    assert flow.finish_s[0] == pytest.approx(113 * NS)


@pytest.mark.parametrize(("flit", "finish"), [(10, 123), (100, 213), (1000, 213)])
def test_a_switch_waits_for_a_flit_or_for_the_whole_packet(flit, finish):
    # Starts at 0 and 8 + 10, or 8 + 100 (store and forward).
    assert run(line(1e9, 1e9), [(0, 2, 100)], options={"flit_bytes": flit})[1] == [finish]


def test_a_message_is_packets_one_behind_another_the_last_one_smaller():
    # Starts at 0, 100, 200; sent at 250. The last head is passed on at 200 + 10 + 8, when the second tail has left
    # (118 + 100); 50 ns and a latency later it is through.
    sent, finish, result = run(line(1e9, 1e9), [(0, 2, 250)], options={"flit_bytes": 10})
    assert (sent, finish) == ([250], [273])
    assert result.link_bytes.sum() == 500


def test_a_faster_link_waits_until_it_never_runs_dry():
    # The tail is there at 108, so the 50 ns of the second link begin at 58.
    assert run(line(1e9, 2e9), [(0, 2, 100)])[1] == [113]


def test_a_slower_link_takes_its_packets_one_after_another():
    # 8 to 208, then at once 208 to 408.
    assert run(line(1e9, 5e8), [(0, 2, 200)])[1] == [413]


def test_a_buffer_of_one_packet_lets_the_next_come_when_word_of_its_room_is_back():
    # On the first link from 0, on the second from 8 to 108; word is back at 113. The k-th packet starts at 113 k, and
    # is through 113 later.
    for count in (1, 2, 3, 7):
        finish = run(line(1e9, 1e9), [(0, 2, 100 * count)], options={"buffer_bytes": 100})[1]
        assert finish == [113 * count]


def test_a_buffer_of_two_packets_is_enough_to_keep_the_links_busy():
    # Packet k starts at 100 k: room for the third is back at 113, before 200.
    assert run(line(1e9, 1e9), [(0, 2, 700)], options={"buffer_bytes": 200})[1] == [713]


def test_a_full_buffer_holds_up_whatever_is_to_pass_through_it():
    # a0 sends two packets to a1, over a slow last link, and one to a2; all go through one buffer of one packet. To a1:
    # passed on 8-208, word of the room back at 213; the second 213, passed on 221-421, word back at 426; then that to
    # a2.
    where = fabric(("a0", "s0"), ("a1", "s0", 5e8), ("a2", "s0"), forwarding=False)
    sent, finish, _ = run(where, [(0, 1, 200), (0, 2, 100)], options={"buffer_bytes": 100})
    assert sent == [313, 526]
    assert finish == [426, 539]


def test_ports_take_turns_at_an_output():
    # Heads of both first packets are at the output at 8; a0's goes first, then a1's, a0's second, a1's second.
    sent, finish, _ = run(star(3), [(0, 2, 200), (1, 2, 200)])
    assert (sent, finish) == ([200, 200], [313, 413])


def test_messages_of_one_source_are_one_port_among_others():
    # a1 forwards what a0 sends to a2 and sends two messages of its own there: the port from a0 has every other turn.
    # a1's own: 0-100. In line by then: a0 (from 8) and the other own one, which was there first: 100-200; then a0 has
    # 200-300; own 300-400; a0's second 400-500.
    where = line(1e9, 1e9)
    _, finish, _ = run(where, [(1, 2, 200), (1, 2, 100), (0, 2, 200)])
    assert finish[2] in (405, 505)
    assert max(finish) == 505


@pytest.mark.parametrize(("speedup", "finish"), [(2, 213), (1, 313)])
def test_a_port_feeds_as_many_outputs_at_once_as_the_crossbar_is_faster(speedup, finish):
    # a1 -> a2 has the output to a2 from 8 to 108; a0's packet for a2 then, 108-208. Its packet for a3 is at the switch
    # at 108, too: the other output is free, but the port is being read until 208 unless it may feed two.
    flows = [(1, 2, 100), (0, 2, 100), (0, 3, 100)]
    assert run(star(4), flows, options={"crossbar_speedup": speedup})[1] == [113, 213, finish]


def test_packets_behind_a_busy_output_do_not_hold_up_those_for_another():
    # The output to a2 is busy to 308 with a1's; a0's for a2 waits from 8 on, that for a3, there at 108, does not.
    finish = run(star(4), [(1, 2, 300), (0, 2, 100), (0, 3, 100)])[1]
    assert finish[2] == 213


def test_a_cap_paces_packets():
    # 0.5 GB/s: the second packet starts at 200.
    sent, finish, _ = run(line(1e9, 1e9), [(0, 2, 200)], rate_cap=[5e8])
    assert (sent, finish) == ([300], [313])


def test_a_message_without_bytes_arrives_after_the_latency():
    sent, finish, _ = run(line(1e9, 1e9), [(0, 2, 0)])
    assert (sent, finish) == ([0], [13])


DIAMOND = (("a0", "a1"), ("a0", "a2"), ("a1", "a3"), ("a2", "a3"))


@pytest.mark.parametrize(("routing", "sent"), [("hash", 400), ("spray", 200), ("adaptive", 200)])
def test_packets_take_one_way_or_all_of_them(routing, sent):
    # a0 - a1, a2 - a3: four packets one behind another, or two at a time.
    found = run(fabric(*DIAMOND), [(0, 3, 400)], routing)
    assert (found[0], found[1]) == ([sent], [sent + 13])


def test_spray_keeps_equal_shares_where_adaptive_takes_what_is_free():
    # a0 -> a1 fills one of the two ways. spray: every other packet waits its turn there, 200 ns for two on that link,
    # so 8 packets are sent after 800 less the other way's lead; adaptive sends most on the free way.
    where = fabric(*DIAMOND)
    flows = [(0, 1, 2000), (0, 3, 800)]
    spray, adaptive = (run(where, flows, routing)[1][1] for routing in ("spray", "adaptive"))
    assert spray >= 713
    assert adaptive < spray
    ways = run(where, flows, "adaptive")[2].link_bytes
    links = where.links
    by = {k: ways[(links["src"] == 0) & (links["dst"] == k)].sum() for k in (1, 2)}
    assert by[1] - 2000 + by[2] == 800
    assert by[2] >= 500


def test_a_link_that_slows_down_does_so_from_the_next_packet_on():
    # 0-100, 100-200 (half done when the event comes), then 200-400 at half the rate.
    where = line(1e9)
    links = where.links
    forth = int(np.flatnonzero((links["src"] == 0) & (links["dst"] == 1))[0])
    event = rostam.LinkBandwidth(time=150e-9, link=forth, scale=0.5)
    assert run(where, [(0, 1, 300)], events=[event])[0] == [400]


def test_what_waits_for_a_failed_link_is_sent_again_on_the_new_route():
    # a0 - a1 - a2 - a3 - a0, a0 to a2 by way of a1 or a3. At 150 the second link of its way fails: packets on it by
    # then (8-108, 108-208) arrive, the eight others wait in front of it. Sent at 1000. At 1150 they are lost and go the
    # other way: 1150 to 1950, through at 1963.
    where = fabric(("a0", "a1"), ("a1", "a2"), ("a2", "a3"), ("a3", "a0"))
    links = where.links
    way = run(where, [(0, 2, 100)])[2].link_bytes > 0
    second = int(np.flatnonzero(way & (links["dst"] == 2))[0])
    failure = rostam.Failure(time=150e-9, kind="links", number=int(links["cable"][second]))
    sent, finish, result = run(
        where, [(0, 2, 1000)], events=[failure], recovery=rostam.Recovery(detection=0.0, reroute=1e-6)
    )
    assert (sent, finish) == ([1000], [1963])
    assert sorted(result.link_bytes[result.link_bytes > 0].tolist()) == [200, 800, 800, 1000]


def test_a_repaired_link_goes_on_where_it_stood():
    # As above, but repaired at 500, before the new route: 500 to 1300, through at 1305.
    where = line(1e9, 1e9)
    links = where.links
    number = int(links["cable"][links["dst"] == 2][0])
    failure = rostam.Failure(time=150e-9, kind="links", number=number, repair=500e-9)
    recovery = rostam.Recovery(detection=0.0, reroute=1e-3)
    assert run(where, [(0, 2, 1000)], events=[failure], recovery=recovery)[1] == [1305]


@pytest.mark.parametrize("latency", [3e-9, "43 ns"])
def test_buffers_may_have_a_latency_of_their_own(latency):
    finish = run(line(1e9, 1e9), [(0, 2, 100)], options={"buffer_latency": latency})[1]
    assert finish == [113 if latency == 3e-9 else 153]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"packet_bytes": 0}, "packets.packet_bytes is 0"),
        ({"packet_bytes": "8 kB", "buffer_bytes": "4 kB"}, "must hold a packet"),
        ({"num_vcs": 0}, "packets.num_vcs is 0"),
        ({"num_vcs": 2000}, "packets.num_vcs is 2000"),
        ({"num_vcs": 1001, "buffer_bytes": 100_000}, "for each of 1001 virtual channels"),
        ({"crossbar_speedup": 0}, "packets.crossbar_speedup is 0"),
        ({"buffer_bytes": "32"}, "packets.buffer_bytes is '32'"),
        ({"buffer_latency": "1 m"}, "packets.buffer_latency is '1 m'"),
    ],
)
def test_options_out_of_range_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        run(line(1e9), [(0, 1, 100)], options=options)


def test_flows_have_no_packets():
    with pytest.raises(ConfigError, match="take fidelity=packet"):
        rostam.run_flows(line(1e9), src=[0], dst=[1], num_bytes=[1], packets=PacketOptions(num_vcs=2))
    with pytest.raises(ConfigError, match="PacketOptions"):
        rostam.run_flows(line(1e9), src=[0], dst=[1], num_bytes=[1], fidelity="packet", packets={"num_vcs": 2})


def test_virtual_channels_of_a_link_take_turns():
    # On a ring of 6 what comes from 5 crosses the dateline and goes from 0 to 1 on channel 1, what starts at 0 on
    # channel 0. The first packets start at 0 and 8; from 100 on packets of both are there: each other one is 5's.
    ring = rostam.fabric("torus", dims=[6], link_bandwidth=1e9, link_latency=5e-9, switch_latency=3e-9)
    router = ring.router("turns", enable_bundling=False)
    assert [router.steps(src, 1, 0)[1][-1][2] for src in (0, 5)] == [0, 1]
    sent, finish, _ = run(ring, [(0, 1, 400), (5, 1, 400)], routing="turns")
    assert (sent, finish) == ([700, 400], [705, 805])
