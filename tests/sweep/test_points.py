"""Axes multiply, settings are complete and checked before any work, and keys name results."""

import ast
import json
from pathlib import Path

import pytest

import rostam_py
from rostam_py.costs import DEFAULT_COST
from rostam_py.digests import code_digest
from rostam_py.errors import ConfigError
from rostam_py.spec.settings import complete_settings, with_key
from rostam_py.sweep.axes import Axis, Value, grid_axes, row_axis
from rostam_py.sweep.identity import _COMPUTING, _COMPUTING_FILES, code_version, point_key
from rostam_py.sweep.points import expand_points
from rostam_py.sweep.run_sweep import Sweep

PACKAGE = Path(rostam_py.__file__).parent


def test_points_are_the_product_of_the_axes_the_last_one_fastest(base):
    axes = [*grid_axes({"seed": [0, 1], "strategy.tp": [1, 2, 4]})]
    points = expand_points(base, axes)
    assert [(p.labels["seed"], p.labels["strategy.tp"]) for p in points] == [
        ("0", "1"), ("0", "2"), ("0", "4"), ("1", "1"), ("1", "2"), ("1", "4"),
    ]  # fmt: skip
    assert [p.index for p in points] == list(range(6))
    assert [p.settings["strategy"]["tp"] for p in points] == [1, 2, 4] * 2


def test_a_case_sets_several_keys_and_names_its_fabric(base):
    tree = Value("tree", {"name": "fat_tree", "num_accelerators": 8})
    rows = [{"label": "A", "fabric": tree, "strategy.tp": 2}, {"label": "B", "strategy.tp": 4}]
    points = expand_points(base, [row_axis(rows)])
    assert [p.labels for p in points] == [{"case": "A", "fabric": "tree"}, {"case": "B", "fabric": "torus"}]
    assert [p.settings["fabric"]["name"] for p in points] == ["fat_tree", "torus"]


def test_a_fabric_is_set_before_its_keys_whatever_the_order_of_the_axes(base):
    bandwidth = Axis("fabric.accelerator_bandwidth", [Value("100 Gb/s", "100 Gb/s")])
    fabric = Axis("fabric", [Value("tree", {"name": "fat_tree", "num_accelerators": 8})])
    one, other = expand_points(base, [bandwidth, fabric]), expand_points(base, [fabric, bandwidth])
    assert one[0].settings == other[0].settings
    assert one[0].settings["fabric"]["accelerator_bandwidth"] == "100 Gb/s"


def test_settings_written_differently_are_one_point(base):
    short = complete_settings(base)
    long = complete_settings(base | {"routing": "spray", "failures": {"links": 0}, "cost": {"name": DEFAULT_COST}})
    assert short == long
    assert point_key(short) == point_key(long)
    assert complete_settings(json.loads(json.dumps(short)) | {"num_accelerators": None}) == short


def test_settings_of_other_modes_make_no_difference(base):
    assert point_key(complete_settings(base)) == point_key(complete_settings(base | {"mix": {"num_jobs": 3}}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 1), ("routing", "hash"), ("strategy.tp", 2), ("fabric.link_bandwidth", "50 Gb/s"),
        ("failures.links", 1), ("global_batch", 128), ("cost.ramp_time", "7 us"), ("accelerator", "v100_32gb"),
        ("accelerator_usd_per_hour", 2.0),
    ],
)  # fmt: skip
def test_every_setting_is_part_of_the_key(base, key, value):
    base = base | {"cost": {"name": "roofline"}, "target": "1 M samples"}
    settings = complete_settings(base)
    changed = complete_settings(with_key(base, key, value))
    assert point_key(changed) != point_key(settings)


