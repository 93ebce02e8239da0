"""Templates: order, dependencies, buckets and recomputation."""

import pytest

from rostam_py.errors import DegreeError
from rostam_py.plan import Strategy

STRATEGIES = {
    "tp": Strategy(tp=4, micro_batch=1),
    "all": Strategy.of(dp=2, tp=2, pp=2, bucket_size="5 MB"),
    "full": Strategy(dp=2, tp=2, pp=2, recompute="full"),
    "selective": Strategy(tp=2, pp=4, recompute="selective", schedule="gpipe"),
}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("model", ["gpt", "encoder_decoder"])
def test_tasks_depend_on_earlier_tasks_and_every_message_on_what_makes_it(name, model, request, placed):
    plan = placed(request.getfixturevalue(model), STRATEGIES[name], 16)
    for stage in plan.stages:
        assert stage.templates["backward_last"][-1].is_optimizer
        for template in stage.templates.values():
            for index, task in enumerate(template):
                assert all(0 <= d < index for d in task.deps)
                assert task.deps == tuple(sorted(set(task.deps)))
                if task.kind == "compute":
                    assert task.is_optimizer or (task.kernels and task.duration_s > 0)
                    assert all(template[d].kind != "compute" for d in task.deps), "compute runs in order anyway"
                else:
                    assert task.num_bytes > 0
                    assert task.kind == "recv" or task.deps


@pytest.mark.parametrize("name", ["all", "full", "selective"])
@pytest.mark.parametrize("model", ["gpt", "encoder_decoder"])
def test_every_send_meets_a_receive_of_the_same_tensor_and_size(name, model, request, placed):
    plan = placed(request.getfixturevalue(model), STRATEGIES[name], 16)
    for phase in ("forward", "backward", "backward_last"):
        ends = {"send": set(), "recv": set()}
        for stage in plan.stages:
            for task in stage.templates[phase]:
                if task.kind in ends:
                    pair = (stage.index, stage.index + task.peer)
                    ends[task.kind].add((task.channel, task.num_bytes, pair if task.kind == "send" else pair[::-1]))
        assert ends["send"] == ends["recv"]
        assert ends["send"]


def test_weight_gradient_runs_while_the_input_gradient_is_reduced(gpt, placed):
    tasks = placed(gpt, Strategy(tp=4), 1).stages[0].templates["backward"]
    behind = [tasks[i + 1] for i, t in enumerate(tasks[:-1]) if t.kind == "collective" and t.num_bytes > 1e6]
    free = [t for t in behind if t.kind == "compute" and not t.deps]
    assert len(free) == 2 * 4 + 1  # both column-parallel products of every layer, and the head
    assert all(any(k.op_type == "aten.mm.default" for k in t.kernels) for t in free)


def test_without_asynchronous_tp_nothing_runs_beside_a_tensor_parallel_collective(gpt, placed):
    stage = placed(gpt, Strategy.of(tp=4, pp=2, asynchronous_tp=False, micro_batch=1), 2).stages[1]
    for tasks in stage.templates.values():
        for index, task in enumerate(tasks):
            later = [one for one in tasks[index + 1 :] if one.kind == "compute"]
            if task.group == "tp" and later:
                assert index in later[0].deps


def test_buckets_start_in_order_of_readiness_and_all_but_the_last_are_full(gpt, placed):
    plan = placed(gpt, Strategy.of(dp=2, precision="fp32", bucket_size="25 MB"), 2)
    tasks = plan.stages[0].templates["backward_last"]
    buckets = [(i, t) for i, t in enumerate(tasks) if t.group == "dp"]
    assert len(buckets) > 3
    assert all(t.num_bytes >= 25e6 for _, t in buckets[:-1])
    assert sum(t.num_bytes for _, t in buckets) == 4 * plan.stages[0].num_parameters
    for index, bucket in buckets:
        assert bucket.deps == (max(i for i, t in enumerate(tasks[:index]) if t.kind == "compute"),)
    assert set(tasks[-1].deps) == {i for i, _ in buckets}
    assert not any(t.group == "dp" for t in plan.stages[0].templates["backward"])


def test_one_replica_has_no_buckets(gpt, placed):
    assert not any(t.group == "dp" for t in placed(gpt, Strategy(), 1).stages[0].templates["backward_last"])


def test_full_recomputation_adds_the_blocks_forward_to_backward(gpt, placed):
    none = placed(gpt, Strategy(tp=2), 2).stages[0]
    full = placed(gpt, Strategy(tp=2, recompute="full"), 2).stages[0]

    def kernels(stage, name):
        return [k for t in stage.templates[name] for k in t.kernels]

    blocks = [k for k in kernels(full, "forward") if k.module.startswith("blocks.")]
    added = sum(k.duration_s for k in kernels(full, "backward")) - sum(k.duration_s for k in kernels(none, "backward"))
    assert added == pytest.approx(sum(k.duration_s for k in blocks), rel=1e-6)
    assert full.flops == none.flops
    extra = sum(k.flops * (0.5 if k.family == "attention" else 1) for k in blocks)  # scores that the mask leaves
    assert full.hardware_flops - none.hardware_flops == pytest.approx(extra, rel=1e-9)
    replayed = [t for t in full.templates["backward"] if t.kind == "collective"]
    usual = [t for t in none.templates["backward"] if t.kind == "collective"]
    assert len(replayed) - len(usual) == 2 * 4


def test_model_flops_of_all_devices_sum_to_the_graphs(gpt, placed):
    for strategy in (Strategy(), Strategy(tp=2), Strategy(dp=2, tp=2, pp=2)):
        plan = placed(gpt, strategy, 4)
        total = sum(s.flops for s in plan.stages) * plan.strategy.tp * plan.strategy.dp
        scores = 4 * 2 * 2048 * 2048 * 768  # of four layers, which attention's backward makes again
        assert total == pytest.approx(4 * (gpt.forward_flops(1) + gpt.backward_flops(1) - scores), rel=1e-3)


def test_more_stages_than_pieces_is_an_error_that_says_how_many_there_are(tied_autoencoder, placed):
    with pytest.raises(DegreeError, match=r"strategy.pp is 50.*tied_autoencoder.*1 to "):
        placed(tied_autoencoder, Strategy(pp=50), 50)


def test_equal_inputs_give_equal_plans(gpt, placed):
    strategy = Strategy(dp=2, tp=2, pp=2, mapping="random(1)")
    first, again = placed(gpt, strategy, 8), placed(gpt, strategy, 8)
    assert first.stages == again.stages
    assert first.accelerators.tolist() == again.accelerators.tolist()
