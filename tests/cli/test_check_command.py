"""``rostam check``: the verdicts of the two checks, their exit status, and what is refused."""

import json

import pytest

from rostam_py.cli.completion import candidates
from rostam_py.cli.main import main
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.dependencies import check_dependencies
from rostam_py.fabrics.forwarding import count_disjoint_paths

RING = ["fabric=torus", "fabric.dims=[6]"]
SLIM = ["fabric=slim_fly", "fabric.q=5"]


def test_a_proof_has_status_0_and_a_cycle_status_1(capsys):
    assert main(["check", *RING]) == 0
    assert "free of deadlock: 30 pairs" in capsys.readouterr().out
    assert main(["check", *RING, "routing=spray", "virtual_channels=one"]) == 1
    text = capsys.readouterr().out
    assert "routing spray on torus, 6 accelerators" in text
    assert text.count(", virtual channel 0\n") == 6
    assert text.endswith("  and back to the first\n")


def test_a_network_without_a_path_proves_nothing(capsys):
    assert main(["check", *RING, "failures.links=100%"]) == 1
    assert "nothing to prove, no two accelerators have a path: 0 pairs, 30 without a path" in capsys.readouterr().out


@pytest.mark.parametrize("routing", ["turns", "spray"])
def test_json_is_what_the_function_returns_failures_included(routing, capsys):
    given = [*RING, f"routing={routing}", "failures.links=1", "failures.seed=2", "--json"]
    fabric = build_fabric("torus", dims=(6,)).with_random_failures("links", 1, 2)
    expected = check_dependencies(fabric, routing)
    assert main(["check", *given]) == (0 if expected.is_deadlock_free else 1)
    found = json.loads(capsys.readouterr().out)
    assert found["fabric"] == fabric.describe()
    assert found["routing"] == routing
    assert {key: found[key] for key in expected.to_dict()} == json.loads(json.dumps(expected.to_dict()))


def test_layers_are_checked_with_their_disjoint_paths_and_addresses(capsys):
    assert main(["check", *SLIM, "routing=layers:8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = count_disjoint_paths(build_fabric("slim_fly", q=5), 8)
    assert lines[0].startswith("routing layers:8 on slim_fly")
    assert lines[2] == str(expected)
    assert main(["check", *SLIM, "routing=layers:8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"] == expected.to_dict()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "routing=layers:0",
            "routing is 'layers:0'; layers takes its number of layers behind the colon, an integer from",
        ),
        ("routing=layers:200", "from 1 to 128"),
        ("routing=layrs:8", "(did you mean 'layers'?)"),
        ("routing=turns:8", "turns takes no number"),
    ],
)
def test_another_number_of_layers_is_refused(given, message, capsys):
    assert main(["check", *SLIM, given]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_is_written_and_cables_are_compared_with_it(tmp_path, capsys):
    plan = tmp_path / "plan.csv"
    assert main(["check", *SLIM, f"write_cables={plan}"]) == 0
    assert "375 cables of a plane of slim_fly" in capsys.readouterr().out
    assert main(["check", *SLIM, f"cables={plan}"]) == 0
    lines = plan.read_text().splitlines()
    assert lines[0] == "src,dst"
    lost, twice = lines[1], lines[2]
    assert (lost, twice) == ("accelerator 0,switch 0", "accelerator 1,switch 0")
    found = tmp_path / "found.csv"
    found.write_text("\n".join([lines[0], *lines[2:], twice]))
    capsys.readouterr()
    assert main(["check", *SLIM, f"cables={found}", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    # The two share an end, switch 0: one cable that is wired to the wrong place.
    assert document["wrong"] == [{"is": twice.split(","), "should_be": lost.split(",")}]
    assert (document["is_right"], document["num_right"], document["missing"]) == (False, 374, [])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["routing=spry"], ["unknown routing 'spry' (did you mean 'spray'?)", "turns"]),
        (["virtual_channels=two"], ["virtual_channels", "'two'", "one", "hops"]),
        (["cables=a.csv", "write_cables=b.csv"], ["cables is 'a.csv' and write_cables 'b.csv'"]),
        (["cables=a.csv", "failures.links=1"], ["leave failures out"]),
        (["cables=nowhere.csv"], ["nowhere.csv cannot be read"]),
        (["write_cables=nowhere/b.csv"], ["write_cables is 'nowhere/b.csv'", "No such file"]),
        (["fidelity=flow"], ["unknown key 'fidelity'"]),
    ],
)
def test_errors_name_key_value_and_what_is_allowed(overrides, words, capsys):
    assert main(["check", *RING, *overrides]) == 2
    text = capsys.readouterr().err
    assert text.startswith("rostam: error: ")
    for word in words:
        assert word in text


def test_fibres_are_no_list_of_cables_and_a_refusal_leaves_the_file(capsys, tmp_path):
    plan = tmp_path / "plan.csv"
    plan.write_text("an older plan")
    assert main(["check", "fabric=sip_ocs", "fabric.num_accelerators=8", f"write_cables={plan}"]) == 2
    assert "fabric 'sip_ocs' has fibres to optical switches" in capsys.readouterr().err
    assert plan.read_text() == "an older plan"


def test_what_it_takes_is_completed():
    assert candidates(["check", "virtual_channels="]) == [
        f"virtual_channels={one}" for one in ("hops", "one", "routing")
    ]
    assert "routing=up_down" in candidates(["check", "routing=u"])
    assert "write_cables=" in candidates(["check", "write_c"])
