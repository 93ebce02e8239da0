"""Training programs, a file each; ``software.stack`` registers them."""
