"""What repeats is traced a few times and grown; the graph is that of the whole trace, whatever a model does."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rostam_py.graph import OperatorGraph
from rostam_py.tracing import folding, trace
from tests.tracing import public_models

DEPTH, WIDTH = 10, 8


class Block(nn.Module):
    """A residual block with settings of its own."""

    def __init__(self, scale: float = 1.0, p: float = 0.0, eps: float = 1e-5, width: int = 4 * WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=eps)
        self.up, self.down = nn.Linear(WIDTH, width), nn.Linear(width, WIDTH)
        self.scale, self.p = scale, p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.dropout(functional.gelu(self.up(self.norm(x))), self.p, self.training)
        y = self.down(y)
        return x + (y if self.scale == 1.0 else y * self.scale)


class Stack(nn.Module):
    """Blocks in a row; ``run`` may say otherwise."""

    def __init__(
        self,
        blocks: list[nn.Module],
        run: Callable[["Stack", torch.Tensor], Any] | None = None,
    ) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Linear(WIDTH, WIDTH), nn.ModuleList(blocks), nn.Linear(WIDTH, 3)
        self.run = run

    def forward(self, x: torch.Tensor) -> Any:
        x = self.embed(x)
        if self.run is not None:
            return self.run(self, x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _blocks(**settings: Callable[[int], Any]) -> list[nn.Module]:
    return [Block(**{key: value(i) for key, value in settings.items()}) for i in range(DEPTH)]


def _frozen() -> Stack:
    model = Stack(_blocks())
    model.blocks[4].requires_grad_(False)
    return model


def _frozen_head() -> Stack:
    model = Stack(_blocks())
    model.embed.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    return model


def _tied(pairs: dict[int, int]) -> Stack:
    model = Stack(_blocks())
    for i, j in pairs.items():
        model.blocks[i].up.weight = model.blocks[j].up.weight
    return model


def _all_states(model: Stack, x: torch.Tensor) -> Any:
    states = [x]
    for block in model.blocks:
        states.append(block(states[-1]))
    return model.head(torch.stack(states).mean(0))


def _joined_states(model: Stack, x: torch.Tensor) -> Any:
    states = [x]
    for block in model.blocks:
        states.append(block(states[-1]))
    return torch.cat(states, -1)


def _fifth_state(model: Stack, x: torch.Tensor) -> Any:
    states = [x]
    for block in model.blocks:
        states.append(block(states[-1]))
    return model.head(states[-1]) + model.head(states[5])


def _reversed(model: Stack, x: torch.Tensor) -> Any:
    for block in reversed(model.blocks):
        x = block(x)
    return model.head(x)


def _twice(model: Stack, x: torch.Tensor) -> Any:
    for block in itertools.chain(model.blocks, model.blocks):
        x = block(x)
    return model.head(x)


def _one_twice(model: Stack, x: torch.Tensor) -> Any:
    for i in (0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9):
        x = model.blocks[i](x)
    return model.head(x)


def _then_constant(model: Stack, x: torch.Tensor) -> Any:
    x = x + torch.tensor([1.0], device=x.device)
    for block in model.blocks:
        x = block(x)
    return model.head(x) * torch.tensor([2.0, 1.0, 1.0], device=x.device)


def _early_exit(model: Stack, x: torch.Tensor) -> Any:
    for i, block in enumerate(model.blocks):
        x = block(x)
        if i == 6:
            break
    return model.head(x)


def _long_skips(model: Stack, x: torch.Tensor) -> Any:
    kept: list[torch.Tensor] = []
    for i, block in enumerate(model.blocks):
        x = block(x)
        if i < 4:
            kept.append(x)
        elif i > 5:
            x = x + kept.pop()
    return model.head(x)


def _skip_of_two(model: Stack, x: torch.Tensor) -> Any:
    states = [x, x]
    for block in model.blocks:
        states.append(block(states[-1]) + states[-2])
    return model.head(states[-1])


def _checkpointed(model: Stack, x: torch.Tensor, is_reentrant: bool) -> Any:
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=is_reentrant)
    return model.head(x)


def _some_checkpointed(model: Stack, x: torch.Tensor) -> Any:
    for i, block in enumerate(model.blocks):
        x = checkpoint(block, x, use_reentrant=False) if i % 2 else block(x)
    return model.head(x)


def _one_without_gradient(model: Stack, x: torch.Tensor) -> Any:
    for i, block in enumerate(model.blocks):
        with torch.set_grad_enabled(i != 3):
            x = block(x)
    return model.head(x)


def _autocast_half(model: Stack, x: torch.Tensor) -> Any:
    for i, block in enumerate(model.blocks):
        with torch.autocast("cpu", torch.bfloat16, enabled=i > 3):
            x = block(x)
    return model.head(x)


def _masks(model: Stack, x: torch.Tensor) -> Any:
    near, far = x.detach().mean(-1, keepdim=True), x.detach().sum(-1, keepdim=True)
    for i, block in enumerate(model.blocks):
        x = block(x) * (near if i % 3 else far)
    return model.head(x)


def _shared_gate(model: Stack, x: torch.Tensor) -> Any:
    gate = x.sigmoid()  # its gradient is summed over all blocks
    for block in model.blocks:
        x = block(x) * gate
    return model.head(x)


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.factor, None


def _own_backward(model: Stack, x: torch.Tensor) -> Any:
    for i, block in enumerate(model.blocks):
        x = _Twice.apply(block(x), float(i))
    return model.head(x)


def _hooked(model: Stack, x: torch.Tensor) -> Any:
    for i, block in enumerate(model.blocks):
        x = block(x)
        x.register_hook(functools.partial(torch.mul, other=float(i)))
    return model.head(x)


def _forward_hook() -> Stack:
    model = Stack(_blocks())
    model.blocks[5].register_forward_hook(lambda module, inputs, output: output * 2)
    return model


class _Counted(nn.Module):
    """Counts its calls over all blocks; every seventh doubles."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.inner = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _Counted.calls += 1
        return self.inner(x) * 2 if _Counted.calls % DEPTH == 4 else self.inner(x)


