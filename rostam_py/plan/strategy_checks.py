"""Checks of a strategy: which keys do not go together, by the names that they have."""

from collections.abc import Callable, Mapping
from typing import Any

from rostam_py.checks import check_booleans, check_integers, is_integer
from rostam_py.costs.optimizers import get_optimizer
from rostam_py.costs.precision import PRECISIONS, Precision, get_precision, gradient_bytes
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.field_words import value_in_brackets
from rostam_py.plan.fusion import (
    APART_NORMS,
    BLOCKS,
    BLOCKS_AND_LOSS,
    EPILOGUE,
    EVERYWHERE,
    MODULES,
    POINTWISE,
    TORCH,
    UNFUSED,
)
from rostam_py.plan.fusion import AUTO as FUSION_AUTO
from rostam_py.plan.gradient_buffers import NO_BUFFER
from rostam_py.plan.graph_inputs import READ_IN_PLACE
from rostam_py.plan.program_rules import BALANCED, MCORE
from rostam_py.plan.state_sharding import SHARD_LEVELS, sharding_degree
from rostam_py.plan.strategy_fields import StrategyFields
from rostam_py.plan.strategy_names import (
    AUTOCAST_TO,
    AXES,
    FP32,
    INNER_AXES,
    MAPPINGS,
    PLACERS,
    RECOMPUTE,
    RECOMPUTE_MODULES,
    SCHEDULES,
    algorithms,
    collectives,
    key_of,
    random_seed,
)
from rostam_py.plan.table_groups import REPLICATED, TABLE_PLACES
from rostam_py.plan.table_ids import UNIFORM

_USUAL_SCHEDULE = "1f1b"


def check_strategy(strategy: StrategyFields) -> None:
    """Check every key of a strategy, and write down lists and texts in one form.

    Raises: ConfigError, DegreeError for an axis, naming key, value and what is allowed.
    """
    check_booleans("strategy", strategy)
    for key in (*AXES, "mp", *INNER_AXES):
        if key != "dp" or strategy.dp is not None:
            check_degree(key, getattr(strategy, key))
    if strategy.max_circuit_degree is not None:
        check_degree("max_circuit_degree", strategy.max_circuit_degree)
    _check_fusion(strategy)
    if strategy.micro_batch is not None:
        check_degree("micro_batch", strategy.micro_batch)
    _check_choice("schedule", strategy.schedule, tuple(SCHEDULES))
    _check_recompute(strategy)
    if strategy.placer not in PLACERS:
        PLACERS.get(strategy.placer)
    _check_axes(strategy)
    _check_sequence_parallel(strategy)
    _check_chunks(strategy)
    _check_groups(strategy)
    _check_layers(strategy)
    _check_sharding(strategy)
    _check_experts(strategy)
    _check_tables(strategy)
    _check_order(strategy)
    if strategy.precision is not None:
        check_precision(strategy, strategy.precision)
        _check_user_buffers(strategy, strategy.precision)
    _check_narrow(strategy, "narrow_weights", lambda one: one.gathered_weight_bytes > 0)
    _check_narrow(strategy, "narrow_dispatch", lambda one: one.sent_bytes < one.tensor_bytes)
    if strategy.optimizer is not None:
        get_optimizer(strategy.optimizer)
    _check_mapping(strategy)
    _check_algorithms(strategy)


def _check_narrow(strategy: StrategyFields, key: str, can: Callable[[Precision], bool]) -> None:
    """Raise ConfigError for a key of narrow products that is true with a precision which cannot have it so."""
    known = [name for name, one in PRECISIONS.items() if can(one)]
    if strategy.value(key) and strategy.precision not in known:
        raise ConfigError(
            f"{key_of(key)} is {strategy.value(key)!r}, which needs strategy.precision to be one of:"
            f" {', '.join(known)}; it is {strategy.precision!r}"
        )


