"""Detail documents: everything in them adds up to the result, and they stay small."""

import gzip
import json

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.simulation.critical_path import Segment
from rostam_py.simulation.detail import (
    MAX_BINS,
    MAX_SAMPLES,
    MAX_SEGMENTS,
    merge_segments,
    read_detail,
    run_detail,
    write_detail,
)

FABRICS = {
    "electrical_flat": {"num_accelerators": 8},
    "electrical_cluster": {"num_accelerators": 8, "server_size": 4, "server_bandwidth": "400 Gb/s"},
    "fat_tree": {"num_accelerators": 8, "radix": 4, "leaf_down": 2, "leaf_up": 1, "levels": 2},
    "hammingmesh": {"board": (2, 2), "boards": (2, 1)},
    "sip_ocs": {"num_accelerators": 8},
    "sip_ring": {"num_accelerators": 8},
    "torus": {"dims": (2, 4)},
}
TAGS = ("job", "stage", "devices")


@pytest.fixture(scope="module")
def results(gpt):
    """results(fabric): four layers of GPT on two stages, two replicas and two tensor-parallel devices."""
    made = {}

    def get(name):
        if name not in made:
            fabric = rostam.fabric(name, accelerator_bandwidth="800 Gb/s", **FABRICS[name])
            strategy = rostam.Strategy(dp=2, tp=2, pp=2, precision="bf16_mixed")
            plan = rostam.place(
                gpt, rostam.Machine(fabric=fabric), global_batch=16, strategy=strategy, software="ideal"
            )
            made[name] = rostam.simulate(plan)
        return made[name]

    return get


@pytest.fixture(scope="module")
def large(hand_plan):
    """A pipeline from the first to the last of 1,024 accelerators of a tree: one loaded path, all else idle."""
    fabric = rostam.fabric("fat_tree", num_accelerators=1024, link_bandwidth=1e9, link_latency=0.0)
    return rostam.simulate(hand_plan(fabric, pp=2, act_bytes=10**6, accelerators=[0, 1023]), routing="hash")


@pytest.mark.parametrize("name", list(FABRICS))
def test_everything_adds_up_to_the_result(name, results):
    result = results(name)
    detail = run_detail(result)
    links = detail["drawing"]["planes"][0]["links"]
    assert sum(link["num_bytes"] for link in links) == pytest.approx(result.link_bytes.sum(), abs=len(links))
    assert sum(link["count"] for link in links) == len(result.fabric.links)
    assert sum(map(sum, detail["traffic"]["matrix"])) == pytest.approx(result.plan.traffic.total_bytes, rel=1e-12)
    path = sum(segment["duration_s"] for segment in detail["critical_path"])
    assert path == pytest.approx(result.iteration_time_s, rel=1e-9)
    rows = detail["breakdown_by_stage"]
    assert sum(row["devices"] for row in rows) == 8
    for kind, seconds in result.breakdown.items():
        mean = sum(row["devices"] * row[kind] for row in rows) / 8
        assert mean == pytest.approx(seconds, rel=1e-8, abs=1e-15)
    for row in rows:
        parts = [seconds for kind, seconds in row.items() if kind not in TAGS]
        assert sum(parts) == pytest.approx(result.iteration_time_s, rel=1e-8)
    assert [row["activations"] for row in detail["memory"]] == [s.memory.activations for s in result.plan.stages]
    assert detail["result"] == result.to_dict()


def test_traffic_is_from_senders_to_receivers(results):
    result = results("torus")
    assert run_detail(result)["traffic"] == {
        "accelerators_per_bin": 1, "num_accelerators": 8, "matrix": result.plan.traffic_matrix.tolist(),
    }  # fmt: skip


def test_utilization_of_drawn_links_is_bytes_over_what_they_could_carry(results):
    result = results("fat_tree")
    links, drawing = result.fabric.links, run_detail(result)["drawing"]
    # eight accelerators on leaves 8..11, one spine: every link is alone between its ends
    expected = result.link_bytes / (links["bandwidth_bytes_per_s"] * result.iteration_time_s)
    drawn = {(link["source"], link["target"]): link for link in drawing["planes"][0]["links"]}
    for k, (src, dst) in enumerate(zip(links["src"].tolist(), links["dst"].tolist(), strict=True)):
        link = drawn[src, dst]
        assert link["utilization"] == link["max_utilization"] == pytest.approx(expected[k], rel=1e-3)


