"""Sends from this process: encoding, placement and unique keys.

- `producer`: checks messages, gives them ids and rows, and inserts them. `placement` decides the row.
- `unique`: messages with unique keys, in commits on their home rows.
- `bounded`: queues with `max_messages`: sends that refuse, wait, delete the oldest or go to the overflow queue.
- `spooled`: queues with a spool: messages go to the local disk, and a thread forwards them.
- `idempotent`, `replay`: messages that may have been sent before, of a caller or of a journal's records.
- `follow_ups`: what is sent when a delivery is acked.

A thread or task calls its queue, whose runtime has one producer: a `BoundedProducer` or a `SpooledProducer`. It
prepares the messages, runs the steps of `astyqueue.protocol.sending`, and reports the rows to the claimer of this
process and the doorbell. docs/how-to/keys.md and docs/how-to/kinds-of-queue.md say what to choose.
"""