def _check_fusion(strategy: StrategyFields) -> None:
    if strategy.rules.gradient_buffer != NO_BUFFER and not PLACERS.get(strategy.placer).buffers_gradients:
        raise ConfigError(
            f"software.rules.gradient_buffer is {strategy.rules.gradient_buffer!r}; with"
            f" strategy.placer={strategy.placer} it must be {NO_BUFFER!r}"
        )
    if strategy.rules.fused_part != EVERYWHERE and strategy.fused_as not in (POINTWISE, EPILOGUE, MODULES):
        raise ConfigError(
            f"software.rules.fused_part is {strategy.rules.fused_part!r}, which needs software.rules.fusion to be one"
            f" of: {POINTWISE}, {EPILOGUE}, {MODULES}; it is {strategy.fused_as!r}"
        )
    for key, what, need, parts in (  # a need that is unread does not load the placer
        ("eager_loss", "a loss that shares", "has_eager_loss", BLOCKS),
        ("eager_norm", "norms that share", "has_eager_head", f"{BLOCKS} or {BLOCKS_AND_LOSS}"),
    ):
        value = strategy.value(key)
        if value != TORCH and not getattr(strategy, need):
            raise ConfigError(
                f"{key_of(key)} is {value!r}, which needs {what} no kernel: software.rules.fusion={UNFUSED} or"
                f" software.rules.fused_part={parts}"
            )
    _check_convolution_norms(strategy)
    _check_eager_kernels(strategy)
    if strategy.rules.fusion == FUSION_AUTO:  # placers are not loaded for it
        return
    fusions = PLACERS.get(strategy.placer).FUSIONS
    if strategy.rules.fusion not in fusions:
        raise ConfigError(
            f"software.rules.fusion is {strategy.rules.fusion!r}; with strategy.placer={strategy.placer} it must be one"
            f" of: {', '.join((FUSION_AUTO, *fusions))}"
        )


def _check_eager_kernels(strategy: StrategyFields) -> None:
    """Refuse kernels of eager code where other code shares them out."""
    for key, value, said in (
        ("gradient_buffer", "copied", "'copied'"), ("optimizer_kernels", "single", "'single'"),
        ("autocast", True, "true"),
    ):  # fmt: skip
        if strategy.value(key) == value and strategy.shard:
            raise ConfigError(f"{key_of(key)} is {said}, which needs strategy.shard to be 0; it is {strategy.shard}")
    if strategy.rules.inputs != READ_IN_PLACE:
        placer = type(strategy).__dataclass_fields__["placer"].default
        for key, needed in (("placer", placer), ("recompute", "none")):
            if strategy.value(key) != needed:
                raise ConfigError(
                    f"software.rules.inputs is {strategy.rules.inputs!r}, which needs {key_of(key)} to be {needed}; it"
                    f" is {strategy.value(key)!r}"
                )
    if not strategy.rules.autocast:
        return
    if strategy.fused_as != UNFUSED:
        raise ConfigError(
            f"software.rules.autocast is true, which needs software.rules.fusion to be {UNFUSED}; it is"
            f" {strategy.fused_as!r}"
        )


def check_precision(strategy: StrategyFields, precision: str) -> None:
    """Raise ConfigError for settings that do not go with a precision, the strategy's or the model's own."""
    gradient_bytes(precision, strategy.rules.gradient_precision)
    is_own = "" if strategy.precision is not None else ", the model's own"
    if strategy.rules.master_precision != FP32 and not get_precision(precision).has_master_parameters:
        raise ConfigError(
            f"software.rules.master_precision is {strategy.rules.master_precision!r}, but weights in"
            f" {precision}{is_own} have no master copy; leave it out"
        )
    if strategy.rules.autocast and precision not in AUTOCAST_TO:
        raise ConfigError(
            f"software.rules.autocast is true, which needs strategy.precision to be {' or '.join(AUTOCAST_TO)}; it is"
            f" {precision!r}{is_own}"
        )
    if strategy.rules.convolution_norms != APART_NORMS and get_precision(precision).tensor_bytes != 2:
        narrow = ", ".join(name for name, one in PRECISIONS.items() if one.tensor_bytes == 2)
        raise ConfigError(
            f"software.rules.convolution_norms is {strategy.rules.convolution_norms!r}, whose kernels have 16-bit"
            f" inputs; it needs strategy.precision to be one of: {narrow}; it is {precision!r}{is_own}"
        )