def test_contents_of_named_files_are_part_of_the_key(base, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Net: pass\n")
    settings = complete_settings(base | {"model": f"{path}:Net"})
    before = point_key(settings)
    path.write_text("class Net: changed = True\n")
    assert point_key(settings) != before


def test_a_cost_tables_contents_are_part_of_the_key(base, tmp_path):
    path = tmp_path / "costs.json"
    path.write_text("{}")
    settings = complete_settings(base | {"cost": {"name": "profiled", "table": str(path)}})
    before = point_key(settings)
    path.write_text('{"more": 1}')
    assert point_key(settings) != before


@pytest.mark.parametrize(
    "given",
    [
        {"model": "{0}/mine.py:Net"}, {"model": "{0}/graph.json"}, {"model": "{0}/graph.json.gz"},
        {"convergence": "{0}/curve.csv"}, {"cost": {"name": "calibrated", "table": "{0}/costs.json"}},
        {"cost": {"name": "profiled", "table": "{0}/costs.json"}},
        {"fabric": {"name": "custom", "links": "{0}/links.csv"}},
        {"mode": "mix", "jobs": [{"model": "{0}/mine.py:Net"}]}, {"mode": "mix", "jobs": [{"model": "{0}/graph.json"}]},
    ],
)  # fmt: skip
def test_the_contents_of_every_file_that_a_setting_names_are_part_of_the_key(base, tmp_path, monkeypatch, given):
    contents = {
        "mine.py": "class Net: pass\n", "graph.json": "{}", "graph.json.gz": "", "costs.json": "{}",
        "curve.csv": "global_batch,epochs\n256,40\n512,50\n",
        "links.csv": "src,dst,bandwidth,latency\n" + "".join(f"a{i},s0,400 Gb/s,100 ns\n" for i in range(4)),
    }  # fmt: skip
    changed = {"curve.csv": "global_batch,epochs\n256,41\n512,50\n"} | {
        name: text.replace("400", "200") if name == "links.csv" else text + " "
        for name, text in contents.items() if name != "curve.csv"
    }  # fmt: skip
    settings = base | json.loads(json.dumps(given).replace("{0}", "."))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rostam_py.spec.settings.goal_of_settings", lambda settings: None)
    found = []
    for texts in (contents, contents, changed):
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        found.append(point_key(complete_settings(settings)))
    assert found[0] == found[1] != found[2]


def test_files_that_are_named_like_settings_are_none(base, tmp_path, monkeypatch):
    settings = complete_settings(base)
    before = point_key(settings)
    monkeypatch.chdir(tmp_path)
    for name in ("torus", "resnet50", "graph:mlp", "roofline"):
        (tmp_path / name).write_text("a file")
    assert point_key(settings) == before


def imported_by(module, seen):
    """Return the modules of rostam below its package that a module imports, directly or not."""
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    path = path if path.exists() else PACKAGE / module.replace(".", "/") / "__init__.py"
    if module in seen or not path.exists():
        return seen
    seen.add(module)
    for statement in ast.walk(ast.parse(path.read_text())):
        names = [statement.module] if isinstance(statement, ast.ImportFrom) and statement.module else []
        names += [one.name for one in statement.names] if isinstance(statement, ast.Import) else []
        if isinstance(statement, ast.ImportFrom):
            names += [f"{statement.module}.{one.name}" for one in statement.names]
        for name in names:
            if name.startswith("rostam_py."):
                imported_by(name.removeprefix("rostam_py."), seen)
    return seen


def test_the_code_of_a_key_is_all_that_evaluates_a_point():
    needed = {name.partition(".")[0] for name in imported_by("sweep.evaluate", set())}
    own = {name for name in needed if (PACKAGE / name).is_dir()} - {"sweep"}
    assert own <= set(_COMPUTING)
    assert {"spread", "searching", "fleet", "costs"} <= own
    assert code_digest((), _COMPUTING_FILES) != code_digest((), ("_core*",))  # units and their like are files


@pytest.mark.parametrize("kind", ["py", "json", "csv"])
def test_shipped_data_are_code(tmp_path, monkeypatch, kind):
    (tmp_path / "costs").mkdir()
    monkeypatch.setattr("rostam_py.digests._PACKAGE", tmp_path)
    found = []
    for text in ("a", "b"):
        (tmp_path / "costs" / f"data.{kind}").write_text(text)
        code_digest.cache_clear()
        found.append(code_digest(("costs",)))
    code_digest.cache_clear()
    assert found[0] != found[1]


def test_a_list_of_links_is_read_again_when_its_file_has_changed(base, tmp_path):
    path = tmp_path / "links.csv"
    given = base | {"fabric": {"name": "custom", "links": str(path)}}
    found = []
    for bandwidth in ("400 Gb/s", "50 Gb/s"):
        rows = "".join(f"a{i},s0,{bandwidth},100 ns\n" for i in range(4))
        path.write_text(f"src,dst,bandwidth,latency\n{rows}")
        found.append(complete_settings(given))
    assert [settings["fabric"]["links"]["bandwidth"][0] for settings in found] == ["400 Gb/s", "50 Gb/s"]
    assert point_key(found[0]) != point_key(found[1])


def test_another_torch_makes_other_points(base, monkeypatch):
    settings = complete_settings(base)
    before = point_key(settings)
    monkeypatch.setattr("rostam_py.sweep.identity.installed_version", lambda name: "0.0")
    assert point_key(settings) != before


def test_graphs_of_ones_own_are_told_apart_by_content(base):
    settings = complete_settings(base)
    assert point_key(settings, {"graph:mlp": "a"}.get) != point_key(settings, {"graph:mlp": "b"}.get)


def test_the_code_is_part_of_the_key(base, monkeypatch):
    settings = complete_settings(base)
    before = point_key(settings)
    monkeypatch.setattr("rostam_py.sweep.identity.code_version", lambda: "other")
    assert point_key(settings) != before
    assert "+" in code_version()


def test_num_accelerators_sizes_every_fabric(base):
    fabrics = [
        {"name": "torus", "dims": [2, 4]}, {"name": "torus", "dims": [2, 2, 2]}, {"name": "fat_tree"},
        {"name": "hammingmesh", "board": [2, 2], "boards": [1, 1]}, {"name": "sip_ring", "num_accelerators": 4},
    ]  # fmt: skip
    points = expand_points(base, grid_axes({"fabric": fabrics, "num_accelerators": [64]}))
    assert [p.settings["fabric"].get("dims") for p in points[:2]] == [[8, 8], [4, 4, 4]]
    assert points[2].settings["fabric"]["num_accelerators"] == 64
    assert points[3].settings["fabric"]["boards"] == [4, 4]
    with pytest.raises(ConfigError, match=r"num_accelerators is 6; fabric.board is 2x2, .* a multiple of 4, such as"):
        expand_points(base, grid_axes({"fabric": fabrics[3:4], "num_accelerators": [6]}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sed": 1}, "unknown key 'sed'"),
        ({"seed": -1}, "seed is -1; it must be an integer from 0 to 2.64 - 1"),
        ({"strategy": {"tpp": 2}}, "unknown key 'strategy.tpp'"),
        ({"strategy": {"tp": 0}}, "strategy.tp is 0"),
        ({"fabric": {"name": "tours"}}, "did you mean 'torus'"),
        ({"fabric": {"name": "torus", "dims": [4], "radix": 2}}, "no parameter 'radix'"),
        ({"fabric": {"dims": [4]}}, "fabric.name is missing"),
        ({"model": "resnet51"}, "unknown model 'resnet51'"),
        ({"model": "no/such.py:Net"}, "there is no file 'no/such.py'"),
        ({"accelerator": "a1000"}, "a1000"),
        ({"routing": "ecmp"}, "unknown routing 'ecmp'"),
        ({"failures": {"link": 1}}, "unknown key 'failures.link'"),
        ({"mode": "walk"}, "sweep.mode is 'walk'"),
        ({"mode": "mix"}, "jobs is empty"),
        ({"mode": "search", "model": "gpt_125m"}, "search.batches is missing"),
        ({"cost": {"name": "roofline", "speed": 2}}, "no parameter 'speed'"),
        ({"convergence": "resnet50_mlperf", "model": "resnet50", "global_batch": 1}, "global batch|global_batch"),
        ({"accelerator_usd_per_hour": float("inf")}, "accelerator_usd_per_hour is inf"),
        ({"accelerator_usd_per_hour": "two"}, "accelerator_usd_per_hour is 'two'"),
        ({"accelerator_usd_per_hour": 2}, "accelerator_usd_per_hour is 2, the price of training up to a target"),
    ],
)
def test_bad_settings_are_refused_by_key_value_and_what_is_allowed(base, given, said):
    with pytest.raises(ConfigError, match=said):
        complete_settings(base | given)


def test_the_message_names_the_point(base):
    with pytest.raises(ConfigError, match=r"strategy.tp is 0.*\(at seed=0, strategy.tp=0\)"):
        expand_points(base, grid_axes({"seed": [0], "strategy.tp": [2, 0]}))


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (lambda: grid_axes({"seed": []}), "axis seed has no values"),
        (lambda: grid_axes({"seed": [1, 1]}), "axis seed has the value '1' twice"),
        (lambda: grid_axes({"seed": 3}), "axis seed is 3; it must be a list"),
        (lambda: [row_axis([{"label": "x"}])], r"sweep.rows\[0\] sets no key"),
    ],
)
def test_bad_axes_are_refused(axes, said):
    with pytest.raises(ConfigError, match=said):
        axes()


