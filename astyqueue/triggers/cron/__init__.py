"""Cron triggers: reads expressions, and computes their occurrences in a time zone.

- `parser`: an expression in the form of Unix or of Quartz as fields, or an error that names the field.
- `matcher`: the wall times that the fields admit.
- `timezone`: the wall clock of a zone as stretches of time with a constant offset from UTC.
- `cron`: the trigger. It searches the next admitted wall time stretch by stretch, so that a clock change neither skips
  nor doubles an occurrence.

Nothing here reads a clock; the time zones are those of `zoneinfo`. docs/explanation/triggers.md has the rules,
docs/decisions/0037-cron-fields-are-read-here.md why there is a parser.
"""