def _check_convolution_norms(strategy: StrategyFields) -> None:
    if strategy.rules.convolution_norms == APART_NORMS:
        return
    needs = (
        ("fusion", strategy.fused_as, (POINTWISE, EPILOGUE)), ("fused_part", strategy.rules.fused_part, (EVERYWHERE,)),
        ("tp", strategy.tp, (1,)), ("pp", strategy.pp, (1,)), ("recompute", strategy.recompute, ("none",)),
    )  # fmt: skip
    for key, value, allowed in needs:
        if value not in allowed:
            raise ConfigError(
                f"software.rules.convolution_norms is {strategy.rules.convolution_norms!r}, which needs {key_of(key)}"
                f" to be {' or '.join(map(str, allowed))}; it is {value!r}"
            )


def _check_recompute(strategy: StrategyFields) -> None:
    _check_choice("recompute", strategy.recompute, RECOMPUTE)
    for key, unset, level in (
        ("recompute_modules", None, "selective"), ("recompute_blocks", None, "full"),
        ("recompute_stops_early", False, "full"),
    ):  # fmt: skip
        if strategy.value(key) != unset and strategy.recompute != level:
            raise ConfigError(
                f"{key_of(key)} is {strategy.value(key)!r}, but strategy.recompute is {strategy.recompute!r}; set"
                f" strategy.recompute={level}, or leave {key_of(key)} out"
            )
    if strategy.recompute_blocks is not None:
        check_degree("recompute_blocks", strategy.recompute_blocks)
    _check_offload(strategy)
    if strategy.recompute_modules is None:
        return
    names = (
        [strategy.recompute_modules]
        if isinstance(strategy.recompute_modules, str)
        else list(strategy.recompute_modules)
    )
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f"strategy.recompute_modules is {strategy.recompute_modules!r}; it must list kinds of modules"
            f" ({', '.join(RECOMPUTE_MODULES)}) or paths of modules, for example 'blocks.*.mlp'"
        )
    strategy.recompute_modules = names


def _check_offload(strategy: StrategyFields) -> None:
    count = strategy.offload_blocks
    if not is_integer(count) or count < 0:
        raise ConfigError(f"strategy.offload_blocks is {count!r}; it must be an integer >= 0")
    needed = {"placer": type(strategy).__dataclass_fields__["placer"].default, "pp": 1, "recompute": "none"}
    for key, value in needed.items():
        if count and strategy.value(key) != value:
            raise ConfigError(
                f"strategy.offload_blocks is {count}, which needs {key_of(key)}={value}; {key_of(key)} is"
                f" {strategy.value(key)!r}"
            )


def _check_axes(strategy: StrategyFields) -> None:
    """Raise DegreeError for degrees that the placer does not know."""
    given = [key for key in (*AXES, "mp") if strategy.value(key) not in (None, 1)]
    own = PLACERS.get(strategy.placer).AXES if given else ()
    for key in given:
        if key not in own:
            others = [name for name in PLACERS.names() if key in PLACERS.get(name).AXES]
            instead = f", or set strategy.placer={' or '.join(others)}" if others else ""
            raise DegreeError(
                f"{key_of(key)} is {strategy.value(key)}; strategy.placer={strategy.placer} takes"
                f" {' and '.join(f'strategy.{axis}' for axis in own)} instead{instead}"
            )


def _check_order(strategy: StrategyFields) -> None:
    if isinstance(strategy.rank_order, list | tuple):
        strategy.rank_order = ",".join(map(str, strategy.rank_order))
    listed = {*strategy.order, "cp"} if strategy.cp == 1 else set(strategy.order)
    if listed != set(AXES) or len(set(strategy.order)) != len(strategy.order):
        also = "" if strategy.cp == 1 else f" (cp is {strategy.cp})"
        raise ConfigError(
            f"strategy.rank_order is {strategy.rank_order!r}; it must list tp, cp, pp and dp once each, fastest first,"
            f" for example 'tp,cp,pp,dp'; cp may be left out only where it is 1{also}"
        )


