"""Decides which row this process visits next and how processes share rows: affects cost and delay, never safety."""
