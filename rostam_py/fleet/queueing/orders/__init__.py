"""Orders in which jobs leave the queue, one file each."""
