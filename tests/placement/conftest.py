"""Graphs traced once, and a fabric with nothing but accelerators: placement looks at no link."""

import itertools
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from rostam_py.fabrics.electrical_flat import ElectricalFlatConfig
from rostam_py.placement import place
from rostam_py.plan import Machine
from rostam_py.tracing import trace


@dataclass(eq=False)
class FlatFabric:
    """Stand-in for rostam_py.fabrics.Fabric."""

    num_accelerators: int
    failed: set[int] = field(default_factory=set)
    name: str = "stand_in"
    max_circuit_degree: int | None = None
    is_circuit_switched: bool = False
    circuits: None = None
    config: ElectricalFlatConfig = field(default_factory=lambda: ElectricalFlatConfig(num_accelerators=1))

    @property
    def healthy_accelerators(self):
        """Ids that have not failed."""
        return [a for a in range(self.num_accelerators) if a not in self.failed]


class TiedAutoencoder(nn.Module):
    """(B, 64) -> (B, 64); the output layer is the transpose of the input layer."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(64, 256, bias=False)
        self.up = nn.Linear(256, 512)
        self.down = nn.Linear(512, 256)

    def forward(self, x):
        """Encode, transform, decode."""
        x = torch.relu(self.encode(x))
        x = torch.relu(self.down(torch.relu(self.up(x))))
        return x @ self.encode.weight


@pytest.fixture
def flat_fabric():
    """Return a maker of fabrics: flat_fabric(8, failed={3})."""
    return lambda count, failed=(): FlatFabric(count, set(failed))


@pytest.fixture
def placed():
    """Return place() on a stand-in machine of just the size that the strategy needs."""

    def run(graph, strategy, global_batch, accelerator="a100_80gb", physics=None, **options):
        count = (strategy.dp or 1) * strategy.num_ranks_of_replica
        machine = Machine(fabric=FlatFabric(count), accelerator=accelerator, **(physics or {}))
        return place(graph, machine, global_batch=global_batch, strategy=strategy, **options, software="ideal")

    return run


@pytest.fixture(scope="session")
def gpt():
    """Four layers of gpt_125m: h 768, 12 heads, s 2,048, V 50,257."""
    return trace("gpt_125m", num_layers=4)


@pytest.fixture(scope="session")
def encoder_decoder():
    """Three encoder and three decoder layers of transformer_350m: h 1,024, s 64 + 64, V 32,768."""
    return trace("transformer_350m", num_layers=3)


@pytest.fixture(scope="session")
def tied_autoencoder():
    """A user's module whose first and last layers share a weight."""
    return trace(TiedAutoencoder(), torch.randn(4, 64), loss_fn=lambda y: (y * y).mean(), name="tied_autoencoder")


class Perceptron(nn.Module):
    """Linear layers without biases and ReLUs between them."""

    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(widths))

    def forward(self, x):
        """Apply the layers."""
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class ConvNet(nn.Module):
    """Two convolutions with batch normalisation, and a linear head."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        """Return ten numbers a sample."""
        return self.head(self.body(x))


def square_mean(y):
    """Return a loss that needs no labels."""
    return (y * y).mean()


@pytest.fixture(scope="session")
def perceptron():
    """64 -> 256 -> 64 without biases: op 1 is the first product, weights layers.0 (256, 64) and layers.1 (64, 256)."""
    return trace(Perceptron(64, 256, 64), torch.randn(4, 64), loss_fn=square_mean, name="perceptron")


@pytest.fixture(scope="session")
def wide_perceptron():
    """512 -> 2,048 -> 2,048 -> 512 without biases."""
    widths = (512, 2048, 2048, 512)
    return trace(Perceptron(*widths), torch.randn(4, 512), loss_fn=square_mean, name="wide_perceptron")


@pytest.fixture(scope="session")
def conv_net():
    """A small convolutional network with batch statistics."""
    return trace(ConvNet(), torch.randn(4, 3, 32, 32), loss_fn=square_mean, name="conv_net")


@pytest.fixture(scope="session")
def small_gpt():
    """One layer of gpt_125m: fused query, key and value, tied embedding."""
    return trace("gpt_125m", num_layers=1)


@pytest.fixture(scope="session")
def small_encoder_decoder():
    """One encoder and one decoder layer of transformer_350m."""
    return trace("transformer_350m", num_layers=1)


@pytest.fixture(scope="session")
def small_graphs(perceptron, wide_perceptron, conv_net, tied_autoencoder, small_gpt, small_encoder_decoder):
    """All small models, by name."""
    found = (perceptron, wide_perceptron, conv_net, tied_autoencoder, small_gpt, small_encoder_decoder)
    return {graph.name: graph for graph in found}


@pytest.fixture(scope="session")
def twelve_layers():
    """The whole of gpt_125m."""
    return trace("gpt_125m")
