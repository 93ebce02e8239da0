"""Fleet: several training jobs that share one machine, each on accelerators of its own.

Example:
    jobs = [Job("big", gpt3, Strategy(dp=8, tp=8, pp=8), 64), Job("small", bloom, Strategy(dp=2, tp=4, pp=12), 16)]
    plans = place_mix(jobs, machine, allocation="random", seed=3)
    mix = simulate_mix(jobs, machine, plans=plans, routing="hash", seed=0)
    [job.slowdown for job in mix.jobs]
"""

from rostam_py.fleet.allocators import ALLOCATORS
from rostam_py.fleet.job import Job, draw_jobs
from rostam_py.fleet.mix import Baselines, simulate_mix
from rostam_py.fleet.place_mix import place_mix
from rostam_py.fleet.result import JobOutcome, MixResult

__all__ = ["ALLOCATORS", "Baselines", "Job", "JobOutcome", "MixResult", "draw_jobs", "place_mix", "simulate_mix"]
