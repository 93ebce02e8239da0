"""Presets and experiments: each composes to a typed schema, is what its source says, and refuses what it has not."""

import dataclasses
import json

import pytest
from omegaconf import OmegaConf

from rostam_py.cli.choices import (
    GROUPS,
    config_folders,
    describe_preset,
    experiment_command,
    group_choices,
    preset_base,
    preset_values,
    presets,
)
from rostam_py.cli.compose import compose_config, composed
from rostam_py.cli.main import main
from rostam_py.cli.schema import name_of
from rostam_py.costs import COST_MODELS
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.fabric import Fabric
from rostam_py.plan import Strategy
from rostam_py.spec.keys import StrategyKeys

ALL = [(group, name) for group in GROUPS for name in presets(group)]
MACHINES = [(group, name) for group, name in ALL if group != "experiment"]


def fabric_of(name: str) -> Fabric:
    config = compose_config("run", [f"fabric={name}"]).fabric
    return Fabric(name_of("fabric", config), config)


def test_every_preset_says_what_it_is_in_one_line(told):
    for group, name in ALL:
        text = describe_preset(group, name)
        with told(group, name):
            assert text.endswith((".", ":", ")"))
            assert 20 < len(text) <= 116


@pytest.mark.parametrize(("group", "name"), MACHINES)
def test_every_preset_composes_to_the_schema_that_it_names(group, name):
    schemas = {
        "fabric": {one: FABRICS.get(one) for one in FABRICS},
        "cost": {one: COST_MODELS.get(one).Config for one in COST_MODELS},
        "strategy": {"default": StrategyKeys},
    }[group]
    assert name not in schemas, "a preset hides a registered name"
    schema = schemas[preset_base(group, name)]
    config = composed("run", (f"{group}={name}",))
    assert OmegaConf.get_type(config[group]) is schema
    typed = compose_config("run", [f"{group}={name}"])
    assert type(getattr(typed, group)) is schema
    assert set(preset_values(group, name)) <= {entry.name for entry in dataclasses.fields(schema)}


@pytest.mark.parametrize("name", presets("strategy"))
def test_every_strategy_preset_is_a_legal_strategy(name):
    fields = dataclasses.asdict(compose_config("run", [f"strategy={name}"]).strategy)
    strategy = Strategy(**(fields | {"dp": fields["dp"] or max(fields["ep"], fields["shard_group"] or 1)}))
    written = OmegaConf.load(config_folders("strategy")[0].joinpath(f"{name}.yaml"))
    keys = set(written) - {"defaults"}
    assert keys
    inside = {"placing": dataclasses.asdict(strategy.placing)}
    for key in keys:
        expected = {**inside[key], **written[key]} if key in inside else written[key]
        assert inside.get(key, getattr(strategy, key)) == expected


@pytest.mark.parametrize("name", presets("experiment"))
def test_every_experiment_composes_and_holds_overrides_only(name):
    text = config_folders("experiment")[0].joinpath(f"{name}.yaml").read_text("utf-8")
    assert text.startswith("# @package _global_\n")
    command = experiment_command(name)
    config = compose_config(command, [f"experiment={name}"])
    untouched = compose_config(command, [])
    assert config != untouched


@pytest.mark.parametrize("name", [one for one in presets("experiment") if experiment_command(one) == "sweep"])
def test_every_sweep_experiment_expands_to_checked_points(name):
    from rostam_py.cli.sweep_axes import read_command
    from rostam_py.sweep.points import expand_points

    command = read_command([f"experiment={name}"])
    axes, points = command.axes, list(expand_points(command.settings, command.axes))
    assert len(points) == len({point.key for point in points})
    expected = 1
    for axis in axes:
        expected *= len(axis.values)
    assert len(points) == expected > 1


