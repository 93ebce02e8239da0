"""Cabling checks: every fault that is put into a plan is found, and no other."""

import random

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS, build_fabric, example_fabric
from rostam_py.fabrics.cabling import check_cabling, planned_cables, write_cabling
from rostam_py.fabrics.dependencies import check_dependencies
from rostam_py.fabrics.forwarding import forwarding_tables
from rostam_py.fabrics.throughput import link_loads


@pytest.fixture
def slim_fly():
    return build_fabric("slim_fly", q=5)


@pytest.mark.parametrize("name", FABRICS.names())
def test_a_fabric_built_as_planned_is_right_whichever_end_comes_first(name, tmp_path):
    fabric = example_fabric(name)
    if fabric.is_circuit_switched:
        pytest.skip("its fibres are no list of cables")
    write_cabling(fabric, tmp_path / "plan.csv")
    found = check_cabling(fabric, tmp_path / "plan.csv")
    assert found.is_right
    assert found.num_right == fabric.num_links // fabric.planes
    assert check_cabling(fabric, [(dst, src) for src, dst in planned_cables(fabric)]).is_right


def test_faults_are_listed_as_what_they_are(slim_fly, tmp_path):
    cables = planned_cables(slim_fly)
    between = [one for one in cables if "accelerator" not in one[0]]
    lost, moved = between[3], between[40]
    free = next(
        f"switch {k}" for k in range(49, 0, -1)
        if f"switch {k}" not in (*moved, *lost) and (moved[0], f"switch {k}") not in cables
    )  # fmt: skip
    there = [one for one in cables if one not in (lost, moved)]
    there += [(free, moved[0]), between[7]]  # one end elsewhere, and a second cable beside the planned one
    path = tmp_path / "found.csv"
    path.write_text("src,dst\n" + "\n".join(f"{src}, {dst}" for src, dst in there))
    found = check_cabling(slim_fly, path)
    assert found.num_right == 373
    assert found.missing == (lost,)
    assert found.extra == (between[7],)
    assert [(set(one), set(plan)) for one, plan in found.wrong] == [({free, moved[0]}, set(moved))]
    text = str(found)
    assert "373 cables as planned" in text
    assert f"missing: {lost[0]} - {lost[1]}" in text
    assert f"should be {moved[0]} - {moved[1]}" in text


def test_files_of_spreadsheets_that_begin_with_a_byte_order_mark_are_read(slim_fly, tmp_path):
    write_cabling(slim_fly, tmp_path / "plan.csv")
    found = tmp_path / "found.csv"
    found.write_text((tmp_path / "plan.csv").read_text(), encoding="utf-8-sig")
    assert check_cabling(slim_fly, found).is_right


@pytest.mark.parametrize("seed", range(5))
def test_counts_of_random_faults_add_up(slim_fly, seed):
    draw = random.Random(seed)
    plan = planned_cables(slim_fly)
    lost = draw.sample(plan, 9)
    there = [one for one in plan if one not in lost]
    switches = [f"switch {k}" for k in range(50)]
    added = [tuple(draw.sample(switches, 2)) for _ in range(6)]
    found = check_cabling(slim_fly, there + added)
    assert len(found.missing) + len(found.wrong) + found.num_right == len(plan)
    assert len(found.extra) + len(found.wrong) + found.num_right == len(there) + len(added)
    assert all(set(one) & set(planned) for one, planned in found.wrong)
    assert not any(set(one) & set(planned) for one in found.extra for planned in found.missing)


def test_files_that_cannot_be_cables_are_refused(slim_fly, tmp_path):
    path = tmp_path / "cables.csv"
    with pytest.raises(ConfigError, match=r"cables.csv cannot be read"):
        check_cabling(slim_fly, path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="has columns a, b; it needs src and dst"):
        check_cabling(slim_fly, path)
    path.write_bytes(b"src,dst\n\xd0\x00")
    with pytest.raises(ConfigError, match=r"cables.csv is no CSV file in UTF-8: .* byte 0xd0 in position 8"):
        check_cabling(slim_fly, path)
    path.write_text("src,dst\nswitch 0,switch 99\n")
    with pytest.raises(ConfigError, match=r"cables.csv, line 2 ends at 'switch 99', which the fabric does not have"):
        check_cabling(slim_fly, path)


