"""What each axis of a strategy splits, in a line."""

AXIS_WORDS = {
    "dp": "data-parallel: replicas, each with its own samples; gradients are reduced over them (and over cp)",
    "tp": "tensor-parallel: members share every split op; activations are all-reduced, or gathered and scattered",
    "cp": "context-parallel: ranks share each sequence; keys and values are exchanged (software.rules.cp_algorithm)",
    "pp": "pipeline: consecutive stages of the model; activations and their gradients are sent between them",
    "mp": "model-parallel: devices among which Algorithm 1 places sub-ops; takes the place of tp and pp",
    "ep": "expert-parallel: inside dp x cp (tp x cp x dp with strategy.expert_tp=1), ranks spread the experts of a"
    " layer; rows are exchanged all-to-all",
}
