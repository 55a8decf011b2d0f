"""The reads and writes of a store: CQL statements, encoding, retries, and speculative execution.

- `queries`: the statements, prepared once per session, and the driver's requests for reads and batches.
- `codec`: names of columns in Cassandra's encoding, and back.
- `client`: the verbs of the port as steps over one session. `attempt`: one request, and when it is sent again.
- `speculation`: when a request that waits for its answer is sent to a second node too.
- `loop_requests`: the same requests for tasks of an event loop, which no thread waits for.

A read that got no answer may be repeated; a write of unknown outcome is not, because only the steps above can read back
what became of it. docs/decisions/0016-a-read-waits-50-ms-at-most-for-a-silent-replica.md,
docs/decisions/0027-speculative-requests-have-a-budget.md and docs/decisions/0054-tasks-use-the-drivers-futures.md have
the reasons, docs/explanation/layout.md what the requests read and write.
"""
