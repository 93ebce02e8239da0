"""``machine=NAME``: written out as fabric and accelerator; explicit keys win or are refused with a reason."""

import dataclasses
import json

import pytest

from rostam_py.cli.completion import candidates
from rostam_py.cli.compose import compose_config
from rostam_py.cli.main import main
from rostam_py.cli.named_machine import written_out
from rostam_py.cli.sweep_axes import read_command
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.fabrics.link_classes import LINK_CLASSES
from rostam_py.machines import MACHINES
from rostam_py.spec.keys import RunKeys
from rostam_py.spec.settings import is_setting
from rostam_py.sweep import Sweep

pytestmark = pytest.mark.usefixtures("cached_traces")


def test_a_name_is_the_fabric_accelerators_power_and_price_that_it_stands_for():
    config = compose_config("run", ["machine=dgx_a100", "machine.servers=4", "machine.launch_latency=2 us"])
    assert config.fabric.num_accelerators == 32
    assert (config.fabric.server_size, config.fabric.server_bandwidth) == (8, "300 GB/s")
    assert config.fabric.accelerator_bandwidth == "200 Gb/s"
    assert config.accelerator == "a100_80gb"
    assert (config.machine.watts, config.machine.usd) == (26_000.0, 796_000.0)
    assert config.machine.launch_latency == "2 us"


def test_without_a_name_overrides_stay_as_they_are():
    given = ["model=resnet50", "machine.launch_latency=2 us", "fabric=torus_8x8"]
    assert written_out("run", given) == given


def test_keys_given_beside_a_name_win():
    given = ["machine=dgx_h100", "accelerator=h200_141gb", "fabric.server_bandwidth=300 GB/s", "machine.usd=1.5e6"]
    config = compose_config("run", given)
    assert config.accelerator == "h200_141gb"
    assert config.fabric.server_bandwidth == "300 GB/s"
    assert config.machine.usd == 1.5e6
    assert config.fabric.accelerator_bandwidth == "400 Gb/s"
    wide = compose_config("run", ["machine=dgx_h100", "fabric.link_bandwidth=800 Gb/s"])
    assert (wide.fabric.link_bandwidth, wide.fabric.accelerator_bandwidth) == ("800 Gb/s", None)


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        (["machine=dgx_h10"], UnknownNameError, ["unknown machine 'dgx_h10'", "did you mean 'dgx_h100'", "tpu_v4_pod"]),
        (["machine=dgx_h100", "machine.sevrers=2"], ConfigError, ["unknown key 'machine.sevrers'", "servers"]),
        (["machine=dgx_h100", "machine.servers=two"], ConfigError, ["machine.servers is 'two'"]),
        (["machine=dgx_h100", "fabric=torus_8x8"], ConfigError, ["'fabric=torus_8x8'", "brings its own fabric"]),
        (["machine=dgx_h100", "machine.servers=2", "num_accelerators=64"], ConfigError, ["num_accelerators is 64"]),
        (["machine=dgx_h100", "fabric.server_size=4"], ConfigError, ["'fabric.server_size=4'", "machine.servers"]),
        (["machine=tpu_v4_pod", "fabric.dims=[2,2]"], ConfigError, ["'fabric.dims=[2,2]'", "machine.dims"]),
        (["machine=dgx_a100,dgx_h100"], ConfigError, ["give 2 machines", "rostam run takes one"]),
        (["machine=dgx_a100", "machine=dgx_h100"], ConfigError, ["given 2 times"]),
        (["machine.servers=4"], ConfigError, ["machine.servers needs a machine that has this key", "dgx_h100"]),
        (["machine.watts=-1"], ConfigError, ["machine.watts is -1"]),
    ],
)  # fmt: skip
def test_what_contradicts_a_machine_is_refused(overrides, error, words):
    with pytest.raises(error) as caught:
        compose_config("run", overrides)
    for word in words:
        assert word in str(caught.value)


