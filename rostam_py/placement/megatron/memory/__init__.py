"""What the devices of a pipeline need, each part in a file of its own; stages adds them up (MODEL D15).

Example:
    memories = StageMemories(parameters, recomputation, derived, losses, exchange=None, weight_ops=ops, programs=all)
    memories.of_devices(context)               # MemoryBytes of each
"""
