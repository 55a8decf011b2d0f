"""Apps and tasks for asyncio, which `astyqueue.aio` names; written by `make aio`, all but the open queues of an app."""
