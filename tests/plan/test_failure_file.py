"""Failures of a file: they are those of a list, and what makes no sense is refused by file, line and column."""

import pytest

from rostam_py.cli.main import main
from rostam_py.errors import ConfigError
from rostam_py.plan.failures import Outages

ROWS = "time,kind,number,repair\n# a comment\n250 ms,accelerators,3,400 ms\n\n500 ms,links,17,\n"
TORUS = ["fabric=torus", "fabric.dims=[4,4]", "strategy.dp=4", "strategy.tp=4", "routing=hash", "outages.reroute=1 ms"]
EVENTS = [
    {"time": "250 ms", "kind": "accelerators", "number": 3, "repair": "400 ms"},
    {"time": "500 ms", "kind": "links", "number": 17},
]


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "failures.csv"
        path.write_text(text)
        return str(path)

    return written


def test_a_file_holds_what_a_list_does(write):
    path = write(ROWS)
    assert Outages(events=path).failures() == Outages(events=EVENTS).failures()
    swapped = write("number, kind ,time\n17,links,500 ms\n")
    assert Outages(events=swapped).failures() == Outages(events=EVENTS[1:]).failures()
    assert Outages(events=write("time,kind,number\n")).is_none


def test_equal_failures_cost_the_same_and_points_follow_the_file(write):
    from rostam_py.spec.settings import complete_settings

    given = {"model": {"name": "gpt_125m"}, "fabric": {"name": "fat_tree", "num_accelerators": 16}}
    given |= {"cost": {"name": "roofline"}, "software": {"name": "ideal"}}
    of_file = complete_settings(given | {"outages": {"events": write(ROWS)}})
    assert of_file == complete_settings(given | {"outages": {"events": EVENTS}})
    other = complete_settings(given | {"outages": {"events": write(ROWS.replace("17", "16"))}})
    assert other["outages"] != of_file["outages"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file's columns are none; they must be time, kind, number and may be repair"),
        ("time,part,number\n", "the file's columns are time, part, number; they must be time, kind, number"),
        ("time,kind,number,number\n", "columns are time, kind, number, number"),
        ("time,kind,number\n1 s,links\n", "failures.csv, line 2: the row has 2 cells; it must have 3"),
        ("time,kind,number\n\n1 s,links,-1\n", "failures.csv, line 3: number is '-1'; it must be an integer >= 0"),
        ("time,kind,number\n1 s,cables,1\n", "failures.csv, line 2: kind is 'cables'; it must be one of: "),
        ("time,kind,number\nsoon,links,1\n", "failures.csv, line 2: time is 'soon'"),
        ("time,kind,number\n5,links,1\n", "failures.csv, line 2: time is '5', a number without a unit"),
        ("time,kind,number,repair\n2 s,links,1,1 s\n", "failures.csv, line 2: repair is '1 s'; it must be later than"),
    ],
)
def test_what_makes_no_sense_is_refused_by_file_line_and_column(text, said, write):
    with pytest.raises(ConfigError) as caught:
        Outages(events=write(text))
    assert said in str(caught.value)


def test_a_part_that_the_fabric_has_not_is_named_by_its_line(write, capsys, tmp_path):
    path = write("time,kind,number\n1 ms,links,1\n2 ms,accelerators,99\n")
    words = ["model=gpt_125m", "num_accelerators=16", "software=ideal", f"out={tmp_path / 'out'}"]
    assert main(["run", *words, f"outages.events={path}"]) == 2
    assert "failures.csv, line 3: failure.number is 99; fabric 'fat_tree' has 16" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_run_with_a_file_is_the_run_with_its_failures(write, tmp_path):
    words = ["model=gpt_125m", "num_accelerators=16", "software=ideal", "outages.restart=20 ms", *TORUS]
    rows = ["250 ms,accelerators,3,290 ms", "500 ms,links,3,"]
    path = write("\n".join(["time,kind,number,repair", *rows]) + "\n")
    listed = "[{time: 250 ms, kind: accelerators, number: 3, repair: 290 ms}, {time: 500 ms, kind: links, number: 3}]"
    texts = []
    for name, events in (("file", path), ("list", listed)):
        assert main(["run", *words, f"outages.events={events}", f"out={tmp_path / name}"]) == 0
        texts.append((tmp_path / name / "result.json").read_text())
    assert texts[0] == texts[1]
