"""A web service on asyncio that sends tasks, and the worker that runs them: one module for both.

`uvicorn examples.web_service_async:service` serves it, `astyqueue worker examples.web_service_async:app` runs its tasks
in another process, on the store that ASTYQUEUE_URL names. This program makes a request, and works in its own loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping

from astyqueue import aio

app = aio.App()
finished = asyncio.Event()
Message = MutableMapping[str, object]


@app.task
def welcome(address: str) -> None:
    """A plain function runs in a thread, and sends other tasks by calls that block."""
    print(f"welcomed {address}")
    ask.blocking.send(address)


@app.task(timeout="30s")
async def ask(address: str) -> None:
    """An `async def` task runs on the event loop, and would send others with `await`."""
    print(f"asked {address} what is missing")
    finished.set()


async def service(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """An ASGI application: `GET /ada@example.org` answers 202 and the id of a message, once that is stored."""
    if scope["type"] == "lifespan":
        for what in ("startup", "shutdown"):
            await receive()
            await (app.close() if what == "shutdown" else app.open())
            await send({"type": f"lifespan.{what}.complete"})
        return
    sent = await welcome.send(str(scope["path"]).strip("/"))
    await send({"type": "http.response.start", "status": 202, "headers": []})
    await send({"type": "http.response.body", "body": str(sent.id).encode()})


async def main() -> None:
    """Make a request as a server would, and run the tasks that it leads to."""
    app.url = "sqlite:///web_service.db"
    answers = asyncio.Queue[Message]()
    async with app:
        await service({"type": "http", "path": "/ada@example.org"}, answers.get, answers.put)
        print(f"answered {answers.get_nowait()['status']}")
        async with await app.worker():
            await finished.wait()


if __name__ == "__main__":
    asyncio.run(main())
