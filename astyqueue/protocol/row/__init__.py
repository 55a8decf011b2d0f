"""A process's cached snapshot of one row, and conditional commits against it: optimistic concurrency."""
