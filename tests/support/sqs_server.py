"""A server with the verbs of SQS on this machine, whose clock a test moves: moto, in a process of its own.

Run as a program it prints its port and reads lines from standard input: "advance SECONDS" moves its clock, "reset"
removes all queues. Each is answered by a line. It ends when its input does, so it never outlives its parent.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Self

from astyqueue.clock import SystemClock, instant
from astyqueue.units import SECOND


class SQSServer:
    """The server process; leaving the block ends it."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.sqs_server"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"http://127.0.0.1:{self._answer()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)

    def advance(self, seconds: int) -> None:
        """Let so many seconds pass by the clock of the server, at once. Real time passes too."""
        self._order(f"advance {seconds}")

    def reset(self) -> None:
        """Remove all queues."""
        self._order("reset")

    def _order(self, order: str) -> None:
        self._pipe(self._process.stdin).write(f"{order}\n")
        self._pipe(self._process.stdin).flush()
        if (answer := self._answer()) != "done":
            message = f"the server answered {answer!r}"
            raise RuntimeError(message)

    def _answer(self) -> str:
        answer = self._pipe(self._process.stdout).readline().strip()
        if not answer:
            message = f"the server ended with {self._process.wait()}"
            raise RuntimeError(message)
        return answer

    def _pipe(self, pipe: IO[str] | None) -> IO[str]:
        if pipe is None:
            message = "the server was started without this pipe"
            raise RuntimeError(message)
        return pipe


class MovedClock(SystemClock):
    """The clock of this machine, and as much further as it was moved."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead

    def naive_utc(self) -> datetime:
        """The time as moto reads it."""
        return instant(self.now()).replace(tzinfo=None)


def serve() -> None:
    """Serve until standard input ends."""
    import moto.core.utils  # noqa: PLC0415 - it takes a second, which only this process needs
    from moto.moto_api._internal.models import moto_api_backend  # noqa: PLC0415 - as above
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - as above
    from moto.sqs.models import Queue, SQSBackend  # noqa: PLC0415 - as above

    clock = MovedClock()
    moto.core.utils.utcnow = clock.naive_utc
    # Its own loops over a set that other threads change, and then answers a request with 500.
    Queue.pending_message_groups = property(_pending_message_groups)  # type: ignore[method-assign,assignment]  # a property
    SQSBackend.receive_message = _receiving_one_at_a_time(SQSBackend.receive_message)  # type: ignore[method-assign]
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _say(server.get_host_and_port()[1])
    for line in sys.stdin:
        order, _, seconds = line.strip().partition(" ")
        if order == "advance":
            clock.ahead += int(seconds) * SECOND
        else:
            moto_api_backend.reset()
        _say("done")
    server.stop()


def _pending_message_groups(queue: Any) -> set[str]:  # noqa: ANN401 - a queue of moto
    return {message.group_id for message in tuple(queue.pending_messages) if message.group_id is not None}


def _receiving_one_at_a_time(receive: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Receive a message in one thread alone: moto hides it only after other threads may have found it visible too."""
    from moto.core.utils import unix_time  # noqa: PLC0415 - as above

    lock = threading.Lock()

    def received(backend: Any, queue: str, count: int, wait: int, *others: Any) -> list[Any]:  # noqa: ANN401 - moto's
        until = unix_time() + wait
        while True:
            with lock:
                found = receive(backend, queue, count, 0, *others)
            if found or unix_time() >= until:
                return found
            backend.get_queue(queue).wait_for_messages(1)

    return received


def _say(answer: object) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
