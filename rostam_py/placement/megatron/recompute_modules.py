"""Which forward ops selective recomputation replays: kinds of modules, read off the graph, or modules by their paths.

Kinds, with Megatron-Core's names (--recompute-modules) where it has them:
    core_attn             attention from its scores to the product with the values; a fused kernel, which keeps a
                          log-sum-exp for each row and nothing else, as a whole
    layernorm             norms: their results are not kept, their inputs are
    activation            element-wise functions between products, gated units among them: their results are not kept,
                          the products in front of them are
    moe_act               the same of routed experts alone
    mlp, moe              dense feed-forwards, or mixtures of experts from the router on, as a whole: what they read is
                          kept
    shared_experts        likewise, the experts of mixtures that all tokens share
    mla_up_proj           products that expand a latent vector into queries, keys and values, with their rotation
    every_other_product   of each block the results of attention and of every other product are kept, and what is sent;
                          all else runs again (torchtitan's selective checkpointing by op)
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from rostam_py.errors import ConfigError
from rostam_py.graph import Derived, Op, OperatorGraph
from rostam_py.placement.megatron.block_parts import dense_parts, expert_parts, shared_parts
from rostam_py.plan.strategy_names import EVERY_OTHER_PRODUCT, RECOMPUTE_MODULES
from rostam_py.software.norms import WORKING, extent, is_weight, maker_of, written_norms

_WHOLES = {"mlp": dense_parts, "moe": expert_parts, "shared_experts": shared_parts}


@dataclass(slots=True)
class Selection:
    """What is replayed: attention cores and modules, each as a whole, and other ops, where their results are needed.

    wholes: modules that run again with all they compute, as a checkpoint around them has them.
    cached: what eager code keeps of ops that are not, whether backward reads it or not (the cache of torch's
        create_selective_checkpoint_contexts; its compiler keeps what is read).
    """

    cores: list[set[int]] = field(default_factory=list)
    wholes: list[set[int]] = field(default_factory=list)
    ops: set[int] = field(default_factory=set)
    cached: set[int] = field(default_factory=set)


def select(graph: OperatorGraph, modules: Sequence[str], derived: Derived, sent: Collection[int]) -> Selection:
    """Return what ``strategy.recompute_modules`` selects.

    Args: derived: what kernels compute again themselves. sent: tensors behind which something is communicated.
    Raises: ConfigError for a name that selects nothing.
    """
    finder = _Finder(graph, derived, sent)
    found = Selection()
    for name in modules:
        kind = finder.kinds.get(name)
        wholes = _WHOLES[name](graph) if name in _WHOLES else []
        ops = kind() if kind is not None else set() if wholes else finder.at(name)
        cores = attention_core(graph) if name == "core_attn" else []
        if not ops and not cores and not wholes:
            raise ConfigError(
                f"strategy.recompute_modules names {name!r}, of which {graph.name} has none; it must list kinds"
                f" ({', '.join(RECOMPUTE_MODULES)}) or paths of modules, for example"
                f" {_an_example(graph)!r} (* stands for any text)"
            )
        found.cores.extend(cores)
        found.wholes.extend(wholes)
        found.ops.update(ops)
        if name == EVERY_OTHER_PRODUCT:
            found.cached = finder.results_of_products(found.ops)
    # Shared experts are inside their mixture.
    found.wholes = [one for one in found.wholes if not any(one < other for other in found.wholes)]
    return found


def _an_example(graph: OperatorGraph) -> str:
    paths = (op.module for op in graph.ops if op.phase == "forward" and op.block >= 0 and op.module)
    return next(paths, "blocks.*.mlp")


class _Finder:
    def __init__(self, graph: OperatorGraph, derived: Derived, sent: Collection[int]) -> None:
        self.graph, self.derived, self.sent = graph, derived, sent
        self.roots = graph.view_roots
        self.kinds: dict[str, Callable[[], set[int]]] = {
            "core_attn": set, "layernorm": self._norms, "activation": self._activations,
            "moe_act": self._expert_activations, "mla_up_proj": self._up_projections,
            EVERY_OTHER_PRODUCT: self._between_products,
        }  # fmt: skip

    def at(self, pattern: str) -> set[int]:
        """Return the forward ops of the modules at a path, and inside them."""
        return {op.id for op in self._forward() if _matches(op.module, pattern)}

    def _forward(self) -> Iterator[Op]:
        return (op for op in self.graph.ops if op.phase == "forward" and not op.is_metadata)

    def _maker(self, tensor: int) -> Op | None:
        return maker_of(self.graph, tensor)

    def _is_weight(self, tensor: int) -> bool:
        return is_weight(self.graph, tensor)

    # Norms

    def _norms(self) -> set[int]:
        found: set[int] = set()
        for op in self._forward():
            if self._is_norm(op):
                found.add(op.id)
        for norm in written_norms(self.graph):
            found |= {*norm.statistics, norm.op, *self._scaled(self.graph.ops[norm.op])}
        return found

    def _is_norm(self, op: Op) -> bool:
        """Tell whether an op makes a tensor of its input's shape and statistics of its rows."""
        if op.is_elementwise or op.role or len(op.outputs) < 2:
            return False
        first, *others = op.outputs
        tensors = self.graph.tensors
        return tensors[first].shape == tensors[op.inputs[0]].shape and all(extent(self.graph, t) == 1 for t in others)

    def _scaled(self, op: Op) -> Iterator[int]:
        """Yield the ops behind a norm that cast, scale or shift its result by weights."""
        while True:
            users = [self.graph.ops[u] for u in self.graph.readers.get(op.outputs[0], ())]
            following = [u for u in users if u.phase == "forward" and u.is_elementwise and self._has_one_source(u)]
            if len(following) != 1:
                return
            op = following[0]
            yield op.id

    def _has_one_source(self, op: Op) -> bool:
        others = sum(not self._is_weight(t) for t in op.inputs)
        return others == 1 and (len(op.inputs) > 1 or op.role == "copy")

    # Activations

    def _activations(self) -> set[int]:
        """Return element-wise ops that make what a product reads in backward out of kept products and rows' weights."""
        graph, found = self.graph, set[int]()
        kept = {self.roots[t.id] for t in graph.tensors if t.is_saved} - self.derived.keys()
        for root in kept:
            readers = [graph.ops[u] for u in graph.readers.get(root, ()) if graph.ops[u].phase == "backward"]
            if any(op.role == "product" for op in readers):
                found |= self._chain(root, kept)
        return found

    def _expert_activations(self) -> set[int]:
        of_experts = set[int]().union(*expert_parts(self.graph))
        return (self._activations() & of_experts).difference(*shared_parts(self.graph))

    def _chain(self, root: int, kept: set[int]) -> set[int]:
        found: set[int] = set()
        pending = [root]
        while pending:
            read = pending.pop()
            t, op = self.roots[read], self._maker(read)
            if self._is_weight(t):
                continue
            if t in kept and t != root:
                weighs_rows = op is not None and op.role == "gather" and extent(self.graph, read) == 1
                if op is None or not (op.role == "product" or weighs_rows or self._is_biased(op)):
                    return set()
                continue
            if op is None or not op.is_elementwise or op.role == "copy" or len(op.outputs) > 1:
                return set()
            found.add(op.id)
            pending += op.inputs
        return found

    def _is_biased(self, op: Op) -> bool:
        """Tell whether an op adds experts' biases, a row each of a weight, to what a product makes."""
        makers = [one for t in op.inputs if (one := self._maker(t)) is not None]
        gathers = (one for one in makers if one.role == "gather")
        has_biases = any(any(self._is_weight(self.roots[t]) for t in one.inputs) for one in gathers)
        return op.role == "sum" and has_biases and any(one.role == "product" for one in makers)

    # Latent attention

    def _up_projections(self) -> set[int]:
        found: set[int] = set()
        cores = attention_core(self.graph)
        for core in cores:
            inside = {t for op in core for t in self.graph.ops[op].outputs}
            inputs = [t for op in core for t in self.graph.ops[op].inputs if t not in inside]
            block = self.graph.ops[min(core)].block
            between, products = self._above(inputs, block)
            expanding = {op.id for op in products if self._expands_a_latent(op, block)}
            if expanding:
                found |= {op.id for op in between} | expanding
        return found

    def _above(self, tensors: Collection[int], block: int) -> tuple[list[Op], list[Op]]:
        """Return the ops of a block between some tensors and the products above them, and these."""
        seen: dict[int, Op] = {}
        pending = list(tensors)
        products: dict[int, Op] = {}
        while pending:
            op = self._maker(pending.pop())
            if op is None or op.phase != "forward" or op.block != block or op.id in seen or op.id in products:
                continue
            if op.role in WORKING:
                products[op.id] = op
            else:
                seen[op.id] = op
                pending += op.inputs
        return list(seen.values()), list(products.values())

    def _expands_a_latent(self, op: Op, block: int) -> bool:
        """Tell whether all that a product reads, weights left out, was made by other products of its block."""
        if op.role != "product":
            return False
        between, products = self._above([t for t in op.inputs if not self._is_weight(t)], block)
        if not products or any(o.role != "product" for o in products):
            return False
        if any(o.role == "sum" and len(o.inputs) > 1 for o in between):
            return False  # a residual sum: the block's own input
        inner = {o.id for o in (*between, *products)}
        for one in between:
            for t in one.inputs:
                maker = self._maker(t)
                if not self._is_weight(t) and (maker is None or maker.id not in inner):
                    return False
        return True

    # Blocks in part

    def results_of_products(self, replayed: Collection[int]) -> set[int]:
        """Return what blocks' products make that do not run again."""
        products = (op for op in self._forward() if op.block >= 0 and op.role == "product" and op.id not in replayed)
        return {t for op in products for t in op.outputs}

    def _between_products(self) -> set[int]:
        found: set[int] = set()
        counts: dict[int, int] = {}
        cores = {op for core in attention_core(self.graph) for op in core}
        for op in self._forward():
            if op.block < 0 or op.role == "attention" or op.id in cores:
                continue
            if op.role == "product":
                counts[op.block] = counts.get(op.block, 0) + 1
                if counts[op.block] % 2:
                    continue
            if not any(t in self.sent for t in op.outputs):
                found.add(op.id)
        return found


