"""Lock managers as users might hand them in: one that does what it should, and some that do not."""

from __future__ import annotations

import threading

from astyqueue.errors import Busy
from astyqueue.queue.options import DEFAULT_OPTIONS, ClientOptions, with_lock

TIMEOUT = "5s"


class Shelf:
    """Works, for all processes that share it."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.released: list[str] = []
        self._changed = threading.Condition()

    def acquire(self, row: str) -> bool:
        with self._changed:
            free = row not in self.taken
            self.taken.add(row)
            return free

    def release(self, row: str) -> None:
        with self._changed:
            self.taken.discard(row)
            self.released.append(row)
            self._changed.notify_all()

    def wait_until_free(self) -> None:
        """A row is let go of by another thread."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self.taken, 10)


class Telling(Shelf):
    """Raises Busy where others say False."""

    def acquire(self, row: str) -> bool:
        if not super().acquire(row):
            raise Busy(row)
        return True


class Yes(Shelf):
    """Grants every request."""

    def acquire(self, row: str) -> bool:
        del row
        return True


class No(Shelf):
    """Denies every request."""

    def acquire(self, row: str) -> bool:
        del row
        return False


class Broken(Shelf):
    """Fails always."""

    def acquire(self, row: str) -> bool:
        message = f"no connection for {row}"
        raise ConnectionError(message)


class Mumbling(Shelf):
    """Says neither yes nor no."""

    def acquire(self, row: str) -> bool:
        super().acquire(row)
        return None  # type: ignore[return-value]  # as who forgets to return something


class Silent(Shelf):
    """Answers nothing until a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.done = threading.Event()

    def acquire(self, row: str) -> bool:
        self.asked.set()
        assert self.answers.wait(30)
        return super().acquire(row)

    def release(self, row: str) -> None:
        super().release(row)
        self.done.set()


class Locks:
    """The three locks of a queue's rows, by name, for several processes."""

    def __init__(self) -> None:
        self.shelf = Shelf()

    def client_options(self, name: str, timeout: str = TIMEOUT) -> ClientOptions:
        return with_lock(DEFAULT_OPTIONS, self.shelf if name == "manager" else name, timeout)
