"""Keys of a strategy that are set and change nothing, because of another key.

Example:
    unread_keys(Strategy.of(window="paper"))    # ("strategy.placing.window is 'paper', which has no effect: ...",)
Contradictions are errors (strategy.py); these are legal, since one base serves the candidates of a search.
"""

from rostam_py.costs.precision import get_precision
from rostam_py.plan.strategy import Strategy, default_settings
from rostam_py.plan.strategy_names import PLACERS, key_of


def unread_keys(strategy: Strategy) -> tuple[str, ...]:
    """Return a note for every key that differs from its default and that nothing reads."""
    own = set(PLACERS.get(strategy.placer).AXES)
    by_sub_ops = ("mp" in own, "strategy.placer=sip_ml")
    needs = {
        "cast_kernels": (
            strategy.precision is not None and get_precision(strategy.precision).casts is not None,
            "strategy.precision of 8 or 4 bits, whose products read casts",
        ),
        "accumulation": ("tp" in own, "strategy.placer=megatron; sip_ml runs a batch at once and adds up none"),
        "weight_decay": ("tp" in own, "strategy.placer=megatron; sip_ml's step adds no decay"),
        "allocator": ("tp" in own, "strategy.placer=megatron"),
        "pipeline_buffers": (strategy.pp > 1, "strategy.pp > 1"),
        "quantum": by_sub_ops,
        "weight_splits": by_sub_ops,
        "window": by_sub_ops,
        "cp_algorithm": (strategy.cp > 1, "strategy.cp > 1"),
        "asynchronous_tp": (strategy.tp > 1, "strategy.tp > 1"),
        "tp_style": (strategy.tp > 1, "strategy.tp > 1"),
        "narrow_dispatch": (strategy.ep > 1, "strategy.ep > 1, for rows to be sent to experts"),
        "schedule": (strategy.pp > 1, "strategy.pp > 1"),
        "stage_blocks": (strategy.pp > 1, "strategy.pp > 1"),
        "mapping_seed": (strategy.mapping == "random", "strategy.mapping=random"),
        "shard_layout": (strategy.shard == 3, "strategy.shard=3"),
        "overlap_p2p": (strategy.pp > 1, "strategy.pp > 1"),
        "split_p2p": (
            strategy.pp > 1 and strategy.tp > 1 and not strategy.sequence_parallel,
            "strategy.pp > 1 and strategy.tp > 1 without strategy.sequence_parallel, which has split what is sent",
        ),
        "bucket_size": (
            strategy.shard < 3 and strategy.rules.overlap_grad_reduce,
            "strategy.shard below 3, whose units are its buckets, and software.rules.overlap_grad_reduce",
        ),
        "first_bucket": (
            "tp" in own and strategy.shard < 3 and strategy.rules.overlap_grad_reduce,
            "strategy.placer=megatron, strategy.shard below 3 and software.rules.overlap_grad_reduce",
        ),
        "overlap_grad_reduce": (
            "tp" in own and (strategy.dp is None or strategy.num_data_ranks > 1),
            "strategy.placer=megatron and strategy.dp x cp > 1, for gradients to be reduced at all",
        ),
    }
    default = default_settings()
    return tuple(
        f"{key_of(key)} is {strategy.value(key)!r}, which has no effect: it needs {need}"
        for key, (is_read, need) in needs.items()
        if not is_read and strategy.value(key) != default[key]
    )
