"""Apps and tasks for asyncio, which `astyqueue.aio` names; written by `make aio`, all but what is said below.

- `app`, `task`: the twins of `astyqueue.tasks.app` and `task`, with coroutines for calls that use the store. Never edit
  them by hand: tools/async_classes/twins.py has what differs.
- `queues`: the open queues of an app, for tasks; written by hand.
- `running_task`: what a running `async def` task works on: its delivery, or the calls of a batch; written by hand.

An `aio.App` has an app for threads inside (`app.blocking`), with the same tasks, schedules and connection. What may
block at the first use, opening the store and storing schedules, runs in a thread by `asyncio.to_thread`; a send runs
in the task that awaits it, and calls a store without coroutines in threads. `await app.worker()` is a dispatcher for
asyncio: its claims and renewals stay in threads, and `async def` tasks run in the event loop of the caller.

No module of `astyqueue.tasks` imports this package at its start: it brings asyncio, which programs for threads do
without. docs/how-to/async-services.md shows a service, docs/decisions/0050 says why
both are one app.
"""
