"""Schedules: making and changing them, and firing each occurrence once.

- `schedule_definition`: creates and replaces schedules, those of repeating messages too.
- `schedule_commands`: does what operators ask: pause, resume, run now, backfill, remove.
- `schedule_commit`: reads the schedules of home rows, and changes one, by a header commit of its row.
- `policies`: which occurrences of a schedule are due, and what misfire and overlap send or skip for them; no I/O.
- `fire`: one commit fires the next occurrences of many schedules and inserts their messages into the same row.

A schedule is one column of its home row. The message of an occurrence and the record that the occurrence was fired are
in one commit, so that an occurrence is fired once also when the process crashes. docs/how-to/schedules.md shows the
policies, docs/explanation/triggers.md how occurrences are computed.
"""
