"""Cron triggers: reads expressions, and computes their occurrences in a time zone."""