def _check_sharding(strategy: StrategyFields) -> None:
    level, group, prefetch = strategy.shard, strategy.shard_group, strategy.rules.prefetch
    if isinstance(level, bool) or level not in SHARD_LEVELS:
        raise ConfigError(f"strategy.shard is {level!r}; it must be one of: {', '.join(map(str, SHARD_LEVELS))}")
    if group is not None and (not is_integer(group) or group < 1):
        raise DegreeError(f"strategy.shard_group is {group!r}; it must be an integer >= 1")
    if not is_integer(prefetch) or prefetch < 0:
        raise ConfigError(f"{key_of('prefetch')} is {prefetch!r}; it must be an integer >= 0")
    for key, default, levels in (
        ("shard_group", None, (1, 2, 3)),
        ("prefetch", 1, (3,)),
        ("reshard_after_forward", True, (3,)),
        ("reshard_group", None, (3,)),
        ("overlap_param_gather", False, (1, 2)),
        ("reduce_every_microbatch", True, (2, 3)),
        ("overlap_grad_reduce", True, (0, 1)),
    ):
        value = strategy.value(key)
        if value != default and level not in levels:
            allowed = " or ".join(map(str, levels))
            raise ConfigError(f"{key_of(key)} is {value!r}, which needs strategy.shard = {allowed}; it is {level}")
    if strategy.shard and not PLACERS.get(strategy.placer).shards_state:
        raise ConfigError(
            f"strategy.shard is {strategy.shard}, but strategy.placer={strategy.placer} does not shard state: a"
            " parameter's state is where its ops run; strategy.shard must be 0"
        )
    if strategy.dp is not None:
        degree = sharding_degree(strategy.dp, strategy.cp, strategy.shard, strategy.shard_group)
        _check_second_copy(strategy, degree)


def _check_second_copy(strategy: StrategyFields, degree: int) -> None:
    """Refuse ranks that cannot share a second copy of the weights. Args: degree: ranks that share the first one."""
    ranks = strategy.rules.reshard_group
    if ranks is None:
        return
    said = f"software.rules.reshard_group is {ranks!r}"
    if not is_integer(ranks) or ranks < 1 or degree % ranks:
        raise DegreeError(f"{said}; it must be an integer >= 1 that divides the {degree} ranks that share the weights")
    if not strategy.rules.reshard_after_forward:
        raise ConfigError(
            f"{said} and software.rules.reshard_after_forward is false (with strategy.pp > 1 by default): weights that"
            " stay whole are not gathered again; set reshard_after_forward=true, or leave reshard_group out"
        )
    if strategy.ep > 1:
        raise ConfigError(
            f"{said} and strategy.ep is {strategy.ep}: second copies of experts are not modelled; leave it out"
        )


def _check_experts(strategy: StrategyFields) -> None:
    """Raise DegreeError for an ep that the placer does not know, or that does not divide the replicas."""
    _check_ep_overlap(strategy)
    _check_expert_tp(strategy)
    if strategy.rules.servers_per_token is not None and strategy.ep == 1:
        raise ConfigError(
            f"software.rules.servers_per_token is {strategy.rules.servers_per_token}, which needs strategy.ep > 1"
        )
    if strategy.ep == 1:
        return
    if "ep" not in PLACERS.get(strategy.placer).INNER_AXES:
        others = [name for name in PLACERS.names() if "ep" in PLACERS.get(name).INNER_AXES]
        raise DegreeError(
            f"strategy.ep is {strategy.ep}, but strategy.placer={strategy.placer} does not spread experts over"
            f" replicas: it places their ops inside a group; set strategy.placer={' or '.join(others)}"
        )
    if strategy.dp is not None and strategy.num_expert_ranks % strategy.ep:
        axes = ["dp", *(["cp"] if strategy.cp > 1 else []), *(["tp"] if strategy.has_whole_experts else [])]
        degrees = " x ".join(str(getattr(strategy, axis)) for axis in axes) + " = " if len(axes) > 1 else ""
        hint = ""
        if strategy.tp > 1 and not strategy.has_whole_experts:
            hint = "; with strategy.expert_tp=1 tp does not split experts, and ep may divide tp x cp x dp"
        raise DegreeError(
            f"strategy.ep is {strategy.ep}; it must divide strategy.{' x '.join(axes)} = {degrees}"
            f"{strategy.num_expert_ranks}{hint}"
        )
    if strategy.shard_group is not None:
        raise ConfigError(
            f"strategy.ep is {strategy.ep} and strategy.shard_group is {strategy.shard_group}: hybrid sharding"
            " together with expert parallelism is not modelled; leave strategy.shard_group out, or set ep=1"
        )