class _Sparse(nn.Module):
    """A block that has experts where it is told to."""

    def __init__(self, is_sparse: bool) -> None:
        super().__init__()
        self.inner = Block()
        self.gate = nn.Linear(WIDTH, 2) if is_sparse else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y if self.gate is None else y * self.gate(x).softmax(-1)[..., :1]


class _Buffered(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = Block()
        self.register_buffer("table", torch.ones(size, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.table.mean(0)


class _Constant(nn.Module):
    """Joins what it computes to an empty tensor of its own, as Hugging Face's key-value caches do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([torch.tensor([], device=x.device), self.inner(x)], -1)
        return y * torch.tensor(0.5, device=x.device)


class _Known(nn.Module):
    """Picks by indices that it computes, as experts in groups do."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self.inner, self.num = Block(), num

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        order = torch.arange(self.num * WIDTH, device=x.device) % WIDTH
        return self.inner(x)[..., order].unflatten(-1, (self.num, WIDTH)).mean(-2)


class _InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.norm(self.linear(x)).add_(1), inplace=True)


class _Scan(nn.Module):
    """A selective scan, step by step."""

    def __init__(self, keep: str) -> None:
        super().__init__()
        self.decay, self.into, self.keep = nn.Linear(4, WIDTH), nn.Linear(4, WIDTH), keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        decay, into = self.decay(x).sigmoid(), self.into(x)
        h = torch.zeros(x.shape[0], WIDTH, device=x.device)
        states = []
        filled = torch.zeros_like(into)
        order = range(x.shape[1]) if self.keep != "backwards" else reversed(range(x.shape[1]))
        for t in order:
            h = decay[:, t] * h + into[:, t]
            y = h.tanh() * 2 + h
            if self.keep == "filled":
                filled[:, t] = y
            states.append(y)
        if self.keep == "last":
            return h
        if self.keep == "filled":
            return filled
        return torch.cat(states, -1) if self.keep == "cat" else torch.stack(states, 1)


class _Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(4, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], WIDTH)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return self.head(h)


class _Unbound(_Cell):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], WIDTH)
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
        return self.head(h)


