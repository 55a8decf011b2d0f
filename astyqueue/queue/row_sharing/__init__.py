"""Decides which row this process visits next and how processes share rows: affects cost and delay, never safety.

- `row_scheduler`: the row with the earliest moment of its next scan comes next. It has a `row_state` for each row, and
  a `deadline_heap` of those moments.
- `idle_queues`: whether the queue is in use or idle, and one watch of the activity log for all idle queues.
- `poll_plan`: when each row is polled next.
- `header_poller`: reads many headers in one request: who owns each row, and whether it changed. It applies
  `row_lease`, by which processes divide the rows, and requests a row from its owner when this process has too few.
- `paced_doorbell`: signals sends to other processes, and reads their signals, neither more often than is useful.
- `row_locks`, `external_lock`: claims only under the lock of a row, where the queue has locks.
- `rescans`: which row to rescan next for messages that landed late.

Sends, claims and settles report to the scheduler what they did to a row, so that it knows when to visit it again.
docs/explanation/sharing-rows.md explains it, docs/how-to/row-locks.md the locks.
"""