def test_one_hot_link_survives_grouping(large):
    detail = run_detail(large)
    drawing = detail["drawing"]
    assert drawing["grouping"] == "leaf"
    busy = large.link_bytes / (1e9 * large.iteration_time_s)
    # the accelerator's own port is one of 32 in its group: its load is the maximum, 32 times the mean
    hot = next(link for link in drawing["planes"][0]["links"] if link["num_bytes"] and link["count"] == 32)
    assert hot["max_utilization"] == pytest.approx(busy.max(), rel=1e-3)
    assert hot["utilization"] == pytest.approx(busy.max() / 32, rel=1e-3)
    # forth and back, four hops each
    assert (
        sum(link["num_bytes"] > 0 for link in drawing["planes"][0]["links"]) == np.count_nonzero(large.link_bytes) == 8
    )
    assert detail["busiest_links"][0]["name"].startswith(("accelerator", "leaf", "spine"))
    assert max(detail["link_utilization"]) == pytest.approx(busy.max(), rel=1e-3)


def test_idle_accelerators_are_told_from_used_ones(large):
    vertices = run_detail(large)["drawing"]["vertices"]
    # the majority decides: two of 1,024 work
    assert {vertex["job"] for vertex in vertices if vertex["kind"] == "accelerator"} == {-1}
    assert all("job" not in vertex for vertex in vertices if vertex["kind"] != "accelerator")


def test_a_large_run_is_binned_and_sampled(large):
    detail = run_detail(large)
    matrix = detail["traffic"]["matrix"]
    assert (detail["traffic"]["accelerators_per_bin"], len(matrix)) == (8, MAX_BINS)
    assert matrix[0][127] == matrix[127][0] == 10**6
    assert sum(map(sum, matrix)) == 2 * 10**6
    values = detail["link_utilization"]
    assert len(values) == MAX_SAMPLES < detail["num_links"] == 4096
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0


def test_equal_runs_give_equal_files_which_read_back(results, tmp_path):
    detail = run_detail(results("torus"))
    for name in ("one", "other"):
        write_detail(tmp_path / name, run_detail(results("torus")))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert read_detail(tmp_path / "one") == json.loads(json.dumps(detail)) == detail


def test_a_file_of_another_version_is_refused(tmp_path):
    (tmp_path / "d").write_bytes(gzip.compress(b'{"version": 99}'))
    with pytest.raises(ConfigError, match="has version 99"):
        read_detail(tmp_path / "d")


def test_a_long_path_is_merged_without_losing_time():
    # 7,000 segments of 1 s and 0.5 s in turn: windows of 5.25 s hold 3.5 pairs
    long = [("compute", 1.0), ("tp", 0.5)] * 3500
    starts = np.concatenate([[0], np.cumsum([seconds for _, seconds in long])]).tolist()
    segments = [Segment(kind, f"{kind} {k}", 0, 0, 0, starts[k], s) for k, (kind, s) in enumerate(long)]
    merged = merge_segments(segments, starts[-1])
    assert len(merged) <= MAX_SEGMENTS < len(segments)
    assert sum(one["duration_s"] for one in merged) == pytest.approx(starts[-1], rel=1e-12)
    ends = [one["start_s"] + one["duration_s"] for one in merged]
    assert [one["start_s"] for one in merged[1:]] == pytest.approx(ends[:-1])
    assert {one["kind"] for one in merged} == {"compute"}
    assert merged[0]["name"].endswith(" and 6 more")
    assert merge_segments(segments[:3], 2.5) == [
        {"kind": s.kind, "name": s.name, "stage": 0, "device": 0, "start_s": s.start_s, "duration_s": s.duration_s}
        for s in segments[:3]
    ]


def test_a_mix_lists_stages_by_job_and_sums_traffic(hand_plan, free_fabric):
    fabric = free_fabric(8)
    plans = [
        hand_plan(fabric, pp=2, act_bytes=1000, accelerators=[0, 1]),
        hand_plan(fabric, dp=3, grad_bytes=600, accelerators=[2, 3, 4]),
    ]
    mix = rostam.simulate(plans)
    detail = run_detail(mix)
    assert detail["title"].startswith("2 jobs on ")
    assert [(row["job"], row["stage"], row["devices"]) for row in detail["breakdown_by_stage"]] == [
        (0, 0, 1), (0, 1, 1), (1, 0, 3),
    ]  # fmt: skip
    assert sum(map(sum, detail["traffic"]["matrix"])) == sum(plan.traffic.total_bytes for plan in plans)
    assert [job["iteration_time_s"] for job in detail["jobs"]] == [one.iteration_time_s for one in mix]
    owners = [vertex.get("job") for vertex in detail["drawing"]["vertices"]]
    assert owners == [0, 0, 1, 1, 1, -1, -1, -1, None]
    rows = [{"name": "a", "alone_s": 1.0}, {"name": "b", "alone_s": 2.0}]
    assert run_detail(mix, jobs=rows)["jobs"] == rows
    assert run_detail(mix[0])["jobs"] == []


