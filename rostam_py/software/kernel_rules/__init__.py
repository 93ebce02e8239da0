"""Kernel rules, one file each (rostam_py/software/kernel_rule.py)."""
