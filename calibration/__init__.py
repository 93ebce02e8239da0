"""Calibration: measured kernels of others, distilled into the tables that rostam ships, and judged on what it left out.

Example:
    python -m calibration                  # writes rostam_py/costs/tables/*.kernels.json: make calibrate
    python -m calibration judge            # prints the errors on the held-out halves: make judge
"""
