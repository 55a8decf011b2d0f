"""Schedules: making and changing them, and firing each slot once.

- `schedule_commands`: creates schedules, and does what operators ask: pause, resume, run now, backfill, remove.
- `schedule_commit`: changes one schedule, by a header commit of its home row. `read`: the schedules of home rows.
- `policies`: which slots of a schedule are due, and what misfire and overlap send or skip for them; no I/O.
- `fire`: one commit fires the next slots of many schedules and inserts their messages into the same row.

A schedule is one column of its home row. The message of a slot and the record that the slot was fired are in one
commit, so that a slot is fired once also when the process crashes. docs/how-to/schedules.md shows the policies,
docs/explanation/triggers.md how slots are computed.
"""
