import pytest

from rostam_py.costs import gradient_bytes, optimizer_call, optimizer_state_bytes, parameter_bytes, tensor_bytes_factor
from rostam_py.costs.numerics import Numerics
from rostam_py.costs.optimizers import get_optimizer
from rostam_py.costs.precision import PRECISIONS, get_precision
from rostam_py.errors import ConfigError, UnknownNameError


def test_parameter_and_gradient_bytes_follow_model_d15():
    names = (
        "fp32", "tf32", "bf16_mixed", "fp16_mixed", "fp8_mixed", "fp8_delayed_mixed", "fp8_row_mixed",
        "fp8_block_mixed", "mxfp8_mixed", "nvfp4_mixed",
    )  # fmt: skip
    assert list(PRECISIONS) == list(names)
    assert [gradient_bytes(p) for p in names] == [4, 4, 4, 2, 4, 4, 4, 4, 4, 4]
    assert [parameter_bytes(p) for p in names] == [4, 4, 2, 2, 2, 2, 2, 2, 2, 2]


def test_mixed_precision_adam_keeps_sixteen_bytes_a_parameter_in_fp16_and_eighteen_in_bf16():
    # Rajbhandari et al.: 2 (parameter) + 2 (gradient) + 12 (master, mean, variance); Megatron's bf16: gradients of 4
    assert optimizer_state_bytes("adam", "bf16_mixed") == 12
    assert Numerics("fp16_mixed", "adam").held_bytes == Numerics("bf16_mixed", "adam", "bf16").held_bytes == 16
    assert Numerics("bf16_mixed", "adam").held_bytes == Numerics("fp16_mixed", "adam", "fp32").held_bytes == 18


@pytest.mark.parametrize(
    ("precision", "gradients", "allowed"),
    [
        ("fp32", "bf16", "auto, fp32"), ("tf32", "fp16", "auto, fp32"), ("bf16_mixed", "fp16", "auto, fp32, bf16"),
        ("fp16_mixed", "bf16", "auto, fp16, fp32"), ("fp8_mixed", "fp8", "auto, fp32, bf16"),
    ],
)  # fmt: skip
def test_gradients_that_a_precision_cannot_have_are_refused_with_those_it_can(precision, gradients, allowed):
    with pytest.raises(ConfigError) as error:
        gradient_bytes(precision, gradients)
    assert str(error.value) == (
        f"software.rules.gradient_precision is '{gradients}'; with strategy.precision={precision} it must be one of:"
        f" {allowed}"
    )


@pytest.mark.parametrize(
    ("name", "fp32", "mixed"),
    [
        ("sgd", (0, 8, 4), (4, 8, 6)),
        ("momentum", (4, 12, 8), (8, 12, 10)),
        ("adagrad", (4, 12, 8), (8, 12, 10)),
        ("adam", (8, 16, 12), (12, 16, 14)),
    ],
)
def test_optimizer_state_and_traffic_per_parameter(name, fp32, mixed):
    # read: gradient (4), fp32 states, parameter or its master copy (4); written: states, that copy, 2 bytes if mixed
    for precision, (state, read, written) in (("fp32", fp32), ("bf16_mixed", mixed)):
        call = optimizer_call(name, 1000, precision)
        assert optimizer_state_bytes(name, precision) == state
        assert (call.bytes_read, call.bytes_written) == (1000 * read, 1000 * written)
        assert call.ops[0].op_type == f"optimizer.{name}"
        assert call.ops[0].phase == "optimizer"
    narrow = optimizer_call(name, 1000, "bf16_mixed", "bf16")
    assert (narrow.bytes_read, narrow.bytes_written) == (1000 * (mixed[1] - 2), 1000 * mixed[2])


def test_gradients_pass_through_memory_to_be_clipped_and_to_lose_the_scale_of_the_loss():
    # Adam reads 16 bytes and writes 14; the norm reads 4 more, scaling reads 4 and writes 4.
    call = optimizer_call("adam", 1000, "bf16_mixed", clips=True)
    assert (call.bytes_read, call.bytes_written) == (1000 * (16 + 8), 1000 * (14 + 4))
    # Gradients of 2 bytes become 4 without the scale of the loss, which Adam, and what clips, then reads.
    call = optimizer_call("adam", 1000, "fp16_mixed")
    assert (call.bytes_read, call.bytes_written) == (1000 * (2 + 16), 1000 * (4 + 14))
    call = optimizer_call("adam", 1000, "fp16_mixed", "fp32", clips=True)
    assert (call.bytes_read, call.bytes_written) == (1000 * (4 + 8 + 16), 1000 * (4 + 4 + 14))


def test_only_float32_tensors_shrink_in_mixed_precision():
    assert tensor_bytes_factor("bf16_mixed", "float32") == 0.5
    assert tensor_bytes_factor("fp32", "float32") == tensor_bytes_factor("bf16_mixed", "int64") == 1.0


@pytest.mark.parametrize("call", [lambda: gradient_bytes("bf16"), lambda: optimizer_call("lamb", 1, "fp32")])
def test_unknown_names_list_the_known_ones(call):
    with pytest.raises(UnknownNameError, match="known: "):
        call()


def test_negative_parameter_count_is_refused():
    with pytest.raises(ConfigError, match="must be >= 0"):
        optimizer_call("adam", -1, "fp32")


def test_an_unknown_name_says_which_key_holds_it():
    with pytest.raises(
        UnknownNameError, match=r"strategy\.precision is 'fp8' .did you mean 'fp8_mixed'.*; known: fp32"
    ):
        get_precision("fp8")
    with pytest.raises(UnknownNameError, match=r"optimizer is 'adamw' .did you mean 'adam'.*; known: sgd"):
        get_optimizer("adamw", "optimizer")
