"""Names of the policies that answer faults, for help and completion: importing them loads none."""

from rostam_py.registry import Registry

POLICIES = Registry("policy")
POLICIES.add("wait", "rostam_py.fleet.goodput.policies.wait:Wait")
POLICIES.add("spares", "rostam_py.fleet.goodput.policies.spares:Spares")
POLICIES.add("shrink", "rostam_py.fleet.goodput.policies.shrink:Shrink")
POLICIES.add("rejoin", "rostam_py.fleet.goodput.policies.rejoin:Rejoin")
POLICIES.add("ragged", "rostam_py.fleet.goodput.policies.ragged:Ragged")
