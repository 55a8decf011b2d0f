"""Sends from this process: encoding, placement and unique keys."""
