"""User errors: exit status 2, one clear line, no traceback."""

import pytest

from rostam_py.cli.main import main

pytestmark = pytest.mark.usefixtures("cached_traces")

UNTRACEABLE = """
import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        if y.sum().item() > 0:
            return y.numpy()
        return y


def example_inputs(batch):
    return torch.randn(batch, 4)
"""


def error_of(arguments, capsys):
    """Return the one line of a failing command."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rostam: error: ")
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run", "model=resnet5"], ["unknown model 'resnet5'", "resnet50", "gpt3_175b"]),
        (["run", "fabric=fat_trea"], ["unknown fabric 'fat_trea'", "did you mean 'fat_tree'", "torus"]),
        (["run", "cost=guess"], ["unknown cost 'guess'", "roofline"]),
        (["run", "accelerator=a1000"], ["unknown accelerator 'a1000'", "a100_80gb"]),
        (["run", "routing=ospf"], ["ospf", "spray", "hash"]),
        (["run", "fidelity=fluid"], ["unknown fidelity 'fluid'", "flow", "packet"]),
        (
            ["run", "accelerator.watts=300"],
            ["unknown key 'accelerator.watts'", "did you mean machine.accelerator_watts=300?"],
        ),
        (["run", "machine.accelerator_watts=0"], ["machine.accelerator_watts is 0", "a number > 0"]),
        (["run", "cost.clocks=null"], ["cost.clocks is 'null'", "one of: sustained, burst"]),
        (["run", "software.rules.allocator=null"], ["software.rules.allocator is None", "one of: exact, torch"]),
        (["run", "algorithms=ring"], ["unknown key 'algorithms'", "did you mean 'strategy.algorithms'"]),
        (["run", "strategy.algorithms=TEXT"], ["strategy.algorithms is 'TEXT'", "strategy.algorithms.NAME=VALUE"]),
        (["sweep", "strategy.algorithms=TEXT"], ["strategy.algorithms is 'TEXT'", "strategy.algorithms.NAME=VALUE"]),
        (["run", "cost=[1,2,3]"], ["'cost=[1,2,3]'", "roofline"]),
        (["sweep", "fabric=[]"], ["'fabric=[]'", "fat_tree"]),
        (["report", "/tmp", "formats=pdf"], ["formats is 'pdf'", "formats=[pdf,svg]"]),
        (["sweep", "fidelity=flow,magic"], ["unknown fidelity 'magic'", "flow"]),
        (["sweep", "machine.launch_latency=1e9 s,1 us"], ["machine.launch_latency is 1e+09 s", "106 days"]),
        (["run", "modle=resnet50"], ["unknown key 'modle'", "did you mean 'model'"]),
        (["run", "fabric.radixx=4"], ["unknown key 'fabric.radixx'", "did you mean 'fabric.radix'"]),
        (["run", "fabric=torus", "fabric.radix=4"], ["unknown key 'fabric.radix'", "dims"]),
        (["run", "strategy.dpp=4"], ["unknown key 'strategy.dpp'", "strategy has:"]),
        (["run", "++strategy.tpp=4"], ["unknown key 'strategy.tpp'", "did you mean 'strategy.tp'"]),
        (["run", "+fabric.bandwidth=10 Gb/s"], ["unknown key 'fabric.bandwidth'", "fabric has:"]),
        (["run", "~strategy.tp=4"], ["'~strategy.tp=4' is not a setting", "key=value"]),
        (["run", "=4"], ["'=4' is not a setting", "key=value"]),
        (["run", "strategy.placing.quantum=null"], ["strategy.placing.quantum is None", "a time such as '5 us'"]),
        (["run", "fabric=torus"], ["fabric.dims is missing"]),
        (["run", "fabric.accelerator_bandwidth=400"], ["fabric.accelerator_bandwidth is 400", "without a unit"]),
        (["run", "fabric.accelerator_bandwidth=400 Gbs"], ["'400 Gbs'", "Gb/s"]),
        (["run", "outages.restart=3"], ["outages.restart is 3, a number without a unit"]),
        (["run", "outages.shrink=grow"], ["outages.shrink is 'grow'; it must be one of: keep, shrink, or null"]),
        (
            ["run", "outages.shrink=keep", "outages.spares=[3]"],
            ["outages.spares is [3] and outages.shrink is 'keep'; give one or the other"],
        ),
        (["run", "outages.shrink=keep", "plan=p.json.gz"], ["outages.shrink is 'keep'", "with plan it must be null"]),
        (
            ["run", "outages.spares=[3]", "outages.events=[{time: 2 ms, kind: accelerators, number: 1}]"],
            ["outages.spares names accelerator 3, which the job uses"],
        ),
        (
            ["run", "outages.events=[{time: 2 ms, kind: accelerators, number: 99}]"],
            ["outages.events[0].number is 99; fabric 'fat_tree' has 64 accelerators, counted from 0"],
        ),
        (
            ["run", "fabric=sip_ocs_256", "fabric.planes=2", "outages.events=[{time: 2 ms, kind: planes, number: 0}]"],
            ["outages.events[0].kind is 'planes'; fabric 'sip_ocs' has none that fails alone: its parts are links, s"],
        ),
        (["run", "outages.mtbf_links=3"], ["outages.mtbf_links is 3, a number without a unit"]),
        (
            ["run", "outages.events=[{time: 2 ms, kind: links, number: 1, repair: 3}]"],
            ["outages.events[0].repair is 3, a number without a unit"],
        ),
        (["run", "fabric=cluster_64", "fabric.server_bandwidth=null"], ["fabric.server_bandwidth is None"]),
        (["run", "fabric.server_size=8", "fabric.server_bandwidth=null"], ["fabric.server_bandwidth is None"]),
        (["run", "machine.launch_latency=1"], ["machine.launch_latency is 1", "without a unit"]),
        (["run", "strategy.launch_latency=1 us"], ["strategy.launch_latency is machine.launch_latency now"]),
        (["run", "strategy.placing.quantum=1"], ["strategy.placing.quantum is 1", "without a unit"]),
        (["sweep", "cost.ramp_time=2.0,5.0"], ["cost.ramp_time is 2.0", "without a unit"]),
        (
            ["run", "cost.ramp_time=2 us"],
            ["unknown key 'cost.ramp_time'", "setting of cost=roofline", "cost has: table"],
        ),
        (["run", "strategy.rank_order=tp,dp"], ["strategy.rank_order is 'tp,dp'", "fastest first"]),
        (
            ["run", "model=gpt_125m", "strategy.pp=2", "strategy.virtual_stages=40", "strategy.micro_batch=1"],
            ["virtual_stages = 40", "strategy.virtual_stages must be in 1 to"],
        ),
        (["run", "strategy.tp=-1"], ["strategy.tp is -1", "an integer >= 1"]),
        (["run", "model=resnet50", "convergence=dlrm_mlperf"], ["'dlrm_mlperf'", "click records", "resnet50_mlperf"]),
        (["run", "software.rules.narrow_weights=2"], ["software.rules.narrow_weights is 2", "true or false"]),
        (["run", "sensitivity=1"], ["sensitivity is '1'", "true or false"]),
        (["run", "fabric.rails=0"], ["fabric.rails is '0'", "true or false"]),
        (["sweep", "strategy.sequence_parallel=2,false"], ["strategy.sequence_parallel is '2'", "true or false"]),
        (["sweep", "sweep.grid={fold:[3,4]}"], ["fold is '3'", "true or false"]),
        (["validate", "bounds=yes"], ["bounds is 'yes'", "true or false"]),
        (["run", "strategy.dp=many"], ["strategy.dp", "many"]),
        (["run", "strategy.dp=3"], ["3 x 1 x 1 = 3", "64 healthy accelerators"]),
        (["run", "strategy.tp=128"], ["128", "64 healthy"]),
        (["run", "global_batch=100"], ["global_batch is 100", "strategy.dp = 64"]),
        (["run", "global_batch=128", "strategy.micro_batch=3"], ["micro_batch = 3"]),
        (["run", "strategy.schedule=zigzag"], ["zigzag", "1f1b", "gpipe"]),
        (["run", "failures.switches=99"], ["99", "working switches"]),
        (["run", "failures.boards=1"], ["failures.boards is 1", "'fat_tree' has no boards", "accelerators"]),
        (["run", "failures.links=-1"], ["failures.links is -1", ">= 0"]),
        (["run", "failures.seed=-1"], ["failures.seed is -1", "from 0 to 2^64 - 1"]),
        (["run", "seed=-1"], ["seed is -1", "from 0 to 2^64 - 1"]),
        (["run", "seed=99999999999999999999"], ["seed is 99999999999999999999"]),
        (["search", "seed=-1"], ["seed is -1"]),
        (
            ["run", "strategy.mapping=random", "strategy.placing.mapping_seed=-1"],
            ["strategy.placing.mapping_seed is -1"],
        ),
        (
            ["run", "strategy.mapping=rand"],
            ["strategy.mapping is 'rand'", "random (its seed is strategy.placing.mapping_seed)"],
        ),
        (["run", "fabric=torus", "fabric.dims=4x4"], ["fabric.dims is '4x4'", "[4, 4]"]),
        (["run", "fabric=torus", "fabric.dims=[4,4.0]"], ["fabric.dims[1] is 4.0", "an integer >= 1"]),
        (["run", "fabric=hammingmesh", "fabric.board=2x2", "fabric.boards=[2,2]"], ["fabric.board is '2x2'", "[4, 4]"]),
        (["run", "out=/dev/null"], ["out is '/dev/null'", "a folder that can be written to"]),
        (["run", "out=/proc/foo"], ["out is '/proc/foo'", "a folder that can be written to"]),
        (["run", "fabric=hammingmesh", "fabric.board=[2,2]"], ["fabric.boards is missing"]),
        (["run", "fabric=hx2mesh_8x8", "fabric.wiring=ring"], ["fabric.wiring is 'ring'", "accelerator_row"]),
        (["run", "resnet50"], ["'resnet50' is not a setting", "key=value"]),
        (
            ["run", "strategy.algorithms.all_reduce=magic"],
            ["strategy.algorithms.all_reduce is 'magic'", "auto", "halving_doubling"],
        ),
        (["run", "strategy.algorithms.gather=ring"], ["algorithms", "gather", "all_gather"]),
        (["list", "planets"], ["unknown kind 'planets'", "models"]),
        (["fly"], ["unknown command 'fly'", "run"]),
        (["run", "--fast"], ["unknown option '--fast'"]),
    ],
)
def test_bad_input_names_key_value_and_choices(arguments, parts, capsys):
    text = error_of(arguments, capsys)
    for part in parts:
        assert part in text


def test_a_run_that_cannot_write_its_folder_does_no_work_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("rostam_py.tracing.trace", None)  # whoever calls it fails otherwise
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert f"out is '{out}'; it must be a folder" in error_of(["run", f"out={out}"], capsys)
    assert "strategy.tp" in error_of(["run", "strategy.tp=128", f"out={tmp_path / 'new' / 'run'}"], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_model_over_memory_says_by_how_much_and_where(capsys):
    text = error_of(["run", "model=gpt_1_3b", "global_batch=2048", "strategy.dp=64", "strategy.micro_batch=32"], capsys)
    for part in ("too much", "stage 0", "activations"):
        assert part in text


def test_failures_that_cut_the_job_apart_name_the_pair(capsys):
    # 16 accelerators, 2 leaves of 8 and one spine: nothing is left to route over.
    arguments = ["run", "fabric=fat_tree", "fabric.num_accelerators=16", "fabric.radix=16", "failures.switches=3"]
    text = error_of(arguments, capsys)
    assert "no path" in text or "route" in text


def test_a_module_that_cannot_be_traced_is_named_with_the_reason(tmp_path, capsys):
    path = tmp_path / "broken.py"
    path.write_text(UNTRACEABLE)
    text = error_of(["run", f"model={path}:Broken"], capsys)
    assert "Broken" in text or "numpy" in text or "item" in text
