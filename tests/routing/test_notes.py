"""What a result says of a routing that stands for another one on its fabric, or suits it badly."""

import pytest

import rostam_py as rostam
from rostam_py.fabrics import build_fabric, example_fabric
from rostam_py.fabrics.dependencies import check_dependencies


@pytest.mark.parametrize(
    ("name", "routing", "same_as", "said"),
    [
        ("electrical_flat", "turns", "up_down", "states no turn model"),
        ("electrical_flat", "valiant", "spray", "has a single switch to go by way of"),
        ("electrical_flat", "ugal", "spray", "single switch to go by way of: Valiant's paths are the minimal ones"),
        ("sip_ring", "valiant", "spray", "has no vertex to go by way of"),
    ],
)
def test_a_routing_that_stands_for_another_says_so_and_has_its_times(name, routing, same_as, said):
    fabric = example_fabric(name)
    found = rostam.run_collective(fabric, "all_reduce", num_bytes="1 MB", routing=routing)
    other = rostam.run_collective(fabric, "all_reduce", num_bytes="1 MB", routing=same_as)
    assert len(found.notes) == 1
    assert said in found.notes[0]
    assert other.notes == ()
    assert found.time_ps == other.time_ps
    assert rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[1], routing=routing).notes == found.notes


def test_layers_say_where_pairs_have_several_minimal_paths():
    tree = build_fabric("fat_tree", num_accelerators=32, radix=8)
    [note] = tree.router("layers").notes
    assert "100% of the switch pairs of fabric fat_tree have several minimal paths" in note
    assert tree.router("spray").notes == []
    # Two switches of a Slim Fly of girth five (q = 5, the Hoffman-Singleton graph) have one minimal path always.
    assert build_fabric("slim_fly", q=5, terminals_per_switch=1).router("layers").notes == []
    # 3 x 3 switches, all of a row joined: 4 of a switch's 8 peers differ in both coordinates.
    [half] = build_fabric("hyperx", dims=(3, 3)).router("layers").notes
    assert half.startswith("50% of")


def test_runs_and_checks_carry_the_note():
    flat = rostam.fabric("electrical_flat", num_accelerators=4)
    machine = rostam.Machine(fabric=flat)
    plan = rostam.place(
        rostam.trace("resnet50"),
        machine,
        global_batch=4,
        strategy=rostam.Strategy(dp=4, tp=1),
        cost="roofline",
        software="ideal",
    )
    result = rostam.simulate(plan, routing="valiant")
    assert any("single switch" in note for note in result.notes)
    found = check_dependencies(flat, "turns")
    assert "note: fabric electrical_flat states no turn model" in str(found)
    assert found.to_dict()["notes"] == list(found.notes)


def test_planes_that_differ_keep_the_virtual_channels_of_their_steps():
    # Without its cable 0 - 1 the ring of 5 goes from 0 to 2 over its dateline, on another channel than the first.
    one = build_fabric("torus", dims=(5,)).with_failures(links=[0])
    two = build_fabric("torus", dims=(5,), planes=2).with_failures(links=[0])
    _, hops = one.router("turns", enable_bundling=False).steps(0, 2)
    _, both = two.router("turns", enable_bundling=False).steps(0, 2)
    channels = [channel for _, _, channel in hops]
    assert any(channels)
    assert [channel for _, _, channel in both][: len(hops)] == channels