def test_figure_5s_preset_holds_the_whole_figure():
    # Three models on five fabrics, and pure data parallelism of the two that fit one accelerator, at seven bandwidths.
    from rostam_py.cli.sweep_axes import read_command
    from rostam_py.sweep.points import expand_points

    command = read_command(["experiment=sip_ml_fig5"])
    points = list(expand_points(command.settings, command.axes))
    assert len(points) == (3 * 5 + 2) * 7
    fabrics, dps = {}, {}
    for point in points:
        model, fabric = point.settings["model"], point.settings["fabric"]
        axes = point.settings["search"]["axes"]
        dps.setdefault(model, set()).add(None if axes is None else tuple(axes["dp"]))
        fabrics.setdefault(model, set()).add((fabric["name"], fabric.get("server_bandwidth")))
        assert fabric["num_accelerators"] == 1024
        assert point.settings["strategy"]["check_memory"] == (model != "megatron_18b")
    assert dps == {"resnet50": {None, (1024,)}, "transformer_350m": {None, (1024,)}, "megatron_18b": {(64,)}}
    assert {len(found) for found in fabrics.values()} == {5}


# HammingMesh, appendix C: accelerators, and switches, copper and optical cables of one plane. The trees have 16
# planes of one port, the meshes and tori 4 planes of four, all of 400 Gb/s: 6.4 Tb/s into every accelerator.
@pytest.mark.parametrize(
    ("name", "accelerators", "switches", "copper", "optical"),
    [
        ("tree_1024", 1024, 32 + 16, 1024, 1024),
        ("tree_1050_tapered", 1050, 25 + 9, 1050, 550),
        ("tree_1071_tapered_75", 1071, 21 + 5, 1071, 273),
        ("tree_1024_tapered", 1024, 25 + 9, 1024, 550),
        ("tree_1024_tapered_75", 1024, 21 + 5, 1024, 273),
        ("hx1mesh_32x32", 1024, 64, 2048, 2048),
        ("hx2mesh_16x16", 1024, 32, 1024, 1024),
        ("hx4mesh_8x8", 1024, 16, 512, 512),
        ("torus_32x32", 1024, 0, 1024, 0),
        ("tree_16384", 16384, 512 + 512 + 256, 16384, 2 * 16384),
        # 128 rows and 128 columns of trees with 8 + 4 switches; a cable for each of 256 ports, and as many up.
        ("hx1mesh_128x128", 16384, 256 * 12, 128 * 256, 128 * 256 + 256 * 256),
        ("hx2mesh_64x64", 16384, 1536, 128 * 128, 128 * 128 + 256 * 128),
        ("hx4mesh_32x32", 16384, 256, 8192, 8192),
        ("torus_128x128", 16384, 0, 16384, 0),
    ],
)
def test_hammingmesh_machines_have_the_papers_parts(name, accelerators, switches, copper, optical):
    fabric = fabric_of(name)
    bill, planes = fabric.bill_of_materials(), fabric.planes
    assert fabric.num_accelerators == accelerators
    assert bill.num_switches == planes * switches
    assert bill.num_cables.get("DAC", 0) == planes * copper
    assert bill.num_cables.get("AoC", 0) == planes * optical
    assert fabric.injection_bandwidth_bytes_per_s == pytest.approx(800e9)


@pytest.mark.parametrize("name", ["tree_16384_tapered", "tree_16384_tapered_75"])
def test_large_tapered_trees_have_the_papers_accelerators(name):
    # The paper counts 794 switches a plane at 50%; a pod left part full needs its switches all the same.
    fabric = fabric_of(name)
    assert fabric.num_accelerators == 16384
    assert fabric.injection_bandwidth_bytes_per_s == pytest.approx(800e9)


@pytest.mark.parametrize(
    ("name", "diameter"),
    [("tree_1024", 4), ("tree_1050_tapered", 4), ("hx1mesh_32x32", 4), ("hx2mesh_16x16", 4), ("torus_32x32", 32)],
)
def test_small_machines_have_table_2s_diameters(name, diameter):
    assert fabric_of(name).diameter() == diameter


