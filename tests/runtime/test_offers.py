"""Messages over planes that differ are split by what each plane offers when they start, not when the run does."""

import pytest

import rostam_py as rostam
from rostam_py import LinkBandwidth

# A ring of four in two planes, 1 GB/s each, without latency. The second plane lost the cable of 2 - 3, so the planes
# differ; 0 -> 1 keeps its 1 GB/s in both. From 1 ms on the first plane's link 0 -> 1 has half: 3 MB that start at 2 ms
# are split 1 : 2 and take 2 ms; halves would take 3 ms.
SIZE = 3_000_000


def planes():
    fabric = rostam.fabric("torus", dims=[4], link_bandwidth=1e9, link_latency=0.0, planes=2)
    cable = next(int(link["cable"]) for link in fabric.links if {link["src"], link["dst"]} == {2, 3})
    return fabric.with_failures(links=[cable])


def halved(fabric):
    ends = [(link["src"], link["dst"]) for link in fabric.links]
    return LinkBandwidth("1 ms", ends.index((0, 1)), 0.5)


def test_a_flow_that_starts_after_a_change_is_split_by_what_is_left():
    fabric = planes()
    result = rostam.run_flows(
        fabric, src=[0, 0], dst=[1, 1], num_bytes=[SIZE, 0], start_s=[2e-3, 0], events=[halved(fabric)]
    )
    assert result.finish_s[0] == pytest.approx(4e-3, abs=2e-12)


@pytest.mark.parametrize("shortcuts", [False, True])
def test_so_is_a_message_of_a_session(shortcuts):
    fabric = planes()
    result = rostam.run_collective(
        fabric, "send_recv", num_bytes=SIZE, ranks=[0, 1], start_s=[2e-3, 0], events=[halved(fabric)],
        shortcuts=shortcuts,
    )  # fmt: skip
    assert result.time_s == pytest.approx(4e-3, abs=2e-12)


def test_a_flow_that_started_before_keeps_its_split():
    # Halves of 1.5 MB: 1 MB of each by 1 ms; then 0.5 MB at 0.5 GB/s.
    fabric = planes()
    result = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[SIZE], events=[halved(fabric)])
    assert result.finish_s[0] == pytest.approx(2e-3, abs=2e-12)


def test_planes_that_offer_nothing_share_equally_and_wait():
    # Both links stand still from 1 ms to 5 ms; halves of 1.5 MB start at 2 ms and take 1.5 ms from 5 ms on.
    fabric = planes()
    links = [k for k, link in enumerate(fabric.links) if (link["src"], link["dst"]) == (0, 1)]
    assert len(links) == 2
    events = [LinkBandwidth(f"{time} ms", link, scale) for time, scale in ((1, 0.0), (5, 1.0)) for link in links]
    result = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[SIZE], start_s=[2e-3], events=events)
    assert result.finish_s[0] == pytest.approx(6.5e-3, abs=2e-12)


@pytest.mark.parametrize("cut", [0, 1])
def test_a_flow_waits_for_the_one_plane_that_joins_its_pair(cut):
    # One plane, first or second, has no way to 1 left. The link stands still from 1 ms to 5 ms: 3 ms from then on.
    fabric = rostam.fabric("torus", dims=[4], link_bandwidth=1e9, link_latency=0.0, planes=2)
    fabric = fabric.with_failures(links=[4 * cut + int(link["cable"]) for link in fabric.links if link["src"] == 1])
    links = [k for k, link in enumerate(fabric.links) if (link["src"], link["dst"]) == (0, 1)]
    events = [LinkBandwidth(f"{time} ms", link, scale) for time, scale in ((1, 0.0), (5, 1.0)) for link in links]
    result = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[SIZE], start_s=[2e-3], events=events)
    assert result.finish_s[0] == pytest.approx(8e-3, abs=2e-12)
