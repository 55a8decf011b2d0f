"""What a dispatcher reports about itself to its store, and how it notices that it no longer works.

- `worker_presence`: writes a report with each heartbeat, and follows the commands that it finds in the store.
- `stall_watch`: notices that work is due, and that for a long time no handler began or ended.

The dispatcher makes a `WorkerPresence` and starts its thread, astyqueue:presence, after all others; `run` does all of
the work there. With each heartbeat it reads `DispatcherWorkload` (queues, handlers that run, threads held), writes the
report and reads the commands, once for each store; four times in `stall_after` it calls `StallWatch.look`, which peeks
at two queues at most. It takes no part in claiming, so it can report that the claims have stopped. Signals, probes and
operators' commands come to `quiet`, `resume`, `log_stacks`, `live` and `ready` from other threads.

The report itself is `astyqueue.model.presence`, and its row `astyqueue.protocol.coordination.presence`; `astyqueue
workers` and `doctor` read it. docs/how-to/workers.md explains stalls and probes, docs/decisions/0044 why all processes
of a store report in one row.
"""
