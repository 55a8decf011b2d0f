"""The operations of operators on a queue: browse, explain, redrive, delete, settings, health.

- `browse`: messages without claiming them: one by id, the next ones, counts by state.
- `explain`, `health`: read the facts on one message or on a queue; `astyqueue.model` makes sentences of them.
- `dead_letters`: lists dead letters, redrives them with their unique keys, and purges them.
- `delete`: deletes messages in any state, rows and whole queues, and frees unique keys.
- `settings`: the stored settings of a queue, and the list of queues.

What only reads is safe at any time, and may be out of date when it returns. What changes a row does so by ordinary
header commits, as claims do, so it needs no pause of the workers. `astyqueue.queue.admin` calls these steps and writes
the history. docs/explanation/life-cycle.md has the states of a message.
"""
