"""RowExchange: what sends rows to the ranks of their experts and back, and vectors of tables to their samples' ranks.

Example:
    exchange = RowExchange(log)
    exchange.exchange(tensor)                  # where builder.experts.exchanged has it
"""

import math
from dataclasses import replace

from rostam_py.collectives.row_exchanges import HYBRIDEP
from rostam_py.placement.experts import DISPATCH
from rostam_py.placement.experts.hops import Hop
from rostam_py.placement.megatron.writers.task_log import TaskLog
from rostam_py.plan.fusion import MODULES
from rostam_py.software.product_inputs import sent_width

# Bytes of an expert's place in HybridEP's maps: whether a token goes there, and where its row lies.
_MAP_BYTES, _PLACE_BYTES = 1, 4


class RowExchange:
    """Append the exchanges of one template's rows to its log."""

    def __init__(self, log: TaskLog) -> None:
        self.log, self.context = log, log.context

    def exchange(self, tensor: int) -> None:
        """Send rows to the ranks of their experts, or back; vectors of tables once all of them are there."""
        builder = self.context.builder
        bundle = builder.experts.bundle(tensor)
        if not all(t in self.log.provider for t in bundle):
            return
        self._prepare(tensor)
        deps = self.log.deps_on(bundle)
        is_whole = tensor in self.context.sharding.comms and not self.is_before_gather(tensor)
        size = math.ceil(builder.tensor_bytes(tensor, is_whole) * self.sent(tensor) - 1e-6)
        name = f"{builder.experts.exchanged[tensor]} {self.log.origin(tensor)} {self.log.phase}"
        if steps := builder.experts.steps(tensor):
            for group, kind, share in steps:
                task = self.log.collective(f"{name}, {kind}", group, kind, math.ceil(size * share - 1e-6), deps)
                deps = (task,)
            self.log.provide(bundle, deps[0])
            return
        hops = self.context.hops.hops or (Hop(builder.experts.group, 1.0),)
        tasks = [
            self.log.collective(name, hop.group, "all_to_all", math.ceil(size * hop.share - 1e-6), deps) for hop in hops
        ]
        if self._follows_routing(tensor):
            self.log.tasks[tasks[0]] = replace(self.log.tasks[tasks[0]], is_routed=True)
        task = tasks[-1]
        if len(tasks) > 1:
            self.log.beside[task] = tasks[0]
        self.log.provide(bundle, task)

    def is_before_gather(self, tensor: int) -> bool:
        """Tell whether a tensor is a member's own rows, which members gather where their experts are."""
        comms = self.context.sharding.comms.get(tensor, ())
        kind = self.context.builder.experts.exchanged.get(tensor)
        return kind == DISPATCH and any(comm.kind == "all_gather" for comm in comms)

    def sent(self, tensor: int) -> float:
        """Return what of a tensor of rows is sent: the busiest rank's, narrow where products read them so."""
        builder = self.context.builder
        experts = builder.experts
        if tensor not in experts.exchanged:
            return 1.0
        is_narrow = self.context.sends_narrow and tensor in experts.multiplied
        return experts.sent(tensor) * (sent_width(builder.rules.precision) if is_narrow else 1.0)

    def _prepare(self, tensor: int) -> None:
        """Append what HybridEP does in front of a dispatch of rows, as Megatron-Core calls it.

        Model: behind a router each rank gathers which tokens of all others go to which experts, a byte for each pair,
            reads that for where tokens go and which of its experts they have, and numbers the rows; backward knows
            that. Tokens that cross to other servers are copied to a buffer first. Kernels take what their bytes do.
            Ignored: the same of rows' weights, and DeepEP's exchange of counts.
        Source: metadata_preprocess_core and dispatch_preprocess of deepseek-ai/DeepEP,
            csrc/hybrid_ep/executor/executor.cu, permute_processing in extension/permute.cu; dispatch_with_permute in
            deep_ep/hybrid_ep_buffer.py.
        """
        builder, hops = self.context.builder, self.context.hops
        shape = self.context.graph.tensors[tensor].shape
        are_rows = len(shape) > 1 and shape[-1].at(1) > 1 and builder.experts.exchanged[tensor] == DISPATCH
        if not (hops.hops and are_rows and builder.rules.fusion == MODULES and self.context.dispatcher == HYBRIDEP):
            return
        if self._follows_routing(tensor):
            tokens = builder.num_elements(tensor) / shape[-1].at(1) / hops.per_token
            degree = builder.experts.degree
            maps, own = tokens * degree * hops.num_experts, hops.num_experts / degree
            deps = self.log.deps_on([tensor])
            name = f"all_gather routing of {self.log.origin(tensor)} {self.log.phase}"
            task = self.log.collective(
                name, builder.experts.group, "all_gather", math.ceil(maps * _MAP_BYTES - 1e-6), deps
            )
            self.log.wait_for((tensor,), [task])
            read, places = maps * _MAP_BYTES, tokens * degree * _PLACE_BYTES
            self.log.move(tensor, "routing read", read, maps / degree * _MAP_BYTES + places)
            numbers = tokens * hops.num_ranks * own
            self.log.provider[tensor] = self.log.move(
                tensor, "rows numbered", numbers * (_MAP_BYTES + _PLACE_BYTES), 2 * numbers * _PLACE_BYTES
            )
        if hops.spans_servers:
            size = builder.tensor_bytes(tensor) / hops.per_token
            self.log.wait_for((tensor,), [])
            self.log.provider[tensor] = self.log.move(tensor, "copied to be sent", size, size)

    def _follows_routing(self, tensor: int) -> bool:
        """Tell whether a router has just decided how many of these rows each expert gets; backward knows that."""
        producer = self.context.graph.tensors[tensor].producer
        is_forward = producer is not None and self.context.graph.ops[producer].phase == "forward"
        return is_forward and tensor in self.context.builder.experts.multiplied
