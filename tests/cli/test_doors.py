"""Bad input ends in one line that names the key, the value and what is allowed, with exit status 2."""

import json

import pytest

from rostam_py.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run", "failures.links=5%%"], ["failures.links is '5%%'", "a share from 0% to 100%"]),
        (["run", "failures.scope=leaf"], ["failures.scope is 'leaf'", "network, host, all"]),
        (["report", ".", "formats=pdf"], ["formats is 'pdf'", "a list, for example formats=["]),
        (["run", "strategy.algorithms=ring"], ["strategy.algorithms is 'ring'", "strategy.algorithms.NAME=VALUE"]),
        (["run", "strategy.algorithms=[ring]"], ["strategy.algorithms is '[ring]'", "a mapping"]),
        (["sweep", "strategy.algorithms=ring"], ["strategy.algorithms is 'ring'", "a mapping"]),
        (["run", "cost=[1,2,3]"], ["'cost=[1,2,3]' is no name", "roofline"]),
        (["sweep", "cost=[1,2,3]"], ["'cost=[1,2,3]' is no name", "roofline"]),
        (["run", "fabric=[]"], ["'fabric=[]' is no name", "torus"]),
        (["run", "fabric={}"], ["'fabric={}' is no name", "torus"]),
        (["sweep", "fabric=[]"], ["'fabric=[]' is no name", "torus"]),
        (["run", "strategy=[1]"], ["'strategy=[1]' is no name", "sip_ml_mp4"]),
        (["run", "model=[a]"], ["model is '[a]'", "a text"]),
        (["run", "seed=1.5"], ["seed is '1.5'", "an integer"]),
        (["run", "global_batch=abc"], ["global_batch is 'abc'", "an integer or null"]),
        (["run", "failures=5"], ["failures is '5'", "failures.links, failures.switches"]),
        (["run", "strategy.accelerators=3"], ["strategy.accelerators is '3'", "a list"]),
        (["search", "search.batches=5"], ["search.batches is '5'", "search.batches=[1,2] or null"]),
        (["search", "search.placers=[]", "search.batches=[3200]"], ["search.placers is []", "megatron"]),
        (["sweep", "sweep.grid=5"], ["sweep.grid is '5'", "a mapping"]),
        (["run", "machine.launch_latency='1e9 s'"], ["machine.launch_latency is 1e+09 s", "106 days"]),
        (["run", "fabric.link_latency='1e9 s'"], ["fabric.link_latency is 1e+09 s", "106 days"]),
        (["run", "software.rules.bucket_size='9223372036854775808 B'"], ["software.rules.bucket_size is", "2^63"]),
    ],
)  # fmt: skip
def test_bad_values_are_one_line(arguments, parts, capsys, tmp_path):
    out = [] if arguments[0] == "report" else [f"out={tmp_path}"]
    assert main([*arguments, *out]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = [line for line in said.err.splitlines() if line.strip()]
    assert len(lines) == 1
    assert lines[0].startswith("rostam: error: ")
    for part in parts:
        assert part in lines[0]


def links(path, text):
    """Write a list of links and return the keys that name it."""
    path.write_bytes(text)
    return ["fabric=custom", f"fabric.links='{path}'", "fabric.link_bandwidth='400 Gb/s'"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("src,dst\na0,s\u00e9\n".encode("latin-1"), ["not UTF-8", "byte 0xe9 at place 12"]),
        (b"src,dst\na0,s" + b"9" * 5000 + b"\n", ["fabric.links, line 2", "dst is", "5001 characters", "18 digits"]),
        (b"src,dst\na0,\x00s1\n", ["fabric.links"]),
    ],
)
def test_bad_lists_of_links_are_one_line(text, parts, capsys, tmp_path):
    assert main(["run", *links(tmp_path / "links.csv", text), f"out={tmp_path / 'out'}"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("rostam: error: fabric.links")
    assert "\n" not in said
    for part in parts:
        assert part in said


@pytest.mark.parametrize("content", ["{}", "[]", "5", '"text"', "null", "{", '{"key": "k", "wall_s": -1, "row": {}}'])
def test_a_point_of_another_shape_is_set_aside_and_simulated_again(content, capsys, tmp_path, cached_traces):
    command = ["sweep", "seed=0,1", "fabric=electrical_flat", "fabric.num_accelerators=8", "sweep.backend=inline",
               "report=false", f"out={tmp_path}", "--json"]  # fmt: skip
    assert main(command) == 0
    whole = json.loads(capsys.readouterr().out)["points"]
    part = next((tmp_path / "store").glob("part-*.parquet"))
    part.unlink()
    damaged = tmp_path / "store" / f"{whole[0]['key']}.json"
    damaged.write_text(content)
    with pytest.warns(UserWarning, match=rf"{damaged.name}.*kept as {damaged.name}.damaged.*computed again"):
        assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["points"] == whole
    assert damaged.with_name(f"{damaged.name}.damaged").read_text() == content
    assert main([*command, "--dry-run"]) == 0


@pytest.mark.parametrize("name", ["store/.part-{}.parquet.tmp", ".points.parquet.tmp", ".points.csv.tmp"])
def test_a_full_disk_during_a_sweep_is_one_line(name, capsys, tmp_path, cached_traces):
    command = ["sweep", "seed=0,1", "fabric=electrical_flat", "fabric.num_accelerators=8", "sweep.backend=inline",
               "report=false", "--json"]  # fmt: skip
    assert main([*command, f"out={tmp_path / 'first'}"]) == 0
    capsys.readouterr()
    part = next((tmp_path / "first" / "store").glob("part-*.parquet")).stem.removeprefix("part-")
    place = tmp_path / "full" / name.format(part)
    place.parent.mkdir(parents=True)
    place.symlink_to("/dev/full")
    assert main([*command, f"out={tmp_path / 'full'}"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("rostam: error: ")
    assert "cannot be written (" in said
    assert "finished points are kept" in said


def test_reports_of_equal_sweeps_are_equal_whatever_order_their_keys_came_in(tmp_path, cached_traces, capsys):
    keys = ["fabric=electrical_flat", "fabric.num_accelerators=8", "strategy.precision=tf32", "routing=hash",
            "strategy.algorithms.all_reduce=ring", "strategy.algorithms.all_gather=ring"]  # fmt: skip
    for name, given in (("a", keys), ("b", keys[::-1])):
        assert main(["sweep", *given, "seed=0,1", "sweep.backend=inline", f"out={tmp_path / name}"]) == 0
    pages = [
        (tmp_path / name / "report.html").read_bytes().replace(str(tmp_path / name).encode(), b"") for name in "ab"
    ]
    assert pages[0] == pages[1]


def test_a_degree_that_does_not_divide_the_machine_is_named(capsys, tmp_path):
    assert main(["run", "fabric=tree_64", "strategy.tp=3", f"out={tmp_path}"]) == 2
    said = capsys.readouterr().err
    assert "strategy.tp = 3 does not divide the 64 accelerators that the machine has" in said
    assert "strategy.allow_idle=true" in said


@pytest.mark.parametrize("fabric", ["torus", "hammingmesh", "fat_tree", "electrical_flat", "sip_ocs"])
def test_num_accelerators_sizes_any_fabric_in_run_as_in_sweep(fabric, capsys, tmp_path, cached_traces):
    keys = [f"fabric={fabric}", "num_accelerators=16", "--json"]
    if fabric == "hammingmesh":
        keys.append("fabric.board=[2,2]")
    assert main(["run", *keys, f"out={tmp_path / 'run'}"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["num_accelerators"] == 16
    swept = ["seed=0,1", "sweep.backend=inline", "report=false", f"out={tmp_path / 'sweep'}"]
    assert main(["sweep", *keys, *swept]) == 0
    point = json.loads(capsys.readouterr().out)["points"][0]
    assert point["iteration_time_s"] == result["iteration_time_s"]
    assert main(["run", *keys[:1], "num_accelerators=0", f"out={tmp_path / 'none'}"]) == 2
    assert "num_accelerators is 0; it must be an integer >= 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "axes", [["seed=range(0,1000000000)"], ["seed=range(0,1e9)"], ["seed=range(0,1000)", "iterations=range(2,1002)"]]
)
def test_more_points_than_a_sweep_can_have_are_refused_before_they_are_made(axes, capsys):
    assert main(["sweep", "model=gpt_125m", "fabric=flat_64", *axes, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "250,000" in said
    assert f"{axes[0]!r} has more" in said or "(seed 1,000, iterations 1,000) make 1,000,000 points" in said
