import json
from dataclasses import replace

import pytest

from rostam_py.costs import KernelCall, get_accelerator, make_cost_model, optimizer_call
from rostam_py.costs import profile as profile_module
from rostam_py.costs.kernel_table import KernelTable
from rostam_py.costs.optimizers import OPTIMIZERS
from rostam_py.costs.profile import distinct_ops, profile
from rostam_py.costs.profile_inputs import CallBuilder
from rostam_py.costs.profile_kernels import kernel_table
from rostam_py.costs.profile_timing import TimingLimits
from rostam_py.costs.profiled import ProfiledCost
from rostam_py.costs.table import CostTable, Entry, op_key
from rostam_py.errors import ConfigError
from rostam_py.graph import Affine, Op, OperatorGraph, Tensor

QUICK = TimingLimits(min_repeats=1, max_repeats=2, cap_s=0.2)
SETTINGS = {"device": "cpu", "limits": QUICK, "show_progress": False, "date": "2026-01-31"}


def test_profile_times_every_op_that_is_not_metadata(linear_graph):
    graph = linear_graph()
    table = profile(graph, batches=(2, 4), optimizer="adam", **SETTINGS)
    assert sorted(e.op_type for e in table.entries.values()) == [
        "aten.mm.default", "aten.mm.default", "aten.relu.default", "aten.threshold_backward.default", "optimizer.adam",
    ]  # fmt: skip
    assert table.provenance["skipped"] == []
    assert all(
        e.seconds.keys() == {2, 4} and min(e.seconds.values()) > 0
        for e in table.entries.values()
        if not e.num_parameters
    )


def test_batch_that_is_given_twice_is_timed_once(linear_graph):
    table = profile(linear_graph(), batches=(4, 2, 4, 2), **SETTINGS)
    assert table.provenance["batches"] == [2, 4]
    assert all(e.seconds.keys() == {2, 4} for e in table.entries.values())


def test_equal_layers_are_timed_once_and_other_shapes_apart(linear_graph):
    graph = linear_graph(64, 32)
    twin = Op(
        id=5,
        name="mm_again",
        module="other",
        phase="forward",
        op_type="aten.mm.default",
        inputs=(0, 1),
        outputs=(7,),
        arguments=graph.ops[0].arguments,
    )
    written = replace(graph.tensors[2], id=7, producer=5)
    doubled = OperatorGraph("twice", (*graph.ops, twin), (*graph.tensors, written))
    assert len(distinct_ops(doubled)) == len(distinct_ops(graph)) == 4
    assert op_key(graph.ops[0], graph) != op_key(linear_graph(64, 48).ops[0], linear_graph(64, 48))


def test_call_is_rebuilt_with_the_shapes_and_layout_of_the_trace(linear_graph):
    graph = linear_graph(8, 4)
    forward = CallBuilder(graph, 3, "cpu").build(graph.ops[0])
    assert [tuple(t.shape) for t in forward.args] == [(3, 8), (8, 4)]
    assert forward.run().shape == (3, 4)
    backward = CallBuilder(graph, 3, "cpu").build(graph.ops[4])  # reads x through a transposing view
    assert backward.args[0].stride() == (1, 8)
    assert backward.run().shape == (8, 4)


def test_integer_inputs_are_valid_indices():
    # ids (B, 5) -> embedding rows of a table of 3: an index beyond 2 would raise
    tensors = (
        Tensor(0, (Affine(3), Affine(4)), "float32", "parameter", "table"),
        Tensor(1, (Affine(0, 1), Affine(5)), "int64", "input", "ids"),
        Tensor(2, (Affine(0, 1), Affine(5), Affine(4)), "float32", "activation", producer=0),
    )
    arguments = {"args": [{"tensor": 0}, {"tensor": 1}], "kwargs": {}}
    op = Op(
        id=0,
        name="embedding",
        module="tokens",
        phase="forward",
        op_type="aten.embedding.default",
        inputs=(0, 1),
        outputs=(2,),
        arguments=arguments,
    )
    graph = OperatorGraph("embedding", (op,), tensors)
    call = CallBuilder(graph, 50, "cpu").build(op)
    assert call.args[1].max() == 2
    assert call.args[1].min() == 0
    assert call.run().shape == (50, 5, 4)


