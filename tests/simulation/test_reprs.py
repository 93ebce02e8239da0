"""What a session prints of an object is one line, however large it is; and a result's rates."""

import pytest

import rostam_py as rostam
from rostam_py.simulation import TaskGraph


@pytest.fixture(scope="module")
def found():
    graph = rostam.trace("gpt_125m")
    machine = rostam.Machine(fabric=rostam.fabric("fat_tree", num_accelerators=16), accelerator="a100_80gb")
    plan = rostam.place(
        graph, machine, global_batch=32, strategy=rostam.Strategy(dp=4, tp=2, pp=2, micro_batch=4), software="ideal"
    )
    tasks = TaskGraph.of([plan])
    searched = rostam.search(graph, machine, batches=[32], num_simulated=1, software="ideal")
    flows = rostam.run_flows(machine.fabric, src=[0, 1], dst=[1, 2], num_bytes=[100, 200])
    collective = rostam.run_collective(machine.fabric, "all_reduce", num_bytes=2**20)
    return {
        "graph": graph, "machine": machine, "plan": plan, "stage": plan.stages[0], "tasks": tasks,
        "run": rostam.simulate(plan), "job": rostam.simulate(tasks), "search": searched,
        "candidate": searched.best, "refused": searched.candidates[-1], "flows": flows, "collective": collective,
    }  # fmt: skip


def test_every_object_is_one_line(found):
    for name, one in found.items():
        text = repr(one)
        assert "\n" not in text, name
        assert text.startswith(type(one).__name__), name
        assert len(text) < 250, name


def test_a_line_says_what_it_is(found):
    assert repr(found["graph"]) == "OperatorGraph('gpt_125m', 1,004 ops, 125.2 M parameters)"
    assert repr(found["machine"]) == f"Machine(a100_80gb on {found['machine'].fabric.describe()})"
    assert "'gpt_125m' as dp 4 x tp 2 x pp 2, 32 samples in micro-batches of 4" in repr(found["plan"])
    assert "an iteration" in repr(found["run"])
    assert "2 flows, the last arrives at" in repr(found["flows"])
    assert "all_reduce of 1.049 MB, 16 ranks" in repr(found["collective"])


def test_a_strategy_shows_what_differs_from_the_default_and_is_made_of_it_again():
    strategy = rostam.Strategy(dp=4, tp=2, precision="bf16_mixed", algorithms={"all_reduce": "ring"})
    assert repr(strategy).startswith("Strategy(dp=4, tp=2, ")
    assert eval(repr(strategy), {"Strategy": rostam.Strategy}) == strategy  # noqa: S307
    assert repr(rostam.Strategy()) == "Strategy()"


def test_tokens_are_counted_by_the_length_of_the_model_that_was_traced(found):
    run = found["run"]
    assert run.tokens_per_s == pytest.approx(32 * 2048 / run.iteration_time_s, rel=1e-12)
    assert run.to_dict()["tokens_per_s"] == run.tokens_per_s


def test_flops_of_an_accelerator_are_those_of_palms_formula(found):
    run, graph = found["run"], found["graph"]
    positions, layers, width, length = 2048 * 768, 12, 768, 2048
    a_token = 6 * (graph.num_parameters - positions) + 12 * layers * width * length  # PaLM, appendix B
    each = a_token * run.tokens_per_s / 16
    assert run.model_flops_per_s_per_accelerator == pytest.approx(each, rel=0.02)  # norms and the like are left out


def test_samples_that_are_no_sequences_have_no_tokens():
    graph = rostam.trace("resnet50")
    machine = rostam.Machine(fabric=rostam.fabric("fat_tree", num_accelerators=2), accelerator="a100_80gb")
    run = rostam.simulate(
        rostam.place(graph, machine, global_batch=32, strategy=rostam.Strategy(dp=2), software="ideal")
    )
    assert run.tokens_per_s is None


def test_a_saved_plan_keeps_its_tokens_and_an_older_file_has_none(found, tmp_path):
    import json

    path = tmp_path / "plan.json"
    found["plan"].save(path)
    assert rostam.Plan.load(path).sequence_length == 2048
    document = json.loads(path.read_text())
    del document["sequence_length"]
    path.write_text(json.dumps(document))
    assert rostam.Plan.load(path).sequence_length == 0
