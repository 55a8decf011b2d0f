"""Finding messages that are due, and claiming them under a lease.

- `scan`: reads a row in an order that makes the answer safe (header, timers, messages, dead columns), and finds the
  messages that could be claimed now.
- `selection`: which of these a claim takes, how they share timers, and which become dead letters instead; no I/O.
- `claim`: the commit. It leases what was selected, joins the settles that wait for the row, and is planned anew if the
  store refuses it because another process changed the header.

The leader of a process's claimer runs `claim` with a `ClaimRequest` (how many, for how long) and the row's snapshot. It
gets a `ClaimResult`: the leased messages, those settled or buried beside them, and whether more are due.
docs/explanation/reading-a-row.md explains the order of the reads and the late scans.
"""