def _check_ep_overlap(strategy: StrategyFields) -> None:
    if not strategy.rules.ep_overlap:
        return
    said = (
        "software.rules.ep_overlap is true (overlap_moe_expert_parallel_comm): rows of experts are sent while another"
        " micro-batch computes"
    )
    if strategy.ep == 1:
        raise ConfigError(f"{said}, but none are sent with strategy.ep=1; set strategy.ep > 1, or leave it out")
    able = [name for name in SCHEDULES if SCHEDULES.get(name).runs_ahead or SCHEDULES.get(name).joins_pairs]
    if strategy.schedule not in able:
        raise ConfigError(f"{said}; strategy.schedule is {strategy.schedule}; it must be {' or '.join(able)}")
    if strategy.shard == 3:
        raise ConfigError(
            f"{said}; strategy.shard is 3, and units gathered for two micro-batches at once are not modelled; it"
            " must be 0, 1 or 2"
        )
    if strategy.pp > 1 and strategy.virtual_stages == 1:
        raise ConfigError(
            f"{said}; with one chunk of layers on each of strategy.pp = {strategy.pp} stages a backward has to"
            " wait for the forward before it, so strategy.virtual_stages must be > 1"
        )


def _check_expert_tp(strategy: StrategyFields) -> None:
    if strategy.expert_tp is None:
        return
    check_degree("expert_tp", strategy.expert_tp)
    said = f"strategy.expert_tp is {strategy.expert_tp}"
    if "ep" not in PLACERS.get(strategy.placer).INNER_AXES:
        raise DegreeError(f"{said}, but strategy.placer={strategy.placer} has no tp groups; leave it out")
    if strategy.expert_tp not in (1, strategy.tp):
        raise DegreeError(
            f"{said}; it must be 1, experts whole on a rank, or strategy.tp = {strategy.tp}, which splits every expert"
        )
    if strategy.has_whole_experts and not strategy.sequence_parallel:
        raise ConfigError(
            f"{said} and strategy.tp {strategy.tp}: without strategy.sequence_parallel=true all {strategy.tp} ranks"
            " would route and send the same tokens (Megatron-Core asks for it, too). Set it, or leave expert_tp out"
        )


def _check_user_buffers(strategy: StrategyFields, precision: str) -> None:
    if strategy.rules.tp_overlap and strategy.rules.tp_style == MCORE and not PRECISIONS[precision].in_user_buffers:
        known = ", ".join(name for name, one in PRECISIONS.items() if one.in_user_buffers)
        raise ConfigError(
            f"software.rules.tp_overlap is true and strategy.precision is {precision!r}, which Transformer Engine's"
            f" user buffers do not take; set software.rules.tp_overlap=false, or a precision of: {known}"
        )


