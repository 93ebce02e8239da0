"""The pipeline schedules, one a file."""