def test_entries_of_lists_are_keys_too():
    settings = with_key({"jobs": [{"model": "a"}, {"model": "b"}]}, "jobs.1.global_batch", 8)
    assert settings["jobs"] == [{"model": "a"}, {"model": "b", "global_batch": 8}]


def test_a_key_in_rows_and_in_the_grid_is_refused_with_row_and_places(base):
    rows = [{"label": "x", "strategy.tp": 1}, {"label": "y", "seed": 3}]
    said = r"strategy.tp is set by the row 'x' of sweep.rows and by the axis strategy.tp of sweep.grid"
    with pytest.raises(ConfigError, match=said):
        Sweep(base, rows=rows, grid={"strategy.tp": [2, 4]})


@pytest.mark.parametrize(
    "rows",
    [
        [{"label": "x", "fabric": {"name": "torus", "dims": [2, 4], "link_bandwidth": "1 Tb/s"}}],
        [{"label": "x", "fabric.link_bandwidth": "1 Tb/s"}],
    ],
)
def test_a_parameter_that_a_row_spells_out_cannot_be_an_axis_too(base, rows):
    with pytest.raises(ConfigError, match=r"fabric.link_bandwidth is set by the row 'x'"):
        Sweep(base, rows=rows, grid={"fabric.link_bandwidth": ["100 Gb/s", "200 Gb/s"]})


