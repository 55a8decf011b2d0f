"""The execution of deliveries: find the handler, call it, decide the outcome, settle, log.

- `waiting_lines`: the deliveries of a queue that wait, a line for each kind of handler.
- `delivery_execution`: one delivery in the thread of a slot. `batch_execution`: many in one call.
- `asyncio_execution`: coroutines, thousands at a time in one thread. `event_loop`: the loop they share, and the watch
  over a handler that keeps it busy.

A pool of `pools` takes a delivery out of its line and hands it to one of these. `running_executions` counts it until
its handler ends; the thread in which that happens decides the outcome, and hands it to the claimer to be committed.
docs/how-to/handlers.md shows the kinds of handlers; decisions 0039 and 0047 have the reasons.
"""