def test_a_run_on_a_machine_says_what_it_takes(tmp_path, capsys):
    arguments = ["run", "model=transformer_350m", "machine=dgx_a100", "machine.servers=2", f"out={tmp_path}"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "398,000 USD without the network" in text
    assert "13 kW at most" in text
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["accelerator"] == "a100_80gb"
    assert found["energy_per_iteration_j"] == pytest.approx(13_000 * found["iteration_time_s"])
    # What was written out is kept, and runs again as itself.
    kept = json.loads((tmp_path / "run.json").read_text())
    assert kept["overrides"][:3] == arguments[1:4]
    assert "num_accelerators: 16" in (tmp_path / "config.yaml").read_text()


def test_a_collective_runs_on_a_machine(capsys):
    arguments = [
        "collective",
        "machine=dgx_h100",
        "machine.servers=2",
        "sizes.list=[1 GiB]",
        "algorithm=ring",
        "--json",
    ]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_ranks"] == 16
    # 8 NICs of 50 GB/s at what InfiniBand achieves, less start-ups, hops and a rank's own last copy and sum.
    achieved = 400e9 * LINK_CLASSES.get("infiniband").share
    assert found["rows"][0]["bus_bandwidth_bytes_per_s"] == pytest.approx(achieved, rel=0.1)
    assert (found["rows"][0]["protocol"], found["rows"][0]["num_channels"]) == ("Simple", 8)


def test_several_machines_are_the_rows_of_a_sweep():
    command = read_command(["machine=dgx_a100,dgx_h100", "machine.servers=2,4", "model=gpt_125m"])
    (axis,) = command.axes
    assert [value.label for value in axis.values] == [
        "dgx_a100 servers 2", "dgx_a100 servers 4", "dgx_h100 servers 2", "dgx_h100 servers 4",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="rows of a sweep"):
        read_command(["machine=dgx_a100,dgx_h100", "sweep.rows=[{label: a, seed: 1}]"])


def test_a_sweep_over_machines_simulates_each(tmp_path, capsys):
    arguments = ["sweep", "machine=dgx_a100,tpu_v4_pod", "model=gpt_125m", "strategy.precision=bf16_mixed"]
    arguments += ["sweep.backend=inline", "report=false", "sweep.details=0", f"out={tmp_path}", "--json"]
    assert main(arguments) == 0
    capsys.readouterr()
    lines = (tmp_path / "points.csv").read_text().splitlines()
    assert len(lines) == 3
    assert "a100_80gb" in lines[1]
    assert "tpu_v4_32gb" in lines[2]


ROWS = "sweep.rows=[{machine: dgx_h100, accelerator_usd_per_hour: 3}, {machine: dgx_a100, accelerator_usd_per_hour: 2}]"


def settings_of(*overrides):
    """Return what each point of a sweep of gpt_125m is: its labels and settings."""
    command = read_command(["model=gpt_125m", "target=1 G tokens", *overrides])
    return [(point.labels, point.settings) for point in Sweep(command.settings, axes=command.axes).points]


def test_rows_name_machines_each_with_a_price_of_its_own(tmp_path, capsys):
    arguments = ["sweep", "model=gpt_125m", "target=1 G tokens", ROWS, "sweep.backend=inline", "report=false"]
    assert main([*arguments, "sweep.details=0", f"out={tmp_path}", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert [row["accelerator"] for row in rows] == ["h100_80gb", "a100_80gb"]
    for row, price in zip(rows, (3, 2), strict=True):
        assert row["num_accelerators"] == 8
        assert row["cost_usd"] == pytest.approx(price * 8 * row["time_to_accuracy_s"] / 3600, rel=1e-12)
        assert row["fabric"] == row["case"].partition(",")[0]


@pytest.mark.parametrize(
    "overrides",
    [
        ["machine=dgx_a100,dgx_h100", "machine.servers=1,2"],
        ["sweep.grid={machine: [dgx_a100, dgx_h100], machine.servers: [1, 2]}"],
        ["machine=dgx_a100,dgx_h100", "machine.servers=1,2", "sweep.grid={}"],
        ["sweep.rows=[{machine: dgx_a100}, {machine: dgx_h100}]", "sweep.grid={machine.servers: [1, 2]}"],
        ["sweep.rows=[{machine: dgx_a100, machine.servers: 1}, {machine: dgx_a100, machine.servers: 2},"
         " {machine: dgx_h100, machine.servers: 1}, {machine: dgx_h100, machine.servers: 2}]"],
    ],
)  # fmt: skip
def test_command_line_rows_and_grid_give_the_same_points(overrides):
    found = settings_of(*overrides)
    assert [labels["fabric"] for labels, _ in found] == [
        "dgx_a100 servers 1", "dgx_a100 servers 2", "dgx_h100 servers 1", "dgx_h100 servers 2",
    ]  # fmt: skip
    for (_, settings), (name, servers) in zip(
        found, [(name, servers) for name in ("dgx_a100", "dgx_h100") for servers in (1, 2)], strict=True
    ):
        alone = read_command(["model=gpt_125m", "target=1 G tokens", f"machine={name}", f"machine.servers={servers}"])
        (point,) = Sweep(alone.settings).points
        assert settings == point.settings


def test_rows_vary_the_machine_of_the_command_line():
    rows = "sweep.rows=[{machine.servers: 2}, {machine.servers: 4, label: more}, {label: one, seed: 3}]"
    found = settings_of("machine=dgx_h100", rows)
    assert [settings["fabric"]["num_accelerators"] for _, settings in found] == [16, 32, 8]
    assert [labels["case"] for labels, _ in found] == ["dgx_h100 servers 2", "more", "one"]
    assert {settings["accelerator"] for _, settings in found} == {"h100_80gb"}


def test_keys_given_with_machines_win():
    given = ["accelerator=h200_141gb", "machine.usd=5", "fabric.switch_latency=250 ns"]
    rows = "sweep.rows=[{machine: dgx_h100, fabric.planes: 2, machine.watts: 7}, {machine: dgx_a100}]"
    (_, first), (_, second) = settings_of(rows, *given)
    for settings in (first, second):
        assert (settings["accelerator"], settings["machine"]["usd"]) == ("h200_141gb", 5)
        assert settings["fabric"]["switch_latency"] == "250 ns"
    assert (first["fabric"]["planes"], first["machine"]["watts"]) == (2, 7)
    assert (second["fabric"]["planes"], second["machine"]["watts"]) == (1, 6500)
    latencies = [settings["fabric"]["switch_latency"] for _, settings in settings_of(
        "sweep.rows=[{machine: dgx_h100}]", "fabric.switch_latency=200 ns,300 ns"
    )]  # fmt: skip
    assert latencies == ["200 ns", "300 ns"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["sweep.rows=[{machine: dgx_h10}]"], r"unknown machine 'dgx_h10' \(did you mean 'dgx_h100'\?\)"),
        (["sweep.rows=[{machine: 3}]"], "unknown machine 3; choices: dgx1_v100"),
        (["sweep.rows=[{machine: dgx_h100, machine.foo: 3}]"], "unknown key 'machine.foo'; machine 'dgx_h100' has"),
        (["sweep.rows=[{machine.servers: 3}]"], r"sweep.rows\[0\] sets machine.servers, which goes with a machine"),
        (["sweep.rows=[{machine: dgx_h100, fabric: torus_8x8}]"], "which decides fabric: drop fabric"),
        (["fabric=torus_8x8", "sweep.rows=[{machine: dgx_h100}]"], "which decides fabric: drop fabric"),
        (["num_accelerators=16", "sweep.rows=[{machine: dgx_h100}]"], "decides num_accelerators"),
        (["sweep.rows=[{machine: dgx_h100, fabric.num_accelerators: 8}]"], "decides fabric.num_accelerators"),
        (["sweep.grid={machine: dgx_h100}"], "axis machine is 'dgx_h100'; it must be a list"),
        (["sweep.rows=[{machine: dgx_h100}]", "sweep.grid={machine: [dgx_a100]}"], "machine is set by sweep.rows"),
        (["machine=dgx_a100,dgx_h100", "sweep.grid={machine.servers: [1]}"], "gives several machines, and so does"),
        (["sweep.rows=[{machine: dgx_h100}, {machine: dgx_h100}]"], "has the value 'dgx_h100' twice"),
    ],
)
def test_machines_of_rows_that_cannot_be_are_refused_by_name(overrides, said):
    with pytest.raises(ConfigError, match=said):
        settings_of(*overrides)


def test_python_takes_machines_in_rows_and_grid_too():
    base = {"model": "gpt_125m", "fabric": {"name": "torus", "dims": [2, 4]}}
    rows = [{"machine": "dgx_h100", "machine.servers": 2}, {"label": "ours", "accelerator": "v100_32gb"}]
    one, two = Sweep(base, rows=rows).points
    assert (one.settings["fabric"]["num_accelerators"], one.settings["accelerator"]) == (16, "h100_80gb")
    assert (two.settings["fabric"]["name"], two.settings["accelerator"]) == ("torus", "v100_32gb")
    swept = Sweep(base, grid={"machine": ["dgx_a100", "dgx_h100"], "seed": [0, 1]}).points
    assert [(p.labels["fabric"], p.labels["seed"]) for p in swept] == [
        ("dgx_a100", "0"), ("dgx_a100", "1"), ("dgx_h100", "0"), ("dgx_h100", "1"),
    ]  # fmt: skip


def test_a_row_may_set_whatever_a_run_may():
    unknown = [entry.name for entry in dataclasses.fields(RunKeys) if not is_setting(entry.name)]
    assert unknown == []


def test_machines_are_listed_and_completed(capsys):
    assert main(["list", "machines"]) == 0
    text = capsys.readouterr().out
    for name in MACHINES:
        assert name in text
        assert f"machine={name}" in candidates(["run", "machine="])
    assert "data sheet" in text