def test_an_axis_over_a_parameter_that_a_rows_fabric_leaves_open_holds_for_each(base):
    fabrics = {"t": {"name": "torus", "dims": [2, 4]}, "f": {"name": "fat_tree", "num_accelerators": 8}}
    rows = row_axis([{"label": label, "fabric": fabric} for label, fabric in fabrics.items()])
    points = expand_points(base, [rows, *grid_axes({"fabric.accelerator_bandwidth": ["1 Tb/s", "2 Tb/s"]})])
    assert [p.settings["fabric"]["accelerator_bandwidth"] for p in points] == ["1 Tb/s", "2 Tb/s"] * 2
    assert [p.settings["fabric"]["name"] for p in points] == ["torus", "torus", "fat_tree", "fat_tree"]


def test_a_mapping_is_set_before_its_keys_however_deep(base):
    deep = Axis("strategy.algorithms.all_reduce", [Value("auto", "auto")])
    rows = row_axis([{"label": "x", "strategy.algorithms": {"all_gather": "ring"}}])
    for axes in ([deep, rows], [rows, deep]):
        settings = expand_points(base, axes)[0].settings
        assert settings["strategy"]["algorithms"] == {"all_gather": "ring", "all_reduce": "auto"}


def test_a_size_that_num_accelerators_replaces_cannot_be_an_axis(base):
    grid = {"fabric.dims": [[2, 4], [8, 8]]}
    with pytest.raises(ConfigError, match=r"fabric.dims is \[2, 4\], but num_accelerators=64 makes it \[8, 8\]"):
        Sweep(base | {"num_accelerators": 64}, grid=grid)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"mode": "search", "search": {"batches": [64]}}, "strategy.tp"),
        ({"mode": "search", "search": {"batches": [64]}}, "global_batch"),
        ({"mode": "mix", "jobs": [{"model": "gpt_125m"}]}, "model"),
        ({"mode": "mix", "jobs": [{"model": "gpt_125m"}]}, "strategy.tp"),
        ({"mode": "mix", "jobs": [{"model": "gpt_125m"}]}, "global_batch"),
        ({"mode": "mix", "jobs": [{"model": "gpt_125m"}]}, "fidelity"),
        ({"mode": "run"}, "search.num_simulated"),
        ({"mode": "run"}, "mix.seed"),
        ({"mode": "run"}, "jobs"),
    ],
)
def test_what_the_mode_does_not_read_cannot_be_an_axis_or_in_a_row(base, given, key):
    mode = given["mode"]
    said = f"{key}, which sweep.mode={mode} does not read; {mode} reads: accelerator, "
    with pytest.raises(ConfigError, match=f"sweep.grid has an axis of {said}"):
        expand_points(base | given, grid_axes({key: [1, 2]}))
    with pytest.raises(ConfigError, match=f"the row 'x' of sweep.rows sets {said}"):
        expand_points(base | given, [row_axis([{"label": "x", key: 2}])])


