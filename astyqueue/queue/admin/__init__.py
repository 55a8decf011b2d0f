"""What operators do with a queue, as step functions: the classes for threads and for tasks only run them.

- `inspection`: reads: get, find, peek, counts, explain, history, and rescan, which lists missed messages.
- `receipts`: settles deliveries of any process: ack, release, extend, reject.
- `deletion`: deletes messages with what recurs: delete, clear, drop.
- `dead_letters`: lists them by a filter, redrives and purges them in bounded steps.
- `schedules`: creates, changes and removes schedules, each in the home row of its name.

Each takes the `QueueRuntime` of its queue, checks the arguments, runs steps of `astyqueue.protocol.admin` or
`scheduling`, writes the events of the history, and reports the changed rows to the claimer. `queue/queue_admin.py` and
`aio/queue_admin.py` have one method for each. docs/explanation/life-cycle.md has the states that they change.
"""
