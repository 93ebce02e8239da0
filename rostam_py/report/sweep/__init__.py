"""A sweep's folder, how its points are read, and its figures."""
