"""Claims, delivers and settles for all threads and tasks of this process.

A thread that receives joins the `waiters` of its queue and takes part in `leader_follower`: the first in line leads.
The leader of the `claimer` asks the row scheduler for a row, and its `row_worker` visits it:

1. `firing`: fires the due occurrences of the schedules in the row.
2. It claims due messages for the waiters with credit; `at_most_once` removes those that are delivered without a lease.
3. `waiters`: gives the deliveries to the waiters, first come, first served, and wakes them.

A thread that settles puts the outcome into the `settle_buffer`; the leader commits the outcomes of one row together,
and renews the leases in `lease_table` when their time comes. Only the leader touches leases and snapshots, so these
need no locks. docs/explanation/sharing-rows.md says how processes share the rows, docs/explanation/life-cycle.md what
outcomes do.
"""
