"""What changed in the network, and arrows of messages, on a run's timeline and in its document."""

import json

import pytest

import rostam_py as rostam
from rostam_py.plan.failures import Failure, Recovery
from rostam_py.simulation.arrows import message_arrows
from rostam_py.simulation.changes import CIRCUITS, FAILED, MAX_MARKS, MOVED, REROUTING, RESTARTS, Change, changes_detail

MS = 10**9  # picoseconds
SHAPE = {"pp": 4, "dp": 4, "num_microbatches": 3, "act_bytes": 10**6, "grad_bytes": 10**7}


@pytest.fixture
def plan(hand_plan):
    """Return four stages on a torus of 16."""
    return hand_plan(rostam.fabric("torus", dims=(4, 4), link_bandwidth=1e10), **SHAPE)


def test_failed_cables_last_until_their_repair_or_the_end_and_routes_are_renewed_at_both(plan):
    alone = rostam.simulate(plan, max_iterations=4, min_iterations=4).iteration_times_s[0]
    events = [
        Failure(time=1.5 * alone, kind="links", number=3, repair=2.5 * alone),
        Failure(time=0.5 * alone, kind="links", number=9),
        Failure(time=1e3, kind="links", number=12),  # long after the end
    ]
    recovery = Recovery(reroute="1 us")
    result = rostam.simulate(plan, events=events, recovery=recovery, max_iterations=4, min_iterations=4)
    changes, end = result.changes(), int(result._ends_ps[-1])
    at = [round(share * alone * 1e12) for share in (0.5, 1.5, 2.5)]
    failed = [one for one in changes if one.lane == FAILED]
    assert [(one.begin_ps, one.end_ps, one.count) for one in failed] == [(at[0], end, 2), (at[1], at[2], 2)]
    assert all(one.words.startswith("links ") for one in failed)  # both directions of the cable
    renewed = [(one.begin_ps, one.end_ps) for one in changes if one.lane == REROUTING]
    assert renewed == [(begin, begin + 10**6) for begin in at]
    assert {one.lane for one in changes} == {FAILED, REROUTING}


def test_a_cut_job_is_a_change_from_its_cut_to_its_restart(plan):
    begin = 0.5 * rostam.simulate(plan).first_iteration_s
    lost = Failure(time=begin, kind="accelerators", number=3, repair=2 * begin)
    result = rostam.simulate(plan, events=[lost], recovery=Recovery(restart="5 ms"))
    (restart,) = result.restarts
    (cut,) = (one for one in result.changes() if one.lane == RESTARTS)
    assert (cut.begin_ps, cut.end_ps) == (round(restart.cut_s * 1e12), round(restart.start_s * 1e12))
    assert cut.end_ps - cut.begin_ps >= 5 * MS


def test_a_run_in_which_nothing_changes_has_no_changes(plan, tmp_path):
    result = rostam.simulate(plan, timeline=True)
    assert result.changes() == []
    assert changes_detail([], [0, 1]) is None
    result.save_timeline(str(tmp_path / "timeline.json"))
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert not [one for one in events if one["name"] == "process_name" and one["args"]["name"] == "network"]


def test_failures_are_slices_of_the_timeline_and_counted(plan, tmp_path):
    alone = rostam.simulate(plan, min_iterations=3, max_iterations=3).iteration_times_s[0]
    events = [Failure(time=0.1 * alone, kind="links", number=n) for n in (3, 9)]
    result = rostam.simulate(plan, events=events, timeline=True, min_iterations=3, max_iterations=3)
    result.save_timeline(str(tmp_path / "timeline.json"))
    found = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    (network,) = (one["pid"] for one in found if one["ph"] == "M" and one["args"]["name"] == "network")
    (shown,) = (one for one in found if one["ph"] == "X" and one["pid"] == network)
    assert (shown["ts"], shown["args"]["parts"]) == (0.0, 4)  # failed in an earlier iteration: cut at its begin
    assert shown["dur"] == pytest.approx(result.iteration_time_s * 1e6)
    levels = [one["args"]["count"] for one in found if one["ph"] == "C" and one["name"] == "failed parts"]
    assert levels == [4, 0]


def test_every_message_between_recorded_devices_has_an_arrow_that_points_forwards(plan, tmp_path):
    result = rostam.simulate(plan, timeline=list(range(16)))
    rows = result._timeline
    arrows = message_arrows(result.job, 0, result._names, rows)
    tasks = [result._names.templates[t].tasks[k] for t, k in zip(rows["template"], rows["task"], strict=True)]
    sends = [k for k, task in enumerate(tasks) if task.kind == "send"]
    # 3 micro-batches cross 3 boundaries forwards and 3 backwards, in 4 replicas
    assert len(sends) == 3 * 6 * 4 * len(result.iteration_times_s)
    assert sorted(one.sender for one in arrows) == sends
    assert len({one.receiver for one in arrows}) == len(sends)
    assert all(rows["start_ps"][one.sender] < rows["end_ps"][one.receiver] for one in arrows)
    for one in arrows:
        assert tasks[one.sender].num_bytes == tasks[one.receiver].num_bytes
        assert rows["end_ps"][one.sender] <= rows["end_ps"][one.receiver]
    result.save_timeline(str(tmp_path / "timeline.json"))
    found = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    ends = {side: {one["id"]: one for one in found if one["ph"] == side} for side in "sf"}
    assert ends["s"].keys() == ends["f"].keys()
    assert len(ends["s"]) >= 3 * 6 * 4
    assert all(ends["s"][k]["pid"] != ends["f"][k]["pid"] for k in ends["s"])


