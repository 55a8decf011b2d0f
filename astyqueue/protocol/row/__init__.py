"""A process's cached snapshot of one row, and conditional commits against it: optimistic concurrency.

- `snapshot`: what one process remembers of a row, valid while its header is the same. `timer_index`: its timers, what
  they hide and when they are due. `cursors`: how far its scans have read.
- `header_commit`: a batch with expectations, and the commit loop: plan, commit, and plan again if the row has changed.
  `unanswered_commits`: those without an answer, which may be carried out late.
- `bounded_reads`, `paging`: read long rows in parts, so that a read never passes more tombstones than the store allows.
- `rescan`: finds messages stored behind all cursors, and lists them for a claim.

A claim loads the snapshot, plans, and commits against the header; a refused commit shows that another process changed
the row, so the snapshot is loaded again. docs/explanation/reading-a-row.md explains the order of the reads.
"""