def test_op_that_cannot_run_is_skipped_with_its_reason(linear_graph):
    graph = linear_graph()
    unknown = Op(
        id=5,
        name="mystery",
        module="m",
        phase="forward",
        op_type="aten.no_such_op.default",
        inputs=(0,),
        outputs=(7,),
        arguments={"args": [], "kwargs": {}},
    )
    tensors = (*graph.tensors, replace(graph.tensors[2], id=7, producer=5))
    table = profile(OperatorGraph("g", (*graph.ops, unknown), tensors), batches=(2,), **SETTINGS)
    assert len(table.provenance["skipped"]) == 1
    assert "no op aten.no_such_op.default" in table.provenance["skipped"][0]


def test_op_that_does_not_fit_in_memory_is_skipped_not_tried(linear_graph):
    table = profile(linear_graph(), batches=(2, 10**12), **SETTINGS)
    assert len(table.provenance["skipped"]) == 4
    assert all("GB are free" in text for text in table.provenance["skipped"])
    assert all(set(entry.seconds) == {2} for entry in table.entries.values())


def test_killed_run_resumes_without_timing_anything_twice(linear_graph, tmp_path, monkeypatch):
    graph, out = linear_graph(), tmp_path / "table.json"
    measure, seen = profile_module._Runner.measure, []

    def dies_after_three(self, job):
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(job)
        return measure(self, job)

    monkeypatch.setattr(profile_module._Runner, "measure", dies_after_three)
    with pytest.raises(KeyboardInterrupt):
        profile(graph, batches=(2, 4), out=out, **SETTINGS)
    partial = tmp_path / "table.json.partial.jsonl"
    assert len(partial.read_text().splitlines()) == 4
    assert not out.exists()
    with partial.open("a") as file:
        file.write('{"key": "torn')

    again = []
    monkeypatch.setattr(profile_module._Runner, "measure", lambda self, job: again.append(job) or measure(self, job))
    table = profile(graph, batches=(2, 4), out=out, **SETTINGS)
    assert len(again) == 8 - 3
    assert not any(job in seen for job in again)
    assert not partial.exists()
    assert CostTable.load(out) == table


def test_partial_results_of_other_settings_are_not_reused(linear_graph, tmp_path):
    out = tmp_path / "table.json"
    partial = tmp_path / "table.json.partial.jsonl"
    key = next(iter(distinct_ops(linear_graph())))
    partial.write_text(
        json.dumps({"provenance": {}}) + "\n" + json.dumps({"key": key, "batch": 2, "result": 99.0}) + "\n"
    )
    assert profile(linear_graph(), batches=(2,), out=out, **SETTINGS).entries[key].seconds[2] < 99


def test_profile_then_predict_another_batch_of_the_same_model(linear_graph, tmp_path):
    graph = linear_graph()
    profile(graph, batches=(2, 8), out=tmp_path / "t.json", **SETTINGS)
    cost = make_cost_model("profiled", "cpu_local", graph=graph, table=str(tmp_path / "t.json"))
    assert (
        cost.duration_s(KernelCall(ops=(graph.ops[0], graph.ops[1]), flops=0, bytes_read=0, bytes_written=0, batch=4))
        > 0
    )
    assert len(cost.notes()) == 1  # provenance alone: no fallback


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batches": ()}, "batches is"), ({"batches": (0,)}, "batches is"), ({"batches": (1.5,)}, "batches is"),
        ({"device": "tpu"}, "device is 'tpu'"), ({"speed": 1}, "'speed'"), ({"threads": -1}, "threads is -1"),
        ({"optimizer": "adamw"}, "optimizer is 'adamw' .did you mean 'adam'.*; known: sgd, momentum, adagrad, adam"),
        ({"precision": "fp8"}, "precision is 'fp8' .did you mean 'fp8_mixed'.*; known: fp32, tf32"),
    ],
)  # fmt: skip
def test_bad_profile_settings_are_refused(linear_graph, change, said):
    with pytest.raises(ConfigError, match=said):
        profile(linear_graph(), **({"batches": (1,), **SETTINGS} | change))


def test_table_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("[]")
    for name in ("x.json", "missing.json"):
        with pytest.raises(ConfigError, match="cost table"):
            CostTable.load(tmp_path / name)


