"""Space split over a tensor-parallel group: run by hand on slices with halos, and what the plan says of the same."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import rostam_py as rostam
from rostam_py.graph import Affine, Halo, Split
from rostam_py.placement.sharding import propagate
from rostam_py.placement.sharding.layouts import plain, resolve
from rostam_py.tracing import trace

RANKS, BATCH, SIDE = 4, 256, 32
RUN = 2  # samples that are run by hand: bytes go with samples
WIDTHS = (4, 8, 16, 64)
SLOPE = 0.01
aten = torch.ops.aten


class Volumes(nn.Module):
    """CosmoFlow in small: three convolutions, each with an activation and a pooling, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv3d(a, b, 3, padding=1) for a, b in zip(WIDTHS, WIDTHS[1:], strict=False)
        )
        self.dense = nn.Linear(WIDTHS[-1] * (SIDE // 8) ** 3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in self.convolutions:
            x = functional.max_pool3d(functional.leaky_relu(convolution(x), SLOPE), 2)
        return self.dense(torch.flatten(x, 1))


@pytest.fixture(scope="module")
def volumes():
    return trace(
        Volumes(), torch.zeros(2, WIDTHS[0], SIDE, SIDE, SIDE), loss_fn=lambda y: (y * y).mean(), name="volumes"
    )


def planned(graph, global_batch=BATCH, tp=RANKS, pp=1, **more):
    fabric = rostam.fabric("electrical_flat", num_accelerators=tp * pp, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    return rostam.place(
        graph, machine, global_batch=global_batch, strategy=rostam.Strategy.of(tp=tp, pp=pp, **more), software="ideal"
    )


def messages(plan, template, stage=0):
    """(kind, bytes) of the collectives of a template, in order."""
    return [(t.collective, t.num_bytes) for t in plan.stages[stage].templates[template] if t.kind == "collective"]


class Line:
    """Four ranks, each with a slice of every tensor along dimension 2; what they send each other is written down."""

    def __init__(self):
        self.sent = []

    def with_halos(self, parts):
        """Every part between one slice of the one before and one of the one after it, zeros at the ends."""
        slice_bytes = 4 * parts[0].select(2, 0).numel() * BATCH // RUN  # fp32
        self.sent.append(("halo", 2 * slice_bytes))
        edge = torch.zeros_like(parts[0].narrow(2, 0, 1))
        before = [edge, *(part.narrow(2, -1, 1) for part in parts[:-1])]
        after = [*(part.narrow(2, 0, 1) for part in parts[1:]), edge]
        return [torch.cat(three, 2) for three in zip(before, parts, after, strict=True)]


def cut(tensor):
    return list(tensor.chunk(RANKS, 2))


def own_halos(tensor):
    """What ranks that hold the whole tensor read of it: no exchange."""
    padded = functional.pad(tensor, (0, 0, 0, 0, 1, 1))
    size = tensor.shape[2] // RANKS
    return [padded.narrow(2, rank * size, size + 2) for rank in range(RANKS)]


def convolved(part, layer):
    """A convolution of a part with its halo: padding stays in the other two dimensions."""
    return functional.conv3d(part, layer.weight, layer.bias, padding=(0, 1, 1))


def differentiated(dy_with_halo, x_with_halo, layer, has_dx):
    """Gradients of a part: dx of gradients with their halo, those of the weights of its own outputs alone."""
    dy = dy_with_halo.narrow(2, 1, dy_with_halo.shape[2] - 2)
    common = (None, [1, 1, 1], [0, 1, 1], [1, 1, 1], False, [0, 0, 0], 1)
    dweight = aten.convolution_backward(dy, x_with_halo, layer.weight, *common, [False, True, False])[1]
    if not has_dx:
        return None, dweight, dy.sum((0, 2, 3, 4))
    # Of inputs outside its own part nothing is known or wanted: one slice more on either side than the output has.
    shape = list(x_with_halo.shape)
    shape[2] = dy_with_halo.shape[2] + 2
    dx = aten.convolution_backward(
        dy_with_halo, torch.zeros(shape, dtype=dy.dtype), layer.weight, *common, [True, False, False]
    )[0]
    return dx.narrow(2, 2, shape[2] - 4), dweight, dy.sum((0, 2, 3, 4))


def test_slices_with_halos_give_what_the_whole_gives_and_send_what_the_plan_sends(volumes):
    """Three convolutions on four ranks, forward and backward; the dense layer takes what they make as it lies."""
    torch.manual_seed(0)
    model = Volumes().double()
    x = torch.randn(RUN, WIDTHS[0], SIDE, SIDE, SIDE, dtype=torch.float64)
    plan = planned(volumes)
    line = Line()
    kept, parts = [], []
    for index, layer in enumerate(model.convolutions):
        read = own_halos(x) if index == 0 else line.with_halos(parts)
        made = [convolved(part, layer) for part in read]
        active = [functional.leaky_relu(part, SLOPE) for part in made]
        pooled = [functional.max_pool3d(part, 2, return_indices=True) for part in active]
        parts = [part for part, _ in pooled]
        kept.append((read, made, active, [places for _, places in pooled]))
    gathered = torch.cat([part.detach() for part in parts], 2).requires_grad_()
    loss = (model.dense(torch.flatten(gathered, 1)) ** 2).mean()
    (gradient,) = torch.autograd.grad(loss, gathered)

    whole = model(x).square().mean()
    expected = torch.autograd.grad(whole, [p for layer in model.convolutions for p in (layer.weight, layer.bias)])
    assert loss.item() == pytest.approx(whole.item(), rel=1e-12)
    # The dense layer's rows lie as the volumes do, so that its four outputs alone are summed.
    assert messages(plan, "forward") == [*line.sent, ("all_reduce", 4 * 4 * BATCH)]

    line.sent = []
    dparts, found = cut(gradient), []
    for index in (2, 1, 0):
        read, made, active, places = kept[index]
        layer = model.convolutions[index]
        dparts = [
            aten.max_pool3d_with_indices_backward(d, a, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, i)
            for d, a, i in zip(dparts, active, places, strict=True)
        ]
        dparts = [aten.leaky_relu_backward(d, m, SLOPE, False) for d, m in zip(dparts, made, strict=True)]
        # Without a gradient of its input a convolution needs no halo of its output's.
        halos = line.with_halos(dparts) if index else [functional.pad(d, (0, 0, 0, 0, 1, 1)) for d in dparts]
        ranks = [differentiated(d, r, layer, index > 0) for d, r in zip(halos, read, strict=True)]
        found = [sum(r[1] for r in ranks), sum(r[2] for r in ranks), *found]
        dparts = [r[0] for r in ranks]
    for own, of_whole in zip(found, expected, strict=True):
        torch.testing.assert_close(own, of_whole, rtol=1e-10, atol=1e-14)
    # Members' weight gradients are summands: added up once, 4 bytes a scalar.
    scalars = sum(p.numel() for layer in model.convolutions for p in layer.parameters())
    assert messages(plan, "backward_last") == [*line.sent, ("all_reduce", 4 * scalars)]


def test_the_plan_says_what_is_split_along_space_and_work_is_shared_evenly(volumes):
    plan = planned(volumes)
    (note,) = [note for note in plan.notes if "along space" in note]
    assert "aten.convolution.default x3, aten.max_pool3d_with_indices.default x3" in note
    whole = planned(volumes, tp=1)
    convolutions = {
        name: [k for t in one.stages[0].templates["forward"] for k in t.kernels if "convolution" in k.op_type]
        for name, one in (("whole", whole), ("split", plan))
    }
    for mine, all_of_it in zip(convolutions["split"], convolutions["whole"], strict=True):
        assert mine.flops == all_of_it.flops / RANKS


def test_kept_inputs_hold_their_halos(volumes):
    """Convolutions keep their input with two slices more, the first its part of the voxels, which all members hold."""
    sharding = propagate(volumes, RANKS, BATCH)
    own = {}  # local bytes of what is kept without halos, by memory
    for t in volumes.tensors:
        if t.is_saved and t.kind not in ("parameter", "input"):
            key = t.storage if t.storage >= 0 else -2 - t.id
            own[key] = max(own.get(key, 0), t.num_bytes(BATCH) * sharding.tensor_fraction(t.id, whole=True))
    halos = 2 * 4 * BATCH * (WIDTHS[1] * (SIDE // 2) ** 2 + WIDTHS[2] * (SIDE // 4) ** 2)
    voxels = 4 * BATCH * WIDTHS[0] * SIDE**2 * (SIDE // RANKS + 2)
    plan = planned(volumes)
    assert plan.stages[0].activation_changes["forward"][0] == sum(own.values()) + halos + voxels


def test_weight_gradients_run_during_the_exchange_and_the_input_gradient_behind_it(volumes):
    """Half of a convolution's backward is its weights': the exchange begins before it and the other half awaits it."""
    tasks = planned(volumes).stages[0].templates["backward_last"]
    exchanges = [k for k, task in enumerate(tasks) if task.collective == "halo"]
    assert len(exchanges) == 2
    for k in exchanges:
        free, waiting = tasks[k + 1], tasks[k + 2]
        assert (free.kernels[-1].name, waiting.kernels[0].name) == tuple(
            f"{free.kernels[-1].name.split()[0]} ({which} halo)" for which in ("without", "with")
        )
        assert free.kernels[-1].duration_s == waiting.kernels[0].duration_s
        assert k not in free.deps
        assert k in waiting.deps
    work = {
        is_concurrent: sum(
            t.duration_s for t in planned(volumes, asynchronous_tp=is_concurrent).stages[0].templates["backward"]
        )
        for is_concurrent in (True, False)
    }
    assert work[True] == pytest.approx(work[False], rel=1e-12)
    waits = planned(volumes, asynchronous_tp=False).stages[0].templates["backward_last"]
    assert not any("halo" in kernel.name for task in waits for kernel in task.kernels)
    times = [
        rostam.simulate(planned(volumes, asynchronous_tp=is_concurrent)).iteration_time_s for is_concurrent in work
    ]
    assert times[0] < times[1]


class Strided(nn.Module):
    """ResNet's beginning: overlapping pooling, and convolutions of stride 1 and 2."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_strided_layers_exchange_with_one_neighbour_alone():
    graph = trace(Strided(), torch.zeros(2, 3, 256, 256), loss_fn=lambda y: (y * y).mean(), name="strided")
    plan = planned(graph, 512)
    # One slice of 16 channels of 512 samples: 4 MiB at 128 x 128, 2 MiB at 64 x 64, 1 MiB at 32 x 32.
    slices = {side: 512 * 16 * side * 4 for side in (128, 64, 32)}
    # Pooling 3 with stride 2 reads the last row above; so does the strided convolution, the other one a row either way.
    forward = messages(plan, "forward")
    assert forward[:3] == [("halo_up", slices[128]), ("halo", 2 * slices[64]), ("halo_up", slices[64])]
    assert {kind for kind, _ in forward[3:]} == {"all_reduce"}  # the average over parts
    # Their inputs' gradients come from the first row below; of the pooling with its places, of 8 bytes each.
    backward = [one for one in messages(plan, "backward_last") if one[0].startswith("halo")]
    assert backward == [
        ("halo_down", slices[32]), ("halo", 2 * slices[64]), ("halo_down", slices[64]), ("halo_down", 2 * slices[64]),
    ]  # fmt: skip


def test_neighbours_alone_send_halos_and_simulations_move_them(volumes):
    plan = planned(volumes)
    sent = [*messages(plan, "forward"), *messages(plan, "backward_last")]
    halos = sum(size // 2 for kind, size in sent if kind == "halo")
    algorithms = {"all_reduce": "ring", "all_gather": "ring"}
    plan = planned(volumes, tp=RANKS, algorithms=algorithms)
    pairs = plan.traffic_matrix
    # Rings go from each rank to the next and from the last to the first; what comes back from the next are halos.
    assert [pairs[rank + 1][rank] for rank in range(3)] == [halos] * 3
    ring = pairs[3][0]
    assert [pairs[rank][rank + 1] for rank in range(3)] == [ring + halos] * 3
    assert pairs.sum() == 4 * ring + 6 * halos
    assert rostam.simulate(plan, fidelity="flow").bytes_sent["tp"] == 4 * ring + 6 * halos


@pytest.mark.parametrize(
    ("extent", "halo", "degree", "is_legal"),
    [
        (32, (1, 1), 4, True),
        (32, (8, 0), 4, True),
        (32, (9, 0), 4, False),  # would come from two members
        (32, (0, 9), 4, False),
        (30, (1, 1), 4, False),  # parts of unequal size
        (1023, (1, 1), 4, False),  # padded borders would lie elsewhere
    ],
)
def test_parts_are_even_and_no_thinner_than_their_halos(extent, halo, degree, is_legal):
    split = Split("spatial", (0,), (0,), Affine(extent), halos=(Halo(0, *halo),))
    axis = resolve(split, [(extent,), (extent,)], 1, 1)
    assert axis.is_legal(plain(extent), degree) == is_legal


def test_a_pipeline_stage_exchanges_the_halo_of_what_it_receives():
    graph = trace(Strided(), torch.zeros(2, 3, 256, 256), loss_fn=lambda y: (y * y).mean(), name="strided")
    plan = planned(graph, 512, pp=2, micro_batch=512)
    tasks = plan.stages[1].templates["forward"]
    first = next(k for k, task in enumerate(tasks) if task.collective.startswith("halo"))
    assert tasks[0].kind == "recv"
    assert tasks[first].deps == (0,)
    slices = [size for stage in plan.stages for kind, size in messages(plan, "forward", stage.index) if "halo" in kind]
    assert slices == [512 * size for size in (16 * 128 * 4, 2 * 16 * 64 * 4, 16 * 64 * 4)]


class Diffusion(nn.Module):
    """A U-Net in small: strided, dilated and transposed convolutions, group norm, a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU())
        self.down = nn.Sequential(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=2, dilation=2))
        self.up = nn.ConvTranspose2d(64, 32, 2, 2)
        self.last = nn.Sequential(nn.Conv2d(64, 8, 1), nn.AvgPool2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.first(x)
        return self.last(torch.cat((wide, self.up(self.down(wide))), 1))


def test_a_u_net_stays_split_along_space_throughout():
    graph = trace(Diffusion(), torch.zeros(2, 3, 256, 256), loss_fn=lambda y: (y * y).mean(), name="diffusion")
    plan = planned(graph, 64)
    assert propagate(graph, 4, 64).spatial["aten.convolution.default"] == 5
    # 64 samples of 4 bytes: two sums of 8 groups; a row of 32 x 256 for stride 2; dilated by 2 two rows of 64 x 128.
    wide, narrow = 64 * 4 * 32 * 256, 64 * 4 * 64 * 128
    sums = ("all_reduce", 64 * 4 * 2 * 8)
    assert messages(plan, "forward") == [sums, ("halo_up", wide), ("halo", 4 * narrow), ("all_reduce", 4)]
    scalars = sum(p.numel() for p in Diffusion().parameters())
    assert messages(plan, "backward_last") == [
        ("halo", 4 * narrow), ("halo_down", narrow), sums, ("all_reduce", 4 * scalars),
    ]  # fmt: skip


def test_small_images_of_many_channels_stay_split_along_channels():
    wide = nn.Sequential(nn.Conv2d(512, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 512, 3, padding=1), nn.Flatten())
    graph = trace(wide, torch.zeros(2, 512, 4, 4), loss_fn=lambda y: (y * y).mean(), name="wide")
    assert propagate(graph, 4, 8).spatial == {}
    assert propagate(graph, 4, 4096).spatial["aten.convolution.default"] == 2