def _check_sequence_parallel(strategy: StrategyFields) -> None:
    if strategy.rules.tp_overlap and not (strategy.sequence_parallel and strategy.rules.asynchronous_tp):
        needed = "sequence_parallel" if not strategy.sequence_parallel else "asynchronous_tp"
        raise ConfigError(
            "software.rules.tp_overlap is true: products overlap with their reduce-scatters and all-gathers, which"
            f" needs {key_of(needed)}=true; set that, or software.rules.tp_overlap=false"
        )
    if not strategy.sequence_parallel:
        return
    if "tp" not in PLACERS.get(strategy.placer).AXES:
        raise ConfigError(
            f"strategy.sequence_parallel is true, but strategy.placer={strategy.placer} has no tensor-parallel groups"
            " that could split the sequence; set strategy.placer=megatron and strategy.tp > 1"
        )
    if strategy.tp == 1:
        raise ConfigError(
            "strategy.sequence_parallel is true, but strategy.tp is 1: the sequence is split over the members of a"
            " tensor-parallel group. Set strategy.tp > 1, or strategy.sequence_parallel=false"
        )
    if SCHEDULES.get(strategy.schedule).splits_backward:
        whole = [name for name in SCHEDULES if not SCHEDULES.get(name).splits_backward]
        raise ConfigError(
            f"strategy.sequence_parallel is true, but strategy.schedule={strategy.schedule} runs weight gradients"
            " separately, and the gathers that both halves of a backward then repeat are not modelled; set"
            f" strategy.schedule={' or '.join(whole)}"
        )


def _check_chunks(strategy: StrategyFields) -> None:
    """Raise DegreeError for chunks that the pipeline cannot have."""
    check_degree("virtual_stages", strategy.virtual_stages)
    # A strategy with the usual schedule does not load it.
    if strategy.schedule != _USUAL_SCHEDULE and SCHEDULES.get(strategy.schedule).is_v:
        _check_v(strategy)
    if strategy.virtual_stages == 1:
        return
    said = f"strategy.virtual_stages is {strategy.virtual_stages}"
    if "pp" not in PLACERS.get(strategy.placer).AXES:
        raise DegreeError(f"{said}, but strategy.placer={strategy.placer} has no pipeline; it must be 1")
    if strategy.pp == 1:
        raise DegreeError(f"{said}, but strategy.pp is 1, so there are no stages to interleave; it must be 1")
    if not SCHEDULES.get(strategy.schedule).takes_chunks:
        able = [name for name in SCHEDULES if SCHEDULES.get(name).takes_chunks]
        raise DegreeError(
            f"{said}, but strategy.schedule={strategy.schedule} runs one chunk of layers on each stage; it must be 1,"
            f" or strategy.schedule {' or '.join(able)}"
        )


def _check_groups(strategy: StrategyFields) -> None:
    """Raise ConfigError for groups of micro-batches where none go from chunk to chunk."""
    group = strategy.rules.microbatch_group_size
    if group is None:
        return
    said = f"software.rules.microbatch_group_size is {group}: so many micro-batches go through a chunk before the next"
    if not SCHEDULES.get(strategy.schedule).takes_groups:
        able = [name for name in SCHEDULES if SCHEDULES.get(name).takes_groups]
        raise ConfigError(f"{said}; strategy.schedule is {strategy.schedule}; it must be {' or '.join(able)}")
    if strategy.virtual_stages == 1:
        raise ConfigError(f"{said}; strategy.virtual_stages is 1; set it > 1, or leave the group's size out")


def _check_v(strategy: StrategyFields) -> None:
    """Raise DegreeError for stages that make no V."""
    said = f"strategy.schedule is {strategy.schedule}, which runs two chunks of layers, there and back, on each stage"
    if strategy.virtual_stages != 2:
        raise DegreeError(f"{said}; strategy.virtual_stages is {strategy.virtual_stages}; it must be 2")
    if strategy.pp == 1:
        raise DegreeError(f"{said}; strategy.pp is 1; it must be > 1")


