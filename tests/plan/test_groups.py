"""Process groups of any kind: rows of devices that no code outside the registry lists."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.cli.tables import print_result
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.plan import GROUP_KINDS, Batches, GroupKind, GroupSet, KernelTime, MemoryBytes, Plan, Stage, Task
from rostam_py.plan.group_kinds import TENSOR, listed_kinds
from rostam_py.plan.groups import grid_groups, model_parallel_groups
from rostam_py.report.run.figures import run_figures
from rostam_py.simulation.detail import run_detail
from rostam_py.sweep.columns import column_types

SIZE = 10**6
FREE = {"launch_latency": 0.0, "min_kernel_time": 0.0}
BRANCH = GroupKind("branch-parallel", "#123456", 20)


def fabric(num_accelerators=8):
    """1 GB/s from each accelerator, no latency."""
    return rostam.fabric("electrical_flat", num_accelerators=num_accelerators, link_bandwidth=1e9, latency=0.0)


def reduce_plan(groups, tasks, num_devices=8):
    """Return a plan whose devices all run ``tasks``."""
    strategy = rostam.Strategy(dp=num_devices, precision="fp32", algorithms={"all_reduce": "ring"})
    stage = Stage(
        index=0,
        templates={"iteration": tuple(tasks)},
        program=(("iteration", 0),),
        memory=MemoryBytes(),
        num_parameters=0,
    )
    return Plan.on_grid(
        "hand", rostam.Machine(fabric=fabric(num_devices), **FREE), strategy, Batches(num_devices, 1, 1), (stage,),
        np.arange(num_devices).reshape(-1, 1, 1), groups=groups, algorithms={"all_reduce": "ring"},
    )  # fmt: skip


def compute(seconds=0.0, *deps):
    return Task(
        kind="compute",
        name="work",
        deps=deps,
        kernels=(KernelTime(name="work", module="", op_type="hand", duration_s=seconds),),
    )


def all_reduce(group, *deps, **options):
    return Task(
        kind="collective", name="sum", deps=deps, group=group, collective="all_reduce", num_bytes=SIZE, **options
    )


def ring_s(num_ranks):
    """MODEL A5: 2 (p - 1) steps of ceil(S / p) bytes at 1 GB/s."""
    return 2 * (num_ranks - 1) * -(-SIZE // num_ranks) / 1e9


@pytest.fixture
def branch_kind(monkeypatch):
    """A kind of groups that only this test knows."""
    monkeypatch.setattr(GROUP_KINDS, "_targets", dict(GROUP_KINDS._targets))
    GROUP_KINDS.add("branch", f"{__name__}:BRANCH")


def test_a_kind_registered_at_run_time_is_in_results_reports_tables_and_sweeps(branch_kind, capsys):
    groups = (GroupSet("branch", "branch", np.arange(8).reshape(2, 4)),)
    result = rostam.simulate(reduce_plan(groups, [compute(), all_reduce("branch", 0), compute(0.0, 1)]))
    assert result.breakdown["branch"] == pytest.approx(ring_s(4), rel=1e-9)
    assert result.exposed["branch"] == result.breakdown["branch"]
    assert result.bytes_sent["branch"] == 8 * 2 * 3 * SIZE // 4
    assert result.critical_path_by_kind()["branch"] == pytest.approx(ring_s(4), rel=1e-9)
    assert "branch" in result.to_dict()["breakdown_s"]
    assert "#123456" in result._repr_html_()
    assert column_types()["exposed_branch_s"] == "float"
    from rich.console import Console

    print_result(Console(width=200), result, "nowhere")
    assert "exposed branch-parallel" in capsys.readouterr().out
    figures = {figure.name: figure for figure in run_figures(run_detail(result), "")}
    assert "branch" in figures["breakdown-by-stage"].table.columns
    assert any(bar.name == "exposed branch-parallel" for bar in figures["breakdown-by-stage"].plotly.data)


def test_results_list_the_kinds_of_their_plans_only():
    assert listed_kinds(["tp", "dp", "pp"]) == ("tp", "dp", "pp", "tied", "mp")
    assert listed_kinds(["ep", "mp_gradient"]) == ("tp", "dp", "pp", "tied", "mp", "ep")
    assert TENSOR.is_always_listed


def test_groups_need_not_fill_a_grid():
    # Devices 5, 0 and 7 reduce among themselves, the others are in no group and run on: only three send.
    groups = (GroupSet("ep", "experts", np.array([[5, 0, 7]])),)
    strategy = rostam.Strategy(dp=8, precision="fp32", algorithms={"all_reduce": "ring"})
    members, others = (
        Stage(
            index=s, templates={"iteration": tasks}, program=(("iteration", 0),), memory=MemoryBytes(), num_parameters=0
        )
        for s, tasks in enumerate([(all_reduce("experts"),), (compute(1e-3),)])
    )
    plan = Plan(
        graph_name="hand", machine=rostam.Machine(fabric=fabric(), **FREE), strategy=strategy,
        batches=Batches(8, 1, 1),
        devices=np.arange(8),
        stage_of=np.array([0, 1, 1, 1, 1, 0, 1, 0]), stages=(members, others), groups=groups,
        algorithms={"all_reduce": "ring"} | dict(strategy.algorithms),
    )  # fmt: skip
    assert plan.members("experts").tolist() == [[5, 0, 7]]
    matrix = plan.traffic_matrix
    sent = 4 * -(-SIZE // 3)
    assert {(a, b): matrix[a, b] for a, b in zip(*np.nonzero(matrix), strict=True)} == {
        (5, 0): sent, (0, 7): sent, (7, 5): sent,
    }  # fmt: skip
    result = rostam.simulate(plan)
    assert result.iteration_time_s == pytest.approx(ring_s(3), rel=1e-9)
    assert result.bytes_sent["ep"] == 3 * sent


def test_two_streams_of_one_set_of_groups_do_not_wait_for_each_other():
    def iteration_s(*streams):
        first, second = (all_reduce("dp", 0, stream=stream) for stream in streams)
        plan = reduce_plan(grid_groups((8, 1, 1)), [compute(), first, second, compute(0.0, 1), compute(0.0, 2)])
        path = rostam.simulate(plan, timeline=[0], fold=False)
        starts = [e for e in path._timeline["stream"].tolist() if e]
        return path.iteration_time_s, len(set(starts))

    # One after the other, or both at once at half the rate: the same end, on one stream or two.
    together, apart = iteration_s("", ""), iteration_s("", "later")
    assert together[0] == pytest.approx(2 * ring_s(8), rel=1e-9)
    assert apart[0] == pytest.approx(2 * ring_s(8), rel=1e-9)
    assert (together[1], apart[1]) == (1, 2)


def test_grid_groups_are_rows_columns_and_pipelines():
    tp, dp, pp, tied = grid_groups((2, 3, 2), tied=[(0, 2)])
    assert tp.members.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert dp.members.tolist() == [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]
    assert pp.members.tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    assert (tied.label, tied.members.tolist()) == ("tied0", [[0, 4], [1, 5], [6, 10], [7, 11]])
    dp, mp, gradients = model_parallel_groups(2, 3)
    assert dp.members.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert mp.members.tolist() == gradients.members.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: GroupSet("dq", "dq", np.zeros((1, 1))), UnknownNameError, "unknown group kind 'dq'"),
        (lambda: GroupSet("dp", "dp", np.array([[0, 1], [1, 2]])), ConfigError, "'dp' name a device twice"),
        (lambda: GroupSet("dp", "dp", np.arange(3)), ConfigError, r"'dp' have members of shape \(3,\)"),
        (
            lambda: reduce_plan(grid_groups((8, 1, 1)), [all_reduce("cp")]).traffic,
            ConfigError,
            "group is 'cp'; it must be one of: tp, dp, pp",
        ),
        (
            lambda: (
                reduce_plan(
                    grid_groups((8, 1, 1)),
                    [Task(kind="send", name="s", deps=(), group="dp", num_bytes=8, channel="x", peer=1)],
                ).traffic
            ),
            ConfigError,
            r"a task of stage 0 has peer \+1 in groups 'dp', which have no such rank",
        ),
    ],
)
def test_groups_that_make_no_sense_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_gradients_are_reduced_over_replicas_and_parts_of_sequences():
    # device = ((d C + c) P + s) T + t, with dp 2, cp 2, pp 2, tp 2
    sets = {one.label: one.members.tolist() for one in grid_groups((4, 2, 2), cp=2)}
    assert sets["tp"][0] == [0, 1]
    assert sets["pp"][0] == [0, 2]
    assert sets["cp"] == [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]]
    assert sets["dp"] == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert "cp" not in {one.label for one in grid_groups((4, 2, 2))}
