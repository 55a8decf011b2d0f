"""Operators' commands on a queue, as steps for threads and for tasks."""
