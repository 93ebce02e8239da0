"""The report of many jobs: what accelerators did, the queue, where each job was, how long jobs waited, goodput."""
