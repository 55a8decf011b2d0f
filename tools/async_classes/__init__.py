"""Writes the classes of `astyqueue.aio` from the classes for threads, so that both have one text."""
