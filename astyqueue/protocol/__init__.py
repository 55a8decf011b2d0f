"""The protocol: a queue stored in rows of columns, as steps without I/O.

An operation is a generator that yields requests (`steps.Read`, `Send`, `Commit`) and returns its result; a runner
carries the requests out for a thread, an asyncio task or a test. Steps take the time and random numbers from a
`steps.Client` and touch one row at a time.

- `layout`: the columns of a row: messages, timers that hide them, dead letters, unique keys, schedules, and the header.
- `coordination`: hints between processes: the doorbell, row locks, store time. Losing one costs delay, not safety.
- `row`: a process's cached snapshot of a row (`RowSnapshot`), bounded reads of it, and conditional commits.
- `sending`: blind inserts, unique keys, idempotent sends.
- `settling`: ack, release, extend and reject of messages under a lease.
- `claiming`: finding due messages, in an order of reads that is safe, and leasing them in one commit.
- `scheduling`: schedules and their policies, and firing each occurrence once.
- `history`: the append-only log of events beside the queue.
- `admin`: the operations of operators: browse, explain, redrive, delete, settings, health.

Each imports only from those above it in this list. docs/explanation/reading-a-row.md explains why a claim leases a
message once, docs/explanation/layout.md the contents of the store, and docs/explanation/promises.md the guarantees.
"""