def test_failed_parts_are_marked(hand_plan):
    fabric = rostam.fabric("torus", dims=(4, 4), link_bandwidth=1e9)
    fabric = fabric.with_failures(links=[0], accelerators=[15])
    detail = run_detail(rostam.simulate(hand_plan(fabric, dp=8, grad_bytes=800)))
    failed = [link for link in detail["drawing"]["planes"][0]["links"] if link.get("num_failed")]
    # a cable is two directions; a lost accelerator takes its four cables with it
    assert len(failed) == 2 * (1 + 4)
    assert all(link["num_bytes"] == 0 for link in failed)
    assert [k for k, vertex in enumerate(detail["drawing"]["vertices"]) if vertex.get("num_failed")] == [15]
    assert detail["num_links"] == 64 - 10


def test_no_result_is_refused():
    with pytest.raises(ConfigError, match="got no result"):
        run_detail([])


@pytest.mark.slow
def test_a_document_of_16384_accelerators_stays_small(hand_plan):
    fabric = rostam.fabric("fat_tree", num_accelerators=16384, link_bandwidth=1e9)
    detail = run_detail(rostam.simulate(hand_plan(fabric, dp=1024, pp=16, grad_bytes=10**7, act_bytes=10**6)))
    assert len(json.dumps(detail, separators=(",", ":"))) < 800_000


def planes_of(fabric, hand_plan):
    """The drawn planes of an all-reduce of 8 on a fabric of 1 GB/s a plane, and the result."""
    result = rostam.simulate(hand_plan(fabric, dp=8, grad_bytes=8_000))
    return run_detail(result)["drawing"], result


def tree_of_planes(planes=4):
    # 8 accelerators, leaves of 2 below one or two spines; cables 0..7 join hosts, 8.. leaves and spines.
    return rostam.fabric("fat_tree", num_accelerators=8, radix=4, link_bandwidth=1e9, planes=planes)


def test_planes_that_are_alike_are_drawn_once(hand_plan):
    drawing, result = planes_of(tree_of_planes(), hand_plan)
    assert [plane["planes"] for plane in drawing["planes"]] == [[0, 1, 2, 3]]
    assert (drawing["num_planes"], drawing["planes_not_drawn"]) == (4, [])
    moved = sum(link["num_bytes"] for link in drawing["planes"][0]["links"])
    assert moved == pytest.approx(result.link_bytes.sum(), abs=len(result.link_bytes))


def test_a_plane_with_a_fault_is_drawn_by_itself_and_names_it(hand_plan):
    whole = tree_of_planes()
    per_plane, switches = whole.num_links // 4, whole.num_switches // 4
    fabric = whole.with_failures(links=[2 * per_plane + 8], switches=[3 * switches + 4])
    drawing, result = planes_of(fabric, hand_plan)
    assert [plane["planes"] for plane in drawing["planes"]] == [[0, 1], [2], [3]]
    assert [plane["faults"] for plane in drawing["planes"]] == [[], ["link leaf 0 - spine 0"], ["spine 0"]]
    links = fabric.links
    for plane in drawing["planes"]:
        mine = links["plane"] == plane["planes"][0]
        moved = sum(link["num_bytes"] for link in plane["links"])
        assert moved == pytest.approx(result.link_bytes[mine].sum(), abs=len(links))
        assert sum(link["count"] for link in plane["links"]) == mine.sum()
        lost = sum(link.get("num_failed", 0) for link in plane["links"])
        assert lost == links["is_failed"][mine].sum()
    # spine 0 is the first vertex after 8 accelerators and 4 leaves, and is lost in plane 3 alone
    assert [plane["failed_vertices"] for plane in drawing["planes"]] == [[], [], [[12, 1]]]
    assert not any("num_failed" in vertex for vertex in drawing["vertices"])


def test_of_many_planes_with_faults_the_usual_and_the_worst_are_drawn(hand_plan):
    whole = tree_of_planes(8)
    per_plane = whole.num_links // 8
    # plane p has p - 1 of its upper cables cut, for planes 2 to 5; 0, 1, 6 and 7 are whole
    cut = [plane * per_plane + 8 + k for plane in range(2, 6) for k in range(plane - 1)]
    drawing, _ = planes_of(whole.with_failures(links=cut), hand_plan)
    assert [plane["planes"] for plane in drawing["planes"]] == [[0, 1, 6, 7], [3], [4], [5]]
    assert drawing["planes_not_drawn"] == [2]
    assert len(drawing["planes"][3]["faults"]) == 4
