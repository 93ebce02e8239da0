"""A run's folder and the figures of one run."""
