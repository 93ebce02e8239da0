"""Queueing: many jobs over weeks that wait for the accelerators of one cluster.

Example:
    jobs = read_jobs("jobs.csv").jobs
    found = simulate_queue(jobs, Servers(np.ones(192, bool), 8), FirstCome())
    found.mean_wait_s, found.utilisation, found.spent["waiting"]

job         what a scheduler knows of a job
jobs_file   jobs of a CSV file
sources     drawn jobs, one file each
orders      which job starts next, one file each
places      which accelerators it gets: shared servers, or an allocator of the fabric
run         one job's way: work, checkpoints, cuts, and what its time went to
simulate    the events
timeline    what the accelerators did
placements  which accelerators each job held, from when to when
result      queueing times, slow-downs, goodput, and the checks that all time is counted
"""
