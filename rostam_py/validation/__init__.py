"""Validation: published measurements of whole training steps, each predicted from model, machine and strategy alone.

Example:
    for table, outcome in validate(select(["V1"])):
        print(outcome.row.name, outcome.error)

No constant is fitted to a row: rows are read here and nowhere else (MODEL 32), and a prediction is a run as `rostam
run` would simulate it. ``data`` holds the rows as the sources print them; what a source leaves open is filled by the
one rule that its table states. Importing this loads nothing: help and completion ask ``names`` alone.
"""
