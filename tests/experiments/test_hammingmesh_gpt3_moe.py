"""GPT-3 with experts on HammingMesh's clusters: messages of a stage, and times per micro-batch as published."""

import pytest

import rostam_py as rostam

N_A = 4 * 2048 * 12288
pytestmark = pytest.mark.slow  # seven clusters, a pipeline of 96 stages on each


@pytest.fixture(scope="module")
def module(load_experiment):
    return load_experiment("hammingmesh_gpt3_moe")


@pytest.fixture(scope="module")
def rows(module):
    return {row["name"]: row for row in module.compare(("rostam",))}


def test_a_stage_reduces_once_and_exchanges_twice_each_way(module):
    fabric = rostam.fabric("electrical_flat", num_accelerators=384, link_bandwidth="1600 Gb/s")
    plan = module.plan_on(fabric, module.ALGORITHMS["rostam"])
    dense, around = ("all_reduce", N_A), ("all_to_all", N_A)
    for template, expected in (("forward", [dense, around, around]), ("backward", [around, around, dense])):
        tasks = plan.stages[50].templates[template]
        assert [(t.collective, t.num_bytes) for t in tasks if t.kind == "collective"] == expected
        first, second = (i for i, t in enumerate(tasks) if t.collective == "all_to_all")
        assert all(".mlp." in kernel.module for kernel in tasks[first + 1].kernels[:1])
        assert [tasks[i].deps for i in (first + 1, second)] == [(first,), (second - 1,)]
    a_stage = [m for m in plan.messages() if m.kind == "all_to_all"]
    assert {(m.group, m.num_bytes) for m in a_stage} == {("tp", N_A)}
    compute = sum(t.duration_s for name in ("forward", "backward") for t in plan.stages[50].templates[name])
    assert compute == pytest.approx(49.9e-3, abs=1e-5)  # norms run whole on all four


def test_trees_are_within_print_and_what_is_counted_by_hand(rows):
    by_hand = 49.9 + (2 * 1.5 + 4 * 0.75) * N_A / 200e9 * 1e3
    for name in ("nonblocking tree", "50% tapered tree", "75% tapered tree"):
        assert 52.2 <= rows[name]["rostam"] <= 53.0
        assert rows[name]["rostam"] == pytest.approx(by_hand, abs=0.04)  # and the ends of the pipeline, over 96 stages


def test_clusters_follow_in_the_published_order(rows):
    printed = {name: row for name, row in rows.items() if row["low"] is not None}
    assert [row["name"] for row in sorted(printed.values(), key=lambda row: row["rostam"])][-2:] == [
        "2D HyperX (as Hx1Mesh)", "Hx4Mesh",
    ]  # fmt: skip
    assert rows["2D HyperX (as Hx1Mesh)"]["difference"] == pytest.approx(2.09, abs=0.01)
    assert rows["Hx4Mesh"]["difference"] == pytest.approx(-0.13, abs=0.01)
    assert rows["Hx2Mesh"]["difference"] is None
