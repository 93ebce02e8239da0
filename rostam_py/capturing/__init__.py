"""Capture: a user's own distributed training program, unmodified, run on one CPU and written down as a program.

Example:
    program = rostam.capture(["python", "train.py"], world=64)
"""

from rostam_py.capturing.front import capture

__all__ = ["capture"]
