"""What programs send, rank by rank, against lists that were worked out from their layers by hand."""

from collections import Counter

import pytest

from tests.capturing.captured import EXAMPLES, SCRIPTS, collectives_of, counted, document, messages_of, steps_of

# A block of 1,024 wide: two norms (2 x 1,024 each), 3 + 1 + 4 + 4 squares of weights.
BLOCK = 4 * 1024 + 12 * 1024**2


@pytest.mark.always
def test_ddp_sends_the_nine_buckets_of_its_second_step():
    """Layers of 2,048 x 8,192: gradients of 25 MiB or more a bucket, last layer first, as the reducer rebuilds them."""
    wide, narrow = 2048 * 8192, 2048
    second, first = 4 * (wide + 8192), 4 * (wide + narrow)  # bytes of a linear layer's gradients with its bias
    assert (second, first) == (67_141_632, 67_117_056)
    found = collectives_of(steps_of(document(EXAMPLES / "ddp.py", 64)))
    sizes = [4 * wide, *[first, second] * 3, first, 4 * 8192]
    assert found == [("all_reduce", size, "own") for size in sizes]
    assert sum(sizes) == 4 * 4 * (2 * wide + 8192 + narrow)  # every gradient once


def test_fsdp2_gathers_and_scatters_on_its_own_streams():
    found = counted(steps_of(document(SCRIPTS / "fsdp2_blocks.py", 64)))
    assert (2 * BLOCK, 4 * BLOCK) == (25_174_016, 50_348_032)
    assert found == Counter(
        {("all_gather", 2 * BLOCK, "stream 2"): 8, ("reduce_scatter", 4 * BLOCK, "stream 3"): 4,
         ("all_reduce", 128, "own"): 1}
    )  # fmt: skip


def test_fsdp2_gathers_the_next_block_before_it_computes_one():
    """The gather of block i + 1 is issued before the kernels that join block i: they only wait for its copy-out."""
    steps = steps_of(document(SCRIPTS / "fsdp2_blocks.py", 64))
    gathers = [k for k, one in enumerate(steps) if one.get("collective") == "all_gather"]
    joins = [
        next(k for k, one in enumerate(steps) if gather in one.get("after", ()) and "stream" not in one)
        for gather in gathers
    ]
    assert all(steps[join]["kernels"][0].startswith("fsdp.split_with_sizes_copy") for join in joins)
    backward = gathers[4:]
    for k in range(1, len(backward) - 1):
        products = next(
            i for i in range(joins[4 + k], len(steps)) if any("mm." in n for n in steps[i].get("kernels", ()))
        )
        assert backward[k + 1] < products
    for k in range(2, 4):  # a gather waits for the copy-out of the block before the last, whose buffer it takes
        assert joins[k - 2] in steps[gathers[k]]["after"]


def test_dtensor_reduces_seven_times_a_layer():
    """Two in forward, five in backward: of q, k, v, gate and up each its own, in float32 outside autocast."""
    tokens = 2048 * 2048
    assert counted(steps_of(document(EXAMPLES / "tensor_parallel.py", 8))) == Counter(
        {("all_reduce", 2 * tokens, "own"): 2 * 4, ("all_reduce", 4 * tokens, "own"): 5 * 4}
    )


def test_fsdp2_over_tensor_parallelism_shards_what_is_left():
    program = document(EXAMPLES / "tensor_parallel.py", 64)
    steps = steps_of(program)
    layer = 4 * (4 * 2048**2 // 8 + 3 * 2048 * 5632 // 8 + 2 * 2048)
    tokens = 2048 * 2048
    found = Counter((one["collective"], one["num_bytes"], one["group"]) for one in steps if "collective" in one)
    assert found == Counter(
        {("all_gather", layer, "dp"): 2 * 4, ("reduce_scatter", layer, "dp"): 4,
         ("all_reduce", 2 * tokens, "tp"): 2 * 4, ("all_reduce", 4 * tokens, "tp"): 5 * 4}
    )  # fmt: skip
    assert program["groups"]["tp"]["ranks"] == [[f"{8 * k}-{8 * k + 7}"] for k in range(8)]
    assert program["groups"]["dp"]["ranks"] == [[k + 8 * j for j in range(8)] for k in range(8)]


def test_one_f_one_b_sends_in_its_order():
    """Four stages, four micro-batches of two: a middle rank sends and receives four each way."""
    size = 4 * 2 * 128 * 1024
    program = document(EXAMPLES / "pipeline.py", 4)
    assert list(program["roles"]) == [f"stage {k}" for k in range(4)]
    first = messages_of(steps_of(program, "stage 0"))
    assert first == [("send", size, 1)] * 4 + [("recv", size, 1)] * 4
    middle = messages_of(steps_of(program, "stage 2"))
    forward, result = ("recv", size, -1), ("send", size, 1)
    gradient, back = ("recv", size, 1), ("send", size, -1)
    warm_up, steady = [forward, result, forward], [result, gradient, back, forward]
    assert middle == [*warm_up, *steady * 2, result, gradient, back, gradient, back]
    last = messages_of(steps_of(program, "stage 3"))
    assert last == [forward, *[back, forward] * 3, back]
