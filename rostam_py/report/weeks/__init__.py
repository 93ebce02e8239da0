"""The report of weeks: where the time of each policy went, servers that were down, tokens, break-even curves."""
