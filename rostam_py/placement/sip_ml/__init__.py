"""Algorithm 1 of SiP-ML: sub-ops anywhere in a model-parallel group, within the degree of its accelerators."""
