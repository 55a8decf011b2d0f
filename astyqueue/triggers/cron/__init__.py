"""Cron triggers: reads expressions, and computes their slots in a time zone."""
