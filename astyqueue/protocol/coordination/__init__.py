"""Hints between processes: the doorbell, row locks, the store's time. Losing any of it costs delay, never safety."""