def test_a_document_holds_the_first_changes_and_says_how_many_there_are():
    many = [Change(CIRCUITS, "1 circuits change", k * MS, k * MS + 1, 1) for k in range(MAX_MARKS + 5)]
    found = changes_detail(many[::-1], [0, 5 * MS])
    assert (len(found["marks"]["lane"]), found["num_changes"]) == (MAX_MARKS, MAX_MARKS + 5)
    assert found["marks"]["begin_s"][:2] == [0.0, pytest.approx(1e-3)]
    assert found["iteration_ends_s"] == [0.0, pytest.approx(5e-3)]


def test_messages_that_take_new_routes_are_instants_with_their_links(tmp_path, hand_plan):
    # Two stages on a ring of four, accelerators 0 and 1: 10 MB go over the direct link, 1 ms at 10 GB/s, until it fails
    # half way; 10 us later what is left goes the long way, 0 -> 3 -> 2 -> 1.
    fabric = rostam.fabric("torus", dims=(4,), link_bandwidth=1e10)
    plan = hand_plan(fabric, pp=2, dp=1, num_microbatches=1, act_bytes=10**7, grad_bytes=0)
    how = {"min_iterations": 2, "max_iterations": 2}
    alone = rostam.simulate(plan, timeline=True, **how)
    cable = int(fabric.links["cable"][(fabric.links["src"] == 0) & (fabric.links["dst"] == 1)][0])
    rows = alone._timeline
    kinds = [alone._names.templates[t].tasks[k].kind for t, k in zip(rows["template"], rows["task"], strict=True)]
    sent = max(int(start) for start, kind in zip(rows["start_ps"], kinds, strict=True) if kind == "send")
    fails_s = sent * 1e-12 + 0.5e-3
    failure = Failure(time=fails_s, kind="links", number=cable)
    result = rostam.simulate(plan, events=[failure], recovery=Recovery(reroute="10 us"), timeline=True, **how)
    (move,) = result.moves
    assert move.time_ps == pytest.approx((fails_s + 10e-6) * 1e12, abs=1)
    assert move.num_messages == 1
    (message,) = move.messages
    src, dst = (int(one) for one in message.ends.split(" -> "))
    assert {src, dst} == {0, 1}
    way = [src, (src - dst + src) % 4, (src + 2 * (src - dst)) % 4, dst]
    path = "; ".join(f"accelerator {a} -> accelerator {b}" for a, b in zip(way, way[1:], strict=False))
    direct = f"accelerator {src} -> accelerator {dst}"
    assert (message.taken, message.left) == (path, direct)
    # Half of its 1 ms is left.
    assert message.end_ps - move.time_ps == pytest.approx(0.5e9, rel=1e-6)
    (change,) = (one for one in result.changes() if one.lane == MOVED)
    assert change == Change(MOVED, f"{message.ends}: {path}; before: {direct}", move.time_ps, message.end_ps, 1)
    result.save_timeline(str(tmp_path / "timeline.json"))
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    (shown,) = (one for one in events if one["ph"] == "i")
    assert shown["name"] == "1 message on new routes"
    (slice_,) = (one for one in events if one["ph"] == "X" and one["name"] == "routes are recomputed")
    assert shown["ts"] == pytest.approx(slice_["ts"] + slice_["dur"], abs=1e-6)
    assert shown["tid"] == slice_["tid"]
    before, after = (one for one in events if one["ph"] == "X" and one["name"] == message.ends)
    assert (before["args"]["links"], after["args"]["links"]) == (direct, path)
    assert (before["ts"], before["dur"]) == (slice_["ts"], pytest.approx(10, abs=1e-6))
    assert (after["ts"], after["dur"]) == (shown["ts"], pytest.approx(500, rel=1e-6))
    arrow = [one for one in events if one.get("cat") == "new route"]
    assert [(one["ph"], one["tid"], one["ts"]) for one in arrow] == [
        ("s", before["tid"], before["ts"]), ("f", after["tid"], after["ts"])
    ]  # fmt: skip
    # The message takes the delay longer, and two more links of 20 ns and two accelerators that pass it on in 40 ns.
    longer_s = sum(result.iteration_times_s) - sum(alone.iteration_times_s)
    assert longer_s == pytest.approx(10e-6 + 2 * (20e-9 + 40e-9), abs=1e-11)