def test_a_key_that_one_of_several_modes_reads_can_be_an_axis(base):
    search = {"mode": "search", "label": "best", "search.batches": [64]}
    axes = [row_axis([{"mode": "run", "label": "as given"}, search]), *grid_axes({"strategy.tp": [1, 2]})]
    points = expand_points(base, axes)
    assert [p.settings["strategy"]["tp"] for p in points] == [1, 2, 1, 1]
    assert points[2].key == points[3].key
    with pytest.raises(ConfigError, match=r"the row 'x' of sweep.rows sets search.batches, which sweep.mode=run does"):
        expand_points(base, [row_axis([search, {"mode": "run", "label": "x", "search.batches": [64]}])])


def test_presets_that_differ_only_in_what_is_searched_are_refused(base):
    presets = [Value(f"tp {tp}", {"tp": tp, "precision": "fp32"}, is_preset=True) for tp in (1, 2)]
    with pytest.raises(ConfigError, match=r"'tp 1' and 'tp 2' differ only in keys that sweep\.mode=search does"):
        expand_points(base | {"mode": "search", "search": {"batches": [64]}}, grid_axes({"strategy": presets}))


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"foo": 5}, r"unknown key 'jobs\[1\].foo'; jobs\[1\] has: name, model"),
        ({"strategy": {"tpp": 2}}, r"unknown key 'jobs\[1\].strategy.tpp'"),
        ({"strategy": {"tp": 0}}, r"jobs\[1\]: strategy.tp is 0"),
        ({"strategy": 4}, r"jobs\[1\].strategy is 4"),
        ({"global_batch": 0}, r"jobs\[1\].global_batch is 0"),
        ({"model": "gpt"}, r"jobs\[1\]: unknown model 'gpt'"),
        ({"start": "5"}, r"jobs\[1\].start is '5'"),
        (3, r"jobs\[1\] is 3; a job is a mapping"),
    ],
)
def test_a_bad_job_is_named_by_its_place(base, job, said):
    with pytest.raises(ConfigError, match=said):
        complete_settings(base | {"mode": "mix", "jobs": [{"model": "gpt_125m"}, job]})