def is_attention_fused(graph: OperatorGraph) -> bool:
    """Tell whether there is attention and all of it runs as fused kernels."""
    cores = attention_core(graph)
    return bool(cores) and all(len(core) == 1 for core in cores)


def replays_attention(graph: OperatorGraph, level: str, modules: Sequence[str]) -> bool:
    """Tell whether attention itself runs again. Args: level: of recomputation. modules: what is selected."""
    if level != "selective" or "core_attn" in modules:
        return level != "none"
    paths = {op.module for op in graph.ops if op.role == "attention" and op.phase == "forward"}
    return any(_matches(path, name) for path in paths for name in modules)


def _matches(module: str, pattern: str) -> bool:
    return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")


def attention_core(graph: OperatorGraph) -> list[set[int]]:
    """Return the forward ops of every attention core."""
    cores = []
    for op in graph.ops:
        if op.phase != "forward":
            continue
        if op.role == "attention":
            cores.append({op.id})
        elif op.role == "softmax":
            core = _walk(graph, op.id, upwards=True) | _walk(graph, op.id, upwards=False)
            if any(graph.ops[i].role == "batched_product" for i in core):
                cores.append(core)
    return cores


def _walk(graph: OperatorGraph, start: int, upwards: bool) -> set[int]:
    """Return the ops between ``start`` and the nearest products above or below, both included."""
    found, pending = set(), [start]
    while pending:
        index = pending.pop()
        op = graph.ops[index]
        if index in found or op.phase != "forward":
            continue
        is_product = op.role == "batched_product"
        if index != start and not (is_product or op.is_metadata or op.is_elementwise):
            continue
        found.add(index)
        if is_product:
            continue
        if upwards:
            pending += [p for t in op.inputs if (p := graph.tensors[t].producer) is not None]
        else:
            pending += [u for t in op.outputs for u in graph.consumers[t]]
    return found
