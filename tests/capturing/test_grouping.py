"""Groups of all ranks from what one rank sees, and roles from what a few ranks run."""

import pytest

from rostam_py.capturing.grouping import GroupSets, stage_of_ranks
from rostam_py.capturing.likeness import first_difference
from rostam_py.capturing.records import Group, Kernel, Record
from rostam_py.capturing.roles import middle, ranks_by_role
from rostam_py.capturing.writing import written_ranks
from rostam_py.errors import ConfigError


def record(rank=0, groups=(), created=(), communications=(), kernels=("add",)):
    """Return a rank that runs some kernels, then communicates."""
    rows = [("kernel", 0, k) for k in range(len(kernels))] + [("comm", 0, k) for k in range(len(communications))]
    return Record(
        rank=rank, step=3,
        kernels=tuple(Kernel(name, ((2,),), ("float32",), (), (), False, "a.py:1") for name in kernels),
        communications=tuple(communications), groups=tuple(groups), created=tuple(created), before=(),
        rows=tuple(rows), event_streams={}, peak_bytes=0, held_bytes=0, unknown={},
    )  # fmt: skip


def reduces(group=0, **others):
    one = {"kind": "all_reduce", "num_bytes": 8, "group": group, "is_own": True, "peer": None, "root": 0}
    return one | {"send_bytes": None, "tag": 0, "batch": 0} | others


def test_groups_that_are_created_together_are_one_set():
    tp = [Group((0, 1), "mesh_tp"), Group((2, 3), "mesh_tp")]
    dp = [Group((0, 2), "mesh_dp"), Group((1, 3), "mesh_dp")]
    sets = GroupSets(4)
    one = record(groups=[dp[0], tp[0]], created=[*dp, *tp])
    assert [sets.label_of(one, k) for k in (0, 1)] == ["dp", "tp"]
    assert sets.sets["tp"].ranks == ((0, 1), (2, 3))
    other = record(rank=3, groups=[dp[1], tp[1]], created=[*dp, *tp])
    assert [sets.label_of(other, k) for k in (0, 1)] == ["dp", "tp"]
    assert len(sets.sets) == 2


def test_a_group_that_is_seen_alone_is_repeated():
    sets = GroupSets(8)
    one = record(groups=[Group((0, 2), "x"), Group(tuple(range(8)), "default_pg")], created=[Group((0, 2), "x")])
    assert [sets.label_of(one, k) for k in (0, 1)] == ["x", "world"]
    assert sets.sets["x"].ranks == ((0, 2), (1, 3), (4, 6), (5, 7))
    with pytest.raises(ConfigError, match="which groups the other of its 8 ranks are in is not seen"):
        GroupSets(8).label_of(record(groups=[Group((0, 1, 5), "y")]), 0)


def test_communicators_of_the_same_ranks_are_apart():
    sets = GroupSets(2)
    one = record(groups=[Group((0, 1), "default_pg"), Group((0, 1), "dp"), Group((0, 1), "dp")])
    assert [sets.label_of(one, k) for k in range(3)] == ["world", "dp 1", "dp 2"]


@pytest.mark.parametrize(
    ("label", "kind"),
    [("mesh_tp", "tp"), ("mesh_dp_shard_cp", "dp"), ("mesh_cp", "cp"), ("default_pg", "dp"), ("EXPERT_PARALLEL", "ep"),
     ("fsdp", "dp"), ("mesh_pp", "pp"), ("undefined", "dp")],
)  # fmt: skip
def test_kinds_of_groups_follow_their_names(label, kind):
    sets = GroupSets(4)
    assert sets.sets[sets.label_of(record(groups=[Group((0, 1), label)]), 0)].kind == kind


def test_stages_are_places_in_the_group_that_exchanges_messages():
    created = [Group((0, 2), "mesh_pp"), Group((1, 3), "mesh_pp")]
    one = record(groups=[created[0]], created=created, communications=[reduces(kind="send", peer=2)])
    assert stage_of_ranks([one], GroupSets(4), 4) == [0, 0, 1, 1]
    assert stage_of_ranks([record()], GroupSets(4), 4) == [0, 0, 0, 0]


def test_ranks_between_two_that_differ_are_asked_for():
    records = [record(0), record(7, kernels=("mul",))]
    assert ranks_by_role(records, [0] * 8, are_given=False)[1] == (0, 7)
    assert middle((0, 7), [0] * 8) == 4
    records = [record(0), record(4), record(5, kernels=("mul",)), record(7, kernels=("mul",))]
    roles, gap = ranks_by_role(records, [0] * 8, are_given=False)
    assert gap is None
    assert {name: ranks for name, (_, ranks) in roles.items()} == {
        "ranks from 0": [0, 1, 2, 3, 4], "ranks from 5": [5, 6, 7],
    }  # fmt: skip


def test_a_stage_without_a_captured_rank_is_an_error():
    with pytest.raises(ConfigError, match="no rank of pipeline stage 1 is captured; name one of 2, 3 by --ranks"):
        ranks_by_role([record(0)], [0, 0, 1, 1], are_given=True)


def test_groups_are_renamed_and_peers_are_counted_from_oneself():
    first = record(0, groups=[Group((0, 1), "x")], communications=[reduces(kind="send", peer=1)])
    second = record(2, groups=[Group((2, 3), "x")], communications=[reduces(kind="send", peer=3)])
    third = record(3, groups=[Group((2, 3), "x")], communications=[reduces(kind="send", peer=2)])
    assert first_difference(first, first.rows, second, second.rows) is None
    assert first_difference(first, first.rows, third, third.rows)[0] == 1
    shorter = record(0, groups=[Group((0, 1), "x")])
    assert first_difference(first, first.rows, shorter, shorter.rows)[2] == "the end"


def test_ranks_are_written_in_runs():
    assert written_ranks([0, 1, 2, 5, 7, 8]) == ["0-2", 5, "7-8"]
