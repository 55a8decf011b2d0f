"""Claims, delivers and settles for all threads and tasks of this process."""
