"""CosmoFlow on HammingMesh's clusters: what four members of a group send, and overheads next to the published."""

import math

import pytest

import rostam_py as rostam


@pytest.fixture(scope="module")
def module(load_experiment):
    return load_experiment("hammingmesh_cosmoflow")


def test_overheads_are_within_two_points_of_print(module):
    rows = {row["name"]: row for row in module.compare(("rostam",))}
    assert len(rows) == 7
    for row in rows.values():
        difference = max(0.0, row["difference"]) if row["is_bound"] else row["difference"]
        assert abs(difference) < 2, row
    assert rows["Hx2Mesh"]["difference"] == pytest.approx(1.24, abs=0.01)
    assert rows["2D torus"]["difference"] == pytest.approx(-0.83, abs=0.01)


def test_messages_are_those_counted_by_hand(module):
    """32 samples of fp32 in a group. Convolution k reads c channels of side s: a slice is 32 c s s 4 bytes."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=1024, link_bandwidth="1600 Gb/s")
    plan = module.plan_on(fabric, module.STRATEGY)
    stage = plan.stages[0]

    def sent(template, group):
        tasks = stage.templates[template]
        return [(t.collective, t.num_bytes) for t in tasks if t.kind == "collective" and t.group == group]

    def slices(channels, side):
        return 32 * channels * side * side * 4

    fifth = 32 * 256 * 8**3 * 4  # the last convolution's input, split along channels
    halos = [("halo", 2 * slices(c, s)) for c, s in ((32, 64), (64, 32), (128, 16))]
    assert sent("forward", "tp") == [*halos, ("all_gather", fifth), ("all_reduce", 32 * 128 * 4)]
    # Gradients of the outputs have twice the channels; the first convolution needs none of its input.
    gradients = [("halo", 2 * slices(2 * c, s)) for c, s in ((128, 16), (64, 32), (32, 64))]
    summed = 4 * sum(27 * a * b + b for a, b in ((4, 32), (32, 64), (64, 128), (128, 256)))
    # The dense layers behind the first run whole on every member from equal inputs: nothing to add up.
    assert sent("backward_last", "tp") == [("all_reduce", fifth), *gradients, ("all_reduce", summed)]
    own = summed + 27 * 256 * 512 + 512 + (32768 * 128) + 4 * (128 + 128 * 64 + 64 + 64 * 4 + 4)
    assert sent("backward_last", "dp") == [("all_reduce", own)]
    assert math.isclose(sum(t.duration_s for t in stage.templates["forward"]), 44.3e-3 / 3, rel_tol=1e-3)