def test_the_small_hx4mesh_is_wired_by_board_rows_whose_diameter_is_6():
    # 16 switches are wiring (1); Table II's diameter of 8 is wiring (2), with 64 switches.
    assert fabric_of("hx4mesh_8x8").diameter() == 6
    config = compose_config("run", ["fabric=hx4mesh_8x8", "fabric.wiring=accelerator_row"]).fabric
    assert Fabric("hammingmesh", config).diameter() == 8


@pytest.mark.parametrize("count", [256, 1024])
@pytest.mark.parametrize("kind", ["flat", "cluster", "sip_ocs", "sip_ring"])
def test_sip_ml_machines_have_8_terabits_an_accelerator(kind, count):
    fabric = fabric_of(f"{kind}_{count}")
    assert fabric.num_accelerators == count
    assert fabric.injection_bandwidth_bytes_per_s == pytest.approx(1e12)


def test_sip_ml_machines_have_the_papers_switches_and_wavelengths():
    ocs, ring = (compose_config("run", [f"fabric={name}"]).fabric for name in ("sip_ocs_1024", "sip_ring_1024"))
    assert ocs.num_ocs == 16
    assert ring.num_wavelengths == 8000 // 25
    assert ring.reach == 16
    cluster = compose_config("run", ["fabric=cluster_1024"]).fabric
    assert (cluster.server_size, cluster.server_bandwidth) == (8, "400 Gb/s")


def test_the_routing_studys_clos_has_64_leaves_32_spines_and_hosts_of_8():
    fabric = fabric_of("clos_2048")
    assert fabric.num_accelerators == 64 * 32
    assert fabric.num_switches == 64 + 32
    assert fabric.injection_bandwidth_bytes_per_s == pytest.approx(100e9 / 8)
    assert compose_config("run", ["fabric=clos_2048"]).fabric.server_size == 8


@pytest.mark.parametrize(
    ("command", "overrides", "parts"),
    [
        ("run", ["fabric=tree_1024", "fabric.leaf_dwn=3"], ["unknown key 'fabric.leaf_dwn'", "'fabric.leaf_down'"]),
        ("run", ["fabric=tree_1024", "fabric.planes=many"], ["fabric.planes", "many"]),
        ("run", ["fabric=hx2mesh_64x64", "fabric.boards=[a,b]"], ["fabric.boards", "a"]),
        ("run", ["strategy=megatron_tp8", "strategy.tpp=4"], ["unknown key 'strategy.tpp'", "'strategy.tp'"]),
        ("run", ["strategy=megatron_tp8", "strategy.pp=two"], ["strategy.pp", "two"]),
        ("run", ["cost=constant", "cost.forwards=1"], ["unknown key 'cost.forwards'", "'cost.forward_s'"]),
        ("run", ["cost=constant", "cost.forward_s=soon"], ["cost.forward_s", "soon"]),
        ("run", ["experiment=quick", "globl_batch=1"], ["unknown key 'globl_batch'", "'global_batch'"]),
        ("run", ["experiment=quick", "global_batch=some"], ["global_batch", "some"]),
        ("run", ["failures.link=5"], ["unknown key 'failures.link'", "'failures.links'"]),
        ("run", ["failures.links=five"], ["failures.links", "five"]),
        ("search", ["search.batch=[1]"], ["unknown key 'search.batch'", "did you mean search.batches=[1]?"]),
        ("search", ["search.show=all"], ["search.show", "all"]),
        ("sweep", ["sweep.worker=2"], ["unknown key 'sweep.worker'", "'sweep.workers'"]),
        ("sweep", ["mix.num_jobs=few"], ["mix.num_jobs", "few"]),
    ],
)
def test_misspelt_keys_and_wrong_types_of_each_group_fail_at_composing(command, overrides, parts):
    with pytest.raises(ConfigError) as caught:
        compose_config(command, overrides)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("group", ["fabric", "strategy", "cost"])
