"""What 32 bits in a run of 16 cost: norms of eager code and complex rotations, bytes of each element by hand."""

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import get_spec
from rostam_py.models.llama import Config
from rostam_py.models.titan import build, complex_rotation, turned

BATCH, TOKENS, WIDTH, HEADS, KEY_HEADS = 2, 256, 512, 4, 2


class Block(nn.Module):
    """(B, S, WIDTH) -> the same: a norm before a product, added to what comes in."""

    def __init__(self):
        super().__init__()
        self.norm, self.product = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.product(self.norm(x))


class Blocks(nn.Module):
    """Three blocks behind one another."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(scope="module")
def normed():
    return rostam.trace(Blocks(), torch.zeros(BATCH, TOKENS, WIDTH), name="normed")


@pytest.fixture(scope="module")
def titan():
    shape = {"num_layers": 3, "width": WIDTH, "num_heads": HEADS, "num_key_heads": KEY_HEADS, "hidden": 1024}
    return rostam.trace(build("small", Config(**shape, vocabulary=1000, sequence_length=TOKENS)))


def kernels(graph, module, **options):
    """(phase, kernels of one micro-batch) of a module."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="100 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    strategy = rostam.Strategy.of(**{"dp": 1, "micro_batch": BATCH, "precision": "bf16_mixed"} | options)
    plan = rostam.place(graph, machine, global_batch=BATCH, strategy=strategy, cost="roofline", software="ideal")
    templates = plan.stages[0].templates
    return {
        phase: [k for task in templates[name] for k in task.kernels if k.module.startswith(module)]
        for phase, name in (("forward", "forward"), ("backward", "backward_last"))
    }


def bytes_of_an_element(found, elements=BATCH * TOKENS * WIDTH):
    return sum(k.call.bytes_read + k.call.bytes_written for k in found) / elements


def test_eager_norms_are_in_fp32_between_two_conversions(normed):
    found = kernels(normed, "blocks.1.norm", fusion="none")
    # To fp32: 2 + 4; square: 4 + 4; mean: 4; quotient: 4 + 4; back: 4 + 2; times the weight: 2 + 2.
    assert bytes_of_an_element(found["forward"]) == pytest.approx(36, rel=0.02)
    # Of the weight: 2 + 2 + 2 and, summed, 2; of the quotient: 2 + 2, to fp32: 2 + 4, times the input: 4 + 4 + 4, times
    # the statistic: 4 + 4, the row's sum: 4; of the square: its share 4, the input 4 + 4, twice 4 + 4, times the share
    # 4 + 4 + 4; both back: 2 (4 + 2), and added to the residual's: 2 (2 + 2 + 2).
    assert bytes_of_an_element(found["backward"]) == pytest.approx(98, rel=0.02)
    assert sum("convert" in k.name for k in (*found["forward"], *found["backward"])) == 5


def test_fused_norms_read_and_write_once(normed):
    found = kernels(normed, "blocks.1.norm", fusion="none", eager_norm="fused")
    assert bytes_of_an_element(found["forward"]) == pytest.approx(2 + 2, rel=0.02)
    # The gradient, the input and what it makes; and its sum with the residual's gradient.
    assert bytes_of_an_element(found["backward"]) == pytest.approx(6 + 6, rel=0.02)


@pytest.mark.parametrize("options", [{"precision": "fp32"}, {"precision": "tf32"}])
def test_nothing_is_converted_where_all_is_in_fp32(normed, titan, options):
    for graph in (normed, titan):
        found = kernels(graph, "blocks.1", fusion="none", **options)
        assert not [k.name for k in (*found["forward"], *found["backward"]) if "convert" in k.name]


def test_complex_rotations_share_no_kernel(titan):
    # Of queries and keys: to fp32 2 + 4, the product 4 + 4, back 4 + 2; compiled code as well.
    elements = BATCH * TOKENS * WIDTH * (1 + KEY_HEADS / HEADS)
    waves = BATCH * TOKENS * WIDTH / HEADS * 4 / BATCH  # 8 bytes for each pair of a head's entries, read by both
    for options in ({"fusion": "pointwise"}, {"fusion": "none"}, {"fused_part": "blocks"}):
        for phase, found in kernels(titan, "blocks.1.attention", **options).items():
            turning = [k for k in found if k.call.ops[0].op_type in ("aten.mul.Tensor", "rostam.convert")]
            assert len(turning) == 2 * 3, phase
            assert bytes_of_an_element(turning, 1) == pytest.approx(20 * elements + 2 * waves), phase


def test_key_heads_are_repeated(titan):
    keys = BATCH * TOKENS * WIDTH * KEY_HEADS / HEADS
    found = kernels(titan, "blocks.1.attention")
    copies = [k for k in found["forward"] if "clone" in k.op_type]
    sums = [k for k in found["backward"] if ".sum." in k.op_type]
    assert len(copies) == len(sums) == 2  # of keys and of values
    for one in (*copies, *sums):
        moved = one.call.bytes_read + one.call.bytes_written
        assert moved == pytest.approx(2 * keys * (1 + HEADS / KEY_HEADS))


def test_what_is_rotated_is_kept_in_16_bits(titan):
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="100 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")

    def activations(precision):
        strategy = rostam.Strategy.of(dp=1, micro_batch=BATCH, precision=precision, fusion="none")
        return (
            rostam.place(titan, machine, global_batch=BATCH, strategy=strategy, cost="roofline", software="ideal")
            .stages[0]
            .memory
        )

    tokens = BATCH * TOKENS
    ids_and_waves = 2 * tokens * 8 + TOKENS * WIDTH / HEADS * 4
    loss = 3 * tokens * 1000 * 4  # in fp32 with either
    halved = (activations("fp32").activations - ids_and_waves - loss) / 2 + ids_and_waves + loss
    assert activations("bf16_mixed").activations == pytest.approx(halved, rel=0.02)


def test_turned_heads_are_those_of_real_rotations():
    waves = complex_rotation(8, 4, 10_000.0, torch.device("cpu"))
    x = torch.randn(2, 8, 3, 4)
    cosines, sines = waves.real[:, None], waves.imag[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    wanted = torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), -1).flatten(-2)
    assert torch.allclose(turned(x, waves), wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["llama2_13b", "llama3_8b", "llama3_405b_128k"])
def test_torchtitans_llamas_have_the_same_parameters(name):
    with torch.device("meta"):
        counts = [
            sum(p.numel() for p in get_spec(one).build({"blocks": 2}).parameters()) for one in (name, f"titan_{name}")
        ]
    assert counts[0] == counts[1]


def test_unknown_norms_are_refused():
    with pytest.raises(ConfigError, match=r"eager_norm is 'apex'.*torch, fused"):
        rostam.Strategy.of(fusion="none", eager_norm="apex")
    with pytest.raises(ConfigError, match=r"eager_norm is 'fused'.*norms that share no kernel: software.rules.fusion="):
        rostam.Strategy.of(eager_norm="fused")
