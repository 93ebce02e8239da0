"""One schema of a run, a search and a mix, for the command line, sweeps and experiments alike.

keys      every key with its default, unit and allowed names
model_names  models by name, and at another length of their sequences
lookup    what they say of a dotted key
settings  a point as plain nested data: completed and checked
sweep_options  how a sweep runs
build     settings -> machine, plan and simulation options
"""