def _check_layers(strategy: StrategyFields) -> None:
    """Refuse chunks of given numbers of blocks that the pipeline does not have."""
    layout = strategy.placing.layout
    if layout is None:
        return
    said = f"strategy.placing.layers is {strategy.placing.layers!r}"
    if "pp" not in PLACERS.get(strategy.placer).AXES:
        raise ConfigError(f"{said}, but strategy.placer={strategy.placer} has no pipeline; leave it out")
    if layout.num_chunks != strategy.pp * strategy.virtual_stages:
        raise DegreeError(
            f"{said}, of {layout.num_chunks} chunks; strategy.pp x strategy.virtual_stages must be as many, and is"
            f" {strategy.pp} x {strategy.virtual_stages}"
        )
    if strategy.rules.stage_blocks != BALANCED:
        raise ConfigError(
            f"{said}, and software.rules.stage_blocks is {strategy.rules.stage_blocks!r}, which cuts the blocks, too;"
            " leave one of them out"
        )


def _check_tables(strategy: StrategyFields) -> None:
    _check_choice("tables", strategy.tables, TABLE_PLACES)
    if strategy.placing.table_ids != UNIFORM and strategy.tables == REPLICATED:
        raise ConfigError(
            f"strategy.placing.table_ids is {strategy.placing.table_ids!r}, but strategy.tables is {strategy.tables!r}:"
            f" gradients are whole tables; it must be {UNIFORM!r}, or strategy.tables one of:"
            f" {', '.join(TABLE_PLACES[1:])}"
        )
    if strategy.placing.replicated_tables_bytes and strategy.tables == REPLICATED:
        raise ConfigError(
            f"strategy.placing.replicated_tables is {strategy.placing.replicated_tables!r}, but strategy.tables is"
            f" {strategy.tables!r}, so all are replicated; leave it out, or set strategy.tables to one of:"
            f" {', '.join(TABLE_PLACES[1:])}"
        )
    others = [key for key in ("tp", "cp", "pp", "mp", "ep") if strategy.value(key) != 1]
    changes = [f"{key_of(key)}=1" for key in others] + (["strategy.shard=0"] if strategy.shard else [])
    if strategy.tables != REPLICATED and (changes or "ep" not in PLACERS.get(strategy.placer).INNER_AXES):
        raise ConfigError(
            f"strategy.tables is {strategy.tables!r}, which needs strategy.placer=megatron and no degree > 1"
            f" except dp; set {', '.join(changes) or 'the placer'}, or strategy.tables=replicated"
        )


def _check_algorithms(strategy: StrategyFields) -> None:
    if not isinstance(strategy.algorithms, Mapping):
        raise ConfigError(
            f"strategy.algorithms is {strategy.algorithms!r}; it must be a mapping of collectives to algorithms, for"
            " example strategy.algorithms.all_reduce=ring"
        )
    for name, algorithm in strategy.algorithms.items():
        _check_choice("algorithms key", name, tuple(collectives()))
        _check_choice(f"algorithms.{name}", algorithm, algorithms(name))


def _check_mapping(strategy: StrategyFields) -> None:

    if isinstance(strategy.mapping, str):
        if strategy.mapping not in MAPPINGS and random_seed(strategy.mapping) is None:
            raise ConfigError(
                f"strategy.mapping is {strategy.mapping!r}; it must be auto, blocks, linear, random (its seed is"
                " strategy.placing.mapping_seed) or a list with the accelerator of every rank"
            )
    else:
        strategy.mapping = _id_list("mapping", strategy.mapping)
        if strategy.accelerators is not None:
            raise ConfigError("strategy.accelerators and a list in strategy.mapping exclude each other; give one")
    if strategy.accelerators is not None:
        strategy.accelerators = _id_list("accelerators", strategy.accelerators)


def check_degree(key: str, value: object) -> None:
    """Raise DegreeError for what is no degree."""
    where = key if key == "global_batch" else f"strategy.{key}"
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DegreeError(f"{where} is {value!r}; it must be an integer >= 1")


def _check_choice(key: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        hint = value_in_brackets(key, value)
        raise ConfigError(f"strategy.{key} is {value!r}{hint}; it must be one of: {', '.join(allowed)}")


def _id_list(key: str, value: Any) -> list[int]:
    ids: list[int] = check_integers(f"strategy.{key}", value).tolist()
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise ConfigError(f"strategy.{key} names accelerator {twice} more than once; every id may occur once")
    return ids