MODELS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    # name -> (the model, whether it must be folded)
    "equal": (lambda: Stack(_blocks()), True),
    "sequential": (lambda: nn.Sequential(*_blocks()), True),
    "reversed": (lambda: Stack(_blocks(), _reversed), True),
    "twice": (lambda: Stack(_blocks(), _twice), False),
    "one twice": (lambda: Stack(_blocks(), _one_twice), True),
    "early exit": (lambda: Stack(_blocks(), _early_exit), True),
    "dropout grows": (lambda: Stack(_blocks(p=lambda i: 0.1 * i)), False),
    "dropout in one": (lambda: Stack(_blocks(p=lambda i: 0.1 if i == 5 else 0.0)), False),
    "another eps": (lambda: Stack(_blocks(eps=lambda i: 1e-3 if i == 5 else 1e-5)), False),
    "another scale": (lambda: Stack(_blocks(scale=lambda i: 0.5 if i == 4 else 2.0)), False),
    "another width": (lambda: Stack(_blocks(width=lambda i: 48 if i == 4 else 32)), False),
    "alternating": (lambda: Stack([Block(width=48 if i % 2 else 32) for i in range(14)]), True),
    "masks of period three": (lambda: Stack(_blocks(), _masks), False),
    "frozen in the middle": (_frozen, False),
    "frozen at the beginning": (_frozen_head, True),
    "tied neighbours": (lambda: _tied({4: 5}), False),
    "tied ends": (lambda: _tied({0: DEPTH - 1}), True),
    "tied pairs": (lambda: _tied({i: i - 1 for i in range(1, DEPTH, 2)}), True),
    "all tied": (lambda: _tied(dict.fromkeys(range(1, DEPTH), 0)), False),
    "all states": (lambda: Stack(_blocks(), _all_states), False),
    "joined states": (lambda: Stack(_blocks(), _joined_states), False),
    "the fifth state": (lambda: Stack(_blocks(), _fifth_state), False),
    "long skips": (lambda: Stack(_blocks(), _long_skips), False),
    "skips of two": (lambda: Stack(_blocks(), _skip_of_two), False),
    "checkpointed": (lambda: Stack(_blocks(), functools.partial(_checkpointed, is_reentrant=False)), True),
    "checkpointed, reentrant": (lambda: Stack(_blocks(), functools.partial(_checkpointed, is_reentrant=True)), True),
    "some checkpointed": (lambda: Stack(_blocks(), _some_checkpointed), True),
    "one without gradient": (lambda: Stack(_blocks(), _one_without_gradient), False),
    "half under autocast": (lambda: Stack(_blocks(), _autocast_half), True),
    "a gate that all share": (lambda: Stack(_blocks(), _shared_gate), True),
    "own backward": (lambda: Stack(_blocks(), _own_backward), False),
    "hooks on tensors": (lambda: Stack(_blocks(), _hooked), False),
    "a hook on one block": (_forward_hook, False),
    "a counter of all blocks": (lambda: Stack([_Counted() for _ in range(DEPTH)]), False),
    "experts in some": (lambda: Stack([_Sparse(i % 4 == 3) for i in range(DEPTH)]), False),
    "a buffer of another size": (lambda: Stack([_Buffered(3 if i == 4 else 2) for i in range(DEPTH)]), False),
    "buffers": (lambda: Stack([_Buffered(2) for _ in range(DEPTH)]), True),
    "constants": (lambda: Stack([_Constant() for _ in range(DEPTH)], _then_constant), True),
    "known indices": (lambda: Stack([_Known(12) for _ in range(DEPTH)]), True),
    "known indices of two lengths": (lambda: Stack([_Known(12 + 4 * (i == 5)) for i in range(DEPTH)]), False),
    "experts in every fourth": (lambda: Stack([_Sparse(i % 4 == 3) for i in range(24)]), True),
    "experts behind dense ones": (lambda: Stack([_Sparse(i > 2) for i in range(DEPTH + 3)]), True),
    "changed in place": (lambda: Stack([_InPlace() for _ in range(DEPTH)]), True),
}
RECURRENCES: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "scan, stacked": (lambda: _Scan("stack"), True),
    "scan, joined": (lambda: _Scan("cat"), True),
    "scan, the last": (lambda: _Scan("last"), True),
    "scan, filled in": (lambda: _Scan("filled"), False),
    "scan, backwards": (lambda: _Scan("backwards"), True),
    "cell": (_Cell, True),
    "cell on parts": (_Unbound, False),
}


