"""Memory: what a device keeps and needs, whichever placer asks, and what is refused for its sake.

Example:
    check_state_fits(size, strategy, machine)           # least_memory: before anything is placed
    check_capacity(machine, strategy, stages, words)    # device_memory: a plan's devices
"""
