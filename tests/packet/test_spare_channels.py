"""Virtual channels beyond those that a routing takes: one blocked flow cannot fill all of them."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import PacketOptions, _core
from rostam_py.errors import ConfigError
from rostam_py.plan.packets import BUFFER_PARTS, SPARE_VCS

RATE, SIZE, BUFFER = 5e10, 2**20, 64 * 1024


def trunk():
    """Hogs a0, a1 and victim a2 on s0; third a3, sink a4 and a5, where the victim sends, on s1; three ports' trunk."""
    cables = [(f"a{k}", "s0", RATE, 20e-9) for k in range(3)] + [(f"a{k}", "s1", RATE, 20e-9) for k in range(3, 6)]
    return rostam.fabric("custom", links=[*cables, ("s0", "s1", 3 * RATE, 20e-9)], switch_latency=40e-9)


def victim(flows, routing="turns", **options):
    src, dst = zip(*flows, strict=True)
    # Hogs send for as long as the victim does.
    sizes = [SIZE if one == (2, 5) else 8 * SIZE for one in flows]
    result = rostam.run_flows(
        trunk(), src=src, dst=dst, num_bytes=sizes, fidelity="packet", routing=routing,
        packets=PacketOptions(buffer_bytes=BUFFER, **options),
    )  # fmt: skip
    return float(result.finish_s[flows.index((2, 5))])


ALL = [(0, 4), (1, 4), (3, 4), (2, 5)]


@pytest.mark.parametrize("routing", ["turns", "turns_adaptive", "spray"])
@pytest.mark.parametrize("spare", ["output", "destination"])
@pytest.mark.parametrize("num_vcs", [4, 6, 8])
def test_a_victim_is_hardly_slower_from_four_channels_on(num_vcs, spare, routing):
    options = {"num_vcs": num_vcs, "spare_vcs": spare}
    assert victim(ALL, routing, **options) <= 1.3 * victim([(2, 5)], routing, **options)


def test_without_them_it_waits_behind_the_hogs():
    alone = victim([(2, 5)])
    assert victim(ALL) > 2.5 * alone
    assert victim(ALL, num_vcs=4, spare_vcs="idle") > 2.5 * alone


def test_idle_ones_leave_all_as_it_is_but_for_the_buffers_parts():
    few = victim(ALL, buffer_parts="equal")
    idle = rostam.run_flows(
        trunk(), src=[0, 1, 3, 2], dst=[4, 4, 4, 5], num_bytes=[8 * SIZE] * 3 + [SIZE], fidelity="packet",
        routing="turns", packets=PacketOptions(buffer_bytes=4 * BUFFER, num_vcs=4, spare_vcs="idle"),
    )  # fmt: skip
    assert float(idle.finish_s[3]) == few


@pytest.mark.parametrize("routing", ["turns", "up_down", "dfsssp"])
@pytest.mark.parametrize("parts", ["equal", "shared"])
def test_channels_that_are_split_form_no_circles_either(routing, parts):
    fabric = rostam.fabric("torus", dims=(4, 4), link_bandwidth=RATE)
    src, dst = np.divmod(np.arange(256), 16)
    apart = src != dst
    for num_vcs in (7, 12):
        result = rostam.run_flows(
            fabric, src=src[apart], dst=dst[apart], num_bytes=[50_000] * 240, fidelity="packet", routing=routing,
            packets=PacketOptions(num_vcs=num_vcs, buffer_bytes=num_vcs * 8192, buffer_parts=parts),
        )  # fmt: skip
        assert result.notes == ()
        assert np.isfinite(result.finish_s).all()


def test_runs_say_where_their_packets_may_wait_in_a_circle():
    def notes(routing, **options):
        ring = rostam.fabric("torus", dims=(8,), link_bandwidth=RATE)
        places = np.arange(8)
        return rostam.run_flows(
            ring, src=places, dst=(places + 3) % 8, num_bytes=[10**5] * 8, fidelity="packet", routing=routing,
            packets=PacketOptions(**options),
        ).notes  # fmt: skip

    [note] = notes("spray")
    assert "8 virtual channels of its paths wait for each other in a circle" in note
    assert notes("turns") == notes("turns_adaptive") == notes("up_down") == ()
    [note] = notes("turns", num_vcs=1)
    assert "packets.num_vcs=null" in note
    assert len(notes("adaptive")) == 2
    tree = rostam.fabric("fat_tree", num_accelerators=8, radix=4, link_bandwidth=RATE)
    result = rostam.run_collective(tree, "all_to_all", num_bytes="1 MB", routing="adaptive", fidelity="packet")
    assert result.notes == ()
    torus = rostam.fabric("torus", dims=(4, 4), link_bandwidth=RATE)
    result = rostam.run_collective(torus, "all_to_all", num_bytes="1 MB", algorithm="direct", fidelity="packet")
    assert any("circle" in note for note in result.notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"spare_vcs": "outputs"}, "packets.spare_vcs is 'outputs'; allowed: output, destination, idle"),
        ({"buffer_parts": "all"}, "packets.buffer_parts is 'all'; allowed: equal, shared, or null"),
    ],
)
def test_others_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        PacketOptions(**options)


def test_names_are_the_cores():
    assert list(SPARE_VCS) == _core.spare_channel_names()
    assert ["routing", *BUFFER_PARTS] == _core.buffer_parts_names()