QUICK = {
    "equal", "another eps", "alternating", "checkpointed", "a gate that all share", "scan, stacked",
}  # fmt: skip


def _cases(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


def _folded(model: nn.Module, x: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[OperatorGraph, int]:
    """Return the graph, and how many calls of the program were left out of its trace."""
    saved: list[int] = []
    grow = folding.grow

    def watched(*arguments: Any) -> Any:
        grown = grow(*arguments)
        saved.append(sum(repeat.num_saved for repeat in arguments[-1]))
        return grown

    monkeypatch.setattr(folding, "grow", watched)
    _Counted.calls = 0
    return trace(model, x), sum(saved)


@pytest.mark.parametrize("name", _cases(MODELS))
def test_stack_is_traced_as_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, must_fold = MODELS[name]
    model = make()
    graph, saved = _folded(model, torch.zeros(4, WIDTH), monkeypatch)
    _Counted.calls = 0
    assert graph == trace(model, torch.zeros(4, WIDTH), replicate_blocks=False)
    assert saved or not must_fold


@pytest.mark.parametrize("name", _cases(RECURRENCES))
def test_recurrence_is_traced_as_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, must_fold = RECURRENCES[name]
    model = make()
    graph, saved = _folded(model, torch.zeros(2, 20, 4), monkeypatch)
    assert graph == trace(model, torch.zeros(2, 20, 4), replicate_blocks=False)
    assert saved or not must_fold


@pytest.mark.parametrize(("name", "is_told"), [("skips of two", True), ("equal", False), ("another eps", False)])
def test_a_fold_that_is_lost_is_told(name: str, is_told: bool, caplog: pytest.LogCaptureFixture) -> None:
    graph = trace(MODELS[name][0](), torch.zeros(4, WIDTH))
    told = [m for m in caplog.messages if "Stack is traced whole, which takes longer: the first iteration reads" in m]
    assert len(told) == len(caplog.messages) == is_told
    assert len(graph.notes) == 1  # of the loss


def _llama(models: Any) -> Any:
    return models._causal("Llama", **models._GROUPED, num_hidden_layers=8, use_cache=True)


def _mixtral(models: Any) -> Any:
    return models._causal("Mixtral", **models._MIXTRAL, num_hidden_layers=8)


def _deepseek(models: Any) -> Any:
    return models._causal("DeepseekV3", **models._DEEPSEEK, num_hidden_layers=8)


def _gemma(models: Any) -> Any:
    sizes = {**models._GROUPED, "head_dim": 16, "sliding_window": 16, "num_hidden_layers": 12}
    return models._causal("Gemma2", **sizes)


def _encoder_and_decoder(models: Any) -> Any:
    sizes = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 8, "num_heads": 4}
    ids = {"input_ids": models._ids(), "labels": models._ids()}
    return models.hugging_face("T5", "ForConditionalGeneration", **sizes, decoder_start_token_id=0), ids


@pytest.mark.slow
@pytest.mark.parametrize("make", [_llama, _mixtral, _deepseek, _gemma, _encoder_and_decoder])
def test_public_models_are_folded_and_are_the_whole(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    module, inputs = make(public_models)
    graph, saved = _folded(module, inputs, monkeypatch)
    assert saved
    assert graph == trace(module, inputs, replicate_blocks=False)
