"""The public classes (`MessageQueue`, builder, connection, delivery) and the parts that run a queue in one process.

A `MessageQueue` (or `aio.MessageQueue`) wraps one `runtime.QueueRuntime`, which wires the parts that all threads share:

- `producing`: encodes messages, places them into rows and inserts them.
- `row_sharing`: decides which row to visit next, polls headers, reads the doorbell, shares rows with other processes.
- `consuming`: one `Claimer` for all threads and tasks that wait. The first of them leads: it claims and settles for
  all, in one commit where possible. `SettleBuffer` has the leases of this process and the outcomes to commit.
- `admin`: the step functions behind `peek`, `explain`, `redrive`, `delete` and schedules, each for a `QueueRuntime`.

All of it is steps, as in `astyqueue.protocol`, run by the thread or task that called. docs/explanation/sharing-rows.md
says how processes share the rows of a queue.
"""