def test_a_preset_with_a_misspelt_key_or_a_wrong_type_does_not_compose(group, tmp_path, monkeypatch):
    from hydra import compose, initialize_config_dir
    from hydra.errors import ConfigCompositionException
    from omegaconf.errors import OmegaConfBaseException

    from rostam_py.cli.schema_store import store_schemas

    store_schemas()
    base, key = {
        "fabric": ("fat_tree", "radix"),
        "strategy": ("default", "tp"),
        "cost": ("constant", "reference_batch"),
    }[group]
    (tmp_path / group).mkdir()
    (tmp_path / group / "good.yaml").write_text(f"defaults: [{base}, _self_]\n{key}: 8\n")
    (tmp_path / group / "misspelt.yaml").write_text(f"defaults: [{base}, _self_]\n{key}x: 8\n")
    (tmp_path / group / "mistyped.yaml").write_text(f"defaults: [{base}, _self_]\n{key}: eight\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert compose(overrides=[f"+{group}=good"])[group][key] == 8
        for bad in ("misspelt", "mistyped"):
            with pytest.raises((ConfigCompositionException, OmegaConfBaseException)):
                compose(overrides=[f"+{group}={bad}"])


def test_single_keys_override_a_strategy_preset():
    strategy = compose_config("run", ["strategy=gpt3_175b_tp8_pp8", "strategy.pp=16"]).strategy
    assert (strategy.tp, strategy.pp, strategy.recompute) == (8, 16, "full")
    assert compose_config("run", ["strategy.tp=8"]).strategy.tp == 8


def test_the_command_line_wins_over_an_experiment():
    config = compose_config("run", ["experiment=quick", "strategy.tp=4", "fabric=torus_8x8"])
    assert (config.model, config.strategy.tp) == ("gpt_125m", 4)
    assert name_of("fabric", config.fabric) == "torus"


@pytest.mark.usefixtures("cached_traces")
def test_the_quick_experiment_runs(tmp_path, capsys):
    assert main(["run", "experiment=quick", f"out={tmp_path}", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["num_accelerators"] == 64
    assert result["strategy"]["tp"] == 2
    assert "model: gpt_125m" in (tmp_path / "config.yaml").read_text()


def test_an_experiment_of_another_command_says_which():
    with pytest.raises(ConfigError, match="rostam sweep experiment=sip_ml_fig5"):
        compose_config("run", ["experiment=sip_ml_fig5"])
    with pytest.raises(ConfigError, match="rostam search experiment=transformer_sip_ml"):
        compose_config("run", ["experiment=transformer_sip_ml"])
    with pytest.raises(ConfigError, match="rostam fleet experiment=weeks_llama3_8b"):
        compose_config("run", ["experiment=weeks_llama3_8b"])


FLEET = [one for one in presets("experiment") if experiment_command(one) == "fleet"]


def test_every_study_of_weeks_and_of_queues_has_its_preset():
    weeks = ["weeks_infinitehbd", "weeks_llama3_405b", "weeks_llama3_8b", "weeks_ragged"]
    assert ["jobs_hammingmesh", "jobs_philly", *weeks] == FLEET
    llama = compose_config("fleet", ["experiment=weeks_llama3_405b"]).fleet
    assert float(llama.mtbf.removesuffix(" d")) == pytest.approx(54 * 2_048 / 419, rel=1e-3)
    assert compose_config("fleet", ["experiment=weeks_infinitehbd"]).fleet.servers == 400


@pytest.mark.parametrize(
    ("override", "near"),
    [
        ("fabric=tours", "torus"), ("fabric=torus_8x8,tours", "torus"), ("strategy=megatron_tp", "megatron_tp8"),
        ("experiment=quik", "quick"), ("model=resnet5", "resnet50"), ("model=gpt_125m,resnet5", "resnet50"),
        ("accelerator=a100_80", "a100_80gb"), ("convergence=resnet50_mlpref", "resnet50_mlperf"),
        ("routing=hsh", "hash"), ("cost=rooflin", "roofline"), ("accelerator=a100_80gb,v100_32g", "v100_32gb"),
    ],
)  # fmt: skip
def test_a_wrong_name_lists_the_choices_and_the_nearest_before_any_work(override, near):
    with pytest.raises(UnknownNameError) as caught:
        compose_config("run", [override])
    assert f"did you mean {near!r}" in str(caught.value)
    key = override.partition("=")[0]
    if key in GROUPS:
        assert ", ".join(group_choices(key)) in str(caught.value)


def test_several_values_are_sent_to_sweep():
    with pytest.raises(ConfigError, match="rostam sweep fabric=torus_8x8,tree_64"):
        compose_config("run", ["fabric=torus_8x8,tree_64"])
    with pytest.raises(ConfigError, match="rostam sweep"):
        compose_config("run", ["seed=range(0,4)"])


def test_models_of_ones_own_and_no_curve_pass():
    assert compose_config("run", ["model=path/to/file.py:Mine"]).model == "path/to/file.py:Mine"
    assert compose_config("run", ["convergence=null"]).convergence is None


def test_presets_of_the_users_own_are_choices_too(tmp_path, monkeypatch, capsys):
    (tmp_path / "fabric").mkdir()
    (tmp_path / "fabric" / "lab_32.yaml").write_text(
        "# The lab's tree.\ndefaults: [fat_tree, _self_]\nnum_accelerators: 32\n"
    )
    with pytest.raises(UnknownNameError, match="lab_32"):
        compose_config("run", ["fabric=lab_32"])
    monkeypatch.setenv("ROSTAM_CONFIGS", str(tmp_path))
    assert compose_config("run", ["fabric=lab_32"]).fabric.num_accelerators == 32
    assert main(["list", "presets", "--json"]) == 0
    assert {"key": "fabric=lab_32", "what": "The lab's tree.", "of": "fabric=fat_tree"} in json.loads(
        capsys.readouterr().out
    )["presets"]
    monkeypatch.setenv("ROSTAM_CONFIGS", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"ROSTAM_CONFIGS names .*none', which is no folder"):
        compose_config("run", ["fabric=lab_32"])


def test_variables_of_the_environment_are_resolved_wherever_a_preset_or_an_override_has_them(monkeypatch, tmp_path):
    from rostam_py.cli.compose import resolved_yaml
    from rostam_py.cli.sweep_axes import read_command

    (tmp_path / "strategy").mkdir()
    (tmp_path / "strategy" / "of_env.yaml").write_text("tp: ${oc.env:DOOR_TP}\n")
    (tmp_path / "fabric").mkdir()
    (tmp_path / "fabric" / "of_env.yaml").write_text(
        "defaults: [fat_tree, _self_]\nnum_accelerators: ${oc.env:DOOR_COUNT}\nlink_bandwidth: ${oc.env:DOOR_RATE}\n"
    )
    for name, value in (("DOOR_TP", "2"), ("DOOR_COUNT", "8"), ("DOOR_RATE", "100 Gb/s"), ("DOOR_SEED", "3")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ROSTAM_CONFIGS", str(tmp_path))
    given = ["strategy=of_env", "fabric=of_env"]
    config = compose_config("run", given)
    assert (config.strategy.tp, config.fabric.num_accelerators, config.fabric.link_bandwidth) == (2, 8, "100 Gb/s")
    assert compose_config("run", [*given, "num_accelerators=16"]).fabric.num_accelerators == 16
    text = resolved_yaml("run", given)
    assert "tp: 2\n" in text
    assert "${" not in text
    seeds = next(axis for axis in read_command(["seed=${oc.env:DOOR_SEED},4"]).axes if axis.key == "seed")
    assert [(value.label, value.data) for value in seeds.values] == [("3", 3), ("4", 4)]
    monkeypatch.delenv("DOOR_TP")
    with pytest.raises(ConfigError, match=r"strategy.tp takes the environment variable 'DOOR_TP', which is not set"):
        compose_config("run", given)
