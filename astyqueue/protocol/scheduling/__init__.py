"""Schedules: making and changing them, and firing each slot once."""
