"""The layout of the store: rows, columns, and their values.

- `rows`: the rows of a queue (the ring of time, home rows, rows for settings and the doorbell), and the row of each
  message.
- `columns`: the types and states of columns, and the encoding of headers, timers and dead columns.
- `unique_key`: the columns that change when a message is deleted: its key is freed, or a removed mark is left.
- `schedule_column`: a schedule as a line of JSON, followed by the body of its messages.

Every value begins with a format byte, and a value that a process cannot read raises Undecodable. Change a layout only
with a decision in docs/decisions, and keep older readers working: tests/upgrade runs two releases on one store.
docs/explanation/layout.md describes all of it.
"""
