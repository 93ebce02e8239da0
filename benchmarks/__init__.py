"""Speed and memory of rostam: measured, reported, never asserted (a timed test is a flaky one)."""
