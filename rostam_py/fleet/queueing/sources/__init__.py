"""Sources of drawn jobs, one file each."""
