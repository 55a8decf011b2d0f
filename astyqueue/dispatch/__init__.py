"""Runs handlers for messages: in threads, on an event loop or in processes, with outcomes settled in batches.

- `builder`, `dispatcher`: what users have. `asyncio_dispatcher` is for tasks of an event loop, around the same.
- `served_queues`: its queues, also those that join and leave. `queue_patterns` finds these.
- `subscription`: one queue, and the limits of its deliveries in `flow_control`.
- `claim_loop`: the steps that claim for one queue. `step_loop`: a thread that carries out those of several.
- `handlers`: what is called for a message, and what is around it.
- `execution`: the deliveries that wait, the call of a handler, and its outcome.
- `running_executions`: the calls that are under way.
- `pools`: what runs handlers: `slots` are threads, an event loop is for coroutines, `processes` are children.
- `consumers`: which of the slots gets which message.
- `handler_monitor`: the thread for timeouts, threads that died, and the end.
- `presence`: the reports to the store. `workload`: what they see of the dispatcher.
- `worker_log`: the log lines. `stacks`: the stacks in them.

The way of a message, by thread:

1. astyqueue:claim:N, at most four for all queues: `StepLoop` resumes the `ClaimLoop` of a queue, whose claimer asks
   `Subscription` for credit, claims that many messages, and gives it the deliveries. They wait in a line for each kind
   of handler. The same thread renews leases and commits outcomes.
2. astyqueue:handle:N, the slots: one pulls a delivery from the queue whose turn it is, and `HandlerExecutions` begins
   it, finds its handler and calls it. Coroutines begin on astyqueue:loop, or in the loop of the caller; a child process
   is called by a slot, which waits for it.
3. The thread in which the handler ends decides the outcome and puts it into the settle buffer of the claimer, which
   wakes the thread of 1.
4. astyqueue:monitor gives up handlers past their timeout, replaces threads that died, and drains at the end.
   astyqueue:presence reports, astyqueue:queues looks for queues of patterns, astyqueue:watchdog at the event loop.

docs/how-to/handlers.md has the kinds of handlers, docs/how-to/many-queues.md the turns of queues; decisions 0039, 0047,
0048 and 0057 have the reasons and figures. Names are imported when they are first used: a child process that runs
handlers needs no dispatcher.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from astyqueue.dispatch.dispatcher import Dispatcher

__all__ = ["Dispatcher"]

_HOMES: Final = {"Dispatcher": "dispatcher"}

__getattr__ = lazy_imports(globals(), _HOMES)
