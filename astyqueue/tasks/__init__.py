"""Functions as tasks: sends calls of them to a queue, and runs them in workers.

- `app`, `task`: what users have: `App`, `@app.task` and `Task.send`, for threads. `awaited`: the same for asyncio.
- `base_app`, `base_task`: what these have in common: the tasks, queues and store of an app; the function of a task, the
  name in its messages, and the handler that runs it.
- `signature`: a call: checked where it is sent, carried as JSON, made where it runs. `batched_call`: one of a batch.
- `schedules`: schedules that an app declares, and when they are stored.
- `app_worker`: the options of a worker, and what it gives to the builder of a dispatcher.

Sending, in the thread of the caller: `Task.send` has `signature` check the arguments, makes a message whose header
`task` has the name, and sends it to the task's queue, which `AppRuntime.open` opens at first. Running: `App.worker`
calls `app_worker.serve`, which gives each queue to a `DispatcherBuilder`, with `handler_of` as the factory of its
handlers, and stores the declared schedules. A slot of the dispatcher then gets `BaseTask.handler`, which reads the
arguments and calls the function; `current_delivery()` is the delivery of the call in that thread. A worker runs `async
def` tasks on one event loop, and tasks of kind "process" in children, which import the function by its module.

docs/how-to/handlers.md has the kinds of tasks, docs/how-to/schedules.md schedules, docs/how-to/follow-ups.md calls that
are sent with an ack; README.md begins with an app.
"""

from __future__ import annotations

from astyqueue.tasks.app import App
from astyqueue.tasks.base_task import current_delivery
from astyqueue.tasks.batched_call import BatchedCall
from astyqueue.tasks.signature import Call
from astyqueue.tasks.task import Sending, Task

__all__ = ["App", "BatchedCall", "Call", "Sending", "Task", "current_delivery"]
