"""Launch configurations of training programs, read as keys of a run: a reader and a line for each program."""