@pytest.mark.gpu
def test_cuda_matmul_time_is_near_its_roofline():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    n = 8192  # 1.1 TFLOP in bf16: milliseconds, so events resolve it
    square = (Affine(n), Affine(n))
    tensors = (
        Tensor(0, square, "float32", "parameter", "left"),
        Tensor(1, square, "float32", "parameter", "right"),
        Tensor(2, square, "float32", "activation", producer=0),
    )
    op = Op(
        id=0,
        name="mm",
        module="m",
        phase="forward",
        op_type="aten.mm.default",
        inputs=(0, 1),
        outputs=(2,),
        arguments={"args": [{"tensor": 0}, {"tensor": 1}], "kwargs": {}},
    )
    table = profile(
        OperatorGraph("mm", (op,), tensors), batches=(1,), device="cuda", precision="bf16_mixed", show_progress=False
    )
    peak = get_accelerator(table.provenance["accelerator"] or "h100_80gb").peak("bf16")
    (entry,) = table.entries.values()
    assert 0.4 * peak < 2.0 * n**3 / entry.seconds[1] < peak


def test_optimizer_step_is_scaled_by_parameters(linear_graph):
    graph = linear_graph()
    table = profile(graph, batches=(1,), optimizer="sgd", **SETTINGS)
    cost = ProfiledCost(table, get_accelerator("cpu_local"), graph)
    whole = cost.duration_s(optimizer_call("sgd", graph.num_parameters, "fp32"))
    assert cost.duration_s(optimizer_call("sgd", graph.num_parameters / 4, "fp32")) == pytest.approx(whole / 4)
    assert any("over part of the parameters" in note for note in cost.notes())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_known_optimizer_is_timed_as_itself(linear_graph, name):
    table = profile(linear_graph(), batches=(1,), optimizer=name, **SETTINGS)
    assert table.provenance["skipped"] == []
    assert f"optimizer.{name}" in {entry.op_type for entry in table.entries.values()}


def test_a_profile_makes_a_kernel_table_that_replaces_the_shipped_one(linear_graph, tmp_path):
    graph = linear_graph(256, 128)
    table = profile(graph, batches=(8, 16, 32, 64), optimizer="sgd", **SETTINGS)
    path = tmp_path / "own.kernels.json"
    kernel_table(table, graph).save(path)
    found = KernelTable.load(path)
    assert found.accelerator == "cpu_local"
    assert {one.kind for one in found.series} == {"product", "elementwise"}
    (products,) = (one for one in found.series if one.kind == "product")
    assert sorted(products.columns["m"]) == [8, 16, 32, 64, 256, 256, 256, 256]  # forward by batch, weights' gradient
    assert products.held_out.rows == 4
    cost = make_cost_model("calibrated", "cpu_local", graph=graph, table=str(path), min_kernel_time="0 s")
    forward = graph.ops[0]
    entry = table.entries[op_key(forward, graph)]
    for batch, seconds in entry.seconds.items():
        call = KernelCall(
            ops=(forward,), flops=forward.flops.at(batch), bytes_read=forward.bytes_read.at(batch),
            bytes_written=forward.bytes_written.at(batch), batch=batch,
        )  # fmt: skip
        predicted = cost.duration_s(call)
        assert predicted == pytest.approx(seconds, rel=1.0)  # a smoothed surface through noisy microseconds
    assert not any("roofline" in note for note in cost.notes())


def test_a_cuda_profile_becomes_a_table_of_its_accelerator(linear_graph):
    # What a GPU's run would leave: the same ops, device events' times, the name that CUDA gives.
    graph = linear_graph(1024, 4096)
    about = {
        "device": "1x NVIDIA H100 80GB HBM3", "accelerator": "h100_80gb", "precision": "bf16_mixed", "torch": "2.13",
        "batches": [1024, 2048],
    }  # fmt: skip
    entries = {}
    for op in distinct_ops(graph, "bf16_mixed").values():
        seconds = {b: op.flops.at(b) / 500e12 + 1e-5 for b in (1024, 2048)}
        entries[op_key(op, graph, "bf16_mixed")] = Entry(op.op_type, seconds)
    table = kernel_table(CostTable(about, entries), graph)
    (products,) = (one for one in table.series if one.kind == "product")
    assert (table.accelerator, products.precision, products.device.peak_flops_per_s) == ("h100_80gb", "bf16", 989.4e12)
    assert products.device.multiprocessors == 132
    with pytest.raises(ConfigError, match="1x NVIDIA RTX is not a known accelerator"):
        kernel_table(CostTable(about | {"accelerator": "", "device": "1x NVIDIA RTX"}, entries), graph)