@pytest.mark.parametrize(
    ("cables", "said"),
    [
        ([("switch 0",)], r"cables\[0\] is \('switch 0',\); cables must be pairs of names"),
        ([("switch 0", "switch 1"), ("switch 0", 1)], r"cables\[1\] is \('switch 0', 1\)"),
        (["ab"], r"cables\[0\] is 'ab'"),
        (5, r"cables is 5; it must be pairs of names such as"),
    ],
)
def test_what_is_no_pair_of_names_is_refused(slim_fly, cables, said):
    with pytest.raises(ConfigError, match=said):
        check_cabling(slim_fly, cables)


def test_a_name_in_place_of_a_fabric_is_refused(tmp_path):
    for call in (
        lambda: check_cabling("torus", []),
        lambda: write_cabling("torus", tmp_path / "plan.csv"),
        lambda: check_dependencies("torus", "turns"),
        lambda: forwarding_tables("torus"),
        lambda: rostam.saturation_throughput("torus"),
        lambda: link_loads("torus", [0], [1], [1]),
        lambda: rostam.run_collective("torus", "all_reduce", num_bytes=1),
        lambda: rostam.run_flows("torus", src=[0], dst=[1], num_bytes=[1]),
    ):
        with pytest.raises(ConfigError, match=r"fabric is 'torus'; it must be a Fabric, as rostam\.fabric"):
            call()


def most_pairs(extra, missing):
    """The most pairs with a common end, by trying all."""
    if not extra:
        return 0
    best = most_pairs(extra[1:], missing)
    for k, planned in enumerate(missing):
        if set(planned) & set(extra[0]):
            best = max(best, 1 + most_pairs(extra[1:], missing[:k] + missing[k + 1 :]))
    return best


def test_two_wrong_ends_are_two_where_the_first_planned_one_would_leave_the_second_none():
    # Planned 0-1 and 0-4, found 0-2 and 1-5: 1-5 shares an end with 0-1 alone, so that 0-2 should be 0-4.
    fabric = build_fabric("slim_fly", q=5, terminals_per_switch=1)
    between = [one for one in planned_cables(fabric) if "accelerator" not in one[0]]
    near = [one for one in between if "switch 0" in one]
    (_, other), second = (sorted(one, key=lambda name: name != "switch 0") for one in near[:2])
    far = [f"switch {k}" for k in range(1, 50) if not any(f"switch {k}" in one for one in near[:2])]
    new = next(name for name in far if not any(set(one) == {"switch 0", name} for one in between))
    beside = next(name for name in far if name != new and not any(set(one) == {other, name} for one in between))
    there = [one for one in planned_cables(fabric) if one not in near[:2]] + [("switch 0", new), (other, beside)]
    found = check_cabling(fabric, there)
    assert (found.missing, found.extra) == ((), ())
    assert [set(plan) for _, plan in found.wrong] == [set(second), {"switch 0", other}]


@pytest.mark.parametrize("seed", range(30))
def test_as_many_as_can_be_are_wrong_ends(seed):
    fabric = build_fabric("slim_fly", q=3)
    rng = random.Random(seed)
    plan = planned_cables(fabric)
    names = sorted({name for one in plan if "accelerator" not in one[0] for name in one if "switch" in name})[:6]
    lost = rng.sample([one for one in plan if set(one) & set(names)], 5)
    planned = {frozenset(one) for one in plan}
    new = [pair for pair in (tuple(rng.sample(names, 2)) for _ in range(40)) if frozenset(pair) not in planned]
    new = list({frozenset(one): one for one in new}.values())[:5]
    found = check_cabling(fabric, [one for one in plan if one not in lost] + new)
    assert all(set(one) & set(should) for one, should in found.wrong)
    assert len(found.wrong) == most_pairs(new, lost)
    assert len(found.wrong) + len(found.extra) == len(new)
    assert len(found.wrong) + len(found.missing) == len(lost)
    assert {frozenset(one) for one, _ in found.wrong} | {frozenset(one) for one in found.extra} == {
        frozenset(one) for one in new
    }
