"""Places: which accelerators of a cluster jobs hold."""
