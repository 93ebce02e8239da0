"""``machine=NAME``: written out as fabric and accelerator; explicit keys win or are refused with a reason."""

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
        (["machine=dgx_h100", "fabric=torus_8x8"], ConfigError, ["'fabric=torus_8x8'", "brings its fabric"]),
        (["machine=dgx_h100", "num_accelerators=64"], ConfigError, ["'num_accelerators=64'", "machine.servers"]),
        (["machine=dgx_h100", "fabric.server_size=4"], ConfigError, ["'fabric.server_size=4'", "machine.servers"]),
        (["machine=tpu_v4_pod", "fabric.dims=[2,2]"], ConfigError, ["'fabric.dims=[2,2]'", "machine.dims"]),
        (["machine=dgx_a100,dgx_h100"], ConfigError, ["name 2 machines", "rostam run takes one"]),
        (["machine=dgx_a100", "machine=dgx_h100"], ConfigError, ["given 2 times"]),
        (["machine.servers=4"], ConfigError, ["machine.servers goes with a machine by name", "dgx_h100"]),
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


def test_machines_are_listed_and_completed(capsys):
    assert main(["list", "machines"]) == 0
    text = capsys.readouterr().out
    for name in MACHINES:
        assert name in text
        assert f"machine={name}" in candidates(["run", "machine="])
    assert "data sheet" in text
