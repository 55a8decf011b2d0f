"""Hints between processes: the doorbell, row locks, the store's time. Losing any of it costs delay, never safety.

- `activity_log`: notices that name queues in which something happened, for processes in which they are idle.
- `doorbell`: two cells of a queue: senders name the rows they sent to, and a process asks for a row that is kept busy.
- `row_lock`: what decides which process claims from a row first: the guard, or a lock made of columns of the row.
- `store_time`: the offset between the store's clock and this process's, measured by the write time of a commit.
- `permits`: which processes may claim from a queue that limits their number, and which stand by.
- `presence`: what each process that works on a store reports about itself, and commands of operators to it.

Each is a column that processes overwrite, or that expires. No claim and no settle depends on any of them: a commit is
guarded by the header of its row, whichever process has its lock. docs/explanation/sharing-rows.md explains how
processes use them, docs/how-to/row-locks.md how to choose a lock.
"""
