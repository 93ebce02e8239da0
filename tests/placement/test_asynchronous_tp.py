"""Weight gradients run beside the all-reduce of their product's input gradient, whatever the order of the trace."""

import pytest

import rostam_py as rostam
from rostam_py.models import gpt, llama, mixtral

WIDTH, TOKENS, WORDS = 512, 256, 8000
MODELS = {
    "llama": llama.build(
        "llama",
        llama.Config(
            num_layers=2, width=WIDTH, num_heads=8, num_key_heads=4, hidden=1408, vocabulary=WORDS,
            sequence_length=TOKENS,
        ),
    ),
    "mixtral": mixtral.build(
        "mixtral",
        mixtral.Config(
            num_layers=2, width=WIDTH, num_heads=8, num_key_heads=4, head_size=64, hidden=512, num_experts=4,
            per_token=2, vocabulary=WORDS, sequence_length=TOKENS,
        ),
    ),
    "gpt": gpt.build(
        "gpt",
        gpt.Config(num_layers=2, width=WIDTH, num_heads=8, sequence_length=TOKENS, vocabulary=WORDS),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def graphs():
    return {name: rostam.trace(model) for name, model in MODELS.items()}


@pytest.fixture(scope="module")
def machine():
    fabric = rostam.fabric("electrical_flat", num_accelerators=4, link_bandwidth="400 Gb/s")
    return rostam.Machine(fabric=fabric, accelerator="a100_80gb", comm_compute_fraction=0.0)


def placed_on(machine, graph, **settings):
    strategy = rostam.Strategy.of(tp=4, precision="bf16_mixed", micro_batch=4, **settings)
    return rostam.place(graph, machine, global_batch=4, strategy=strategy, software="ideal")


@pytest.mark.parametrize(("name", "hidden"), [("llama", 2 * 2 + 1), ("gpt", 2 * 2 + 1)])
def test_kernels_run_beside_every_all_reduce_of_an_input_gradient(name, hidden, graphs, machine):
    # of a layer the gradients of attention's input and of the feed-forward's, and of the head's input
    tasks = placed_on(machine, graphs[name]).stages[0].templates["backward_last"]
    sums = [k for k, t in enumerate(tasks) if t.group == "tp" and t.num_bytes == 4 * TOKENS * WIDTH * 2]
    assert len(sums) == hidden
    for k in sums:
        behind = next(t for t in tasks[k + 1 :] if t.kind == "compute")
        assert k not in behind.deps, f"{tasks[k].name}: nothing runs meanwhile"
        assert any("mm" in kernel.op_type for kernel in behind.kernels)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_kernel_with_replays_before_it_hides_its_collective_too(sequence_parallel, graphs, machine):
    def exposed(**settings):
        plan = placed_on(machine, graphs["llama"], sequence_parallel=sequence_parallel, **settings)
        return rostam.simulate(plan).breakdown["tp"]

    replaying = exposed(recompute="selective", recompute_modules=("layernorm",))
    assert replaying == pytest.approx(exposed(), rel=0.02)
    assert replaying < 0.9 * exposed(asynchronous_tp=False)


@pytest.mark.parametrize("name", list(MODELS))
def test_overlap_is_never_slower_where_communication_takes_no_compute(name, graphs, machine):
    def run(**settings):
        return rostam.simulate(placed_on(machine, graphs[name], **settings))

    plain, waiting = run(), run(asynchronous_tp=False)
    assert plain.iteration_time_s <= waiting.iteration_time_s
    split, split_waiting = run(sequence_parallel=True), run(sequence_parallel=True, asynchronous_tp=False)
    assert split.iteration_time_s <= split_waiting.iteration_time_s
    # Products in parts take longer, and copies into buffers come on top.
    assert run(sequence_parallel=True, tp_overlap=True).breakdown["tp"] < split.breakdown["tp"]
