"""Whether a consumer can accept a message now: its credit in messages and bytes, its pause and its permit."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Credit:
    """The right of a consumer to get messages, as one boolean, `interested`, and what it is computed from.

    A consumer is interested while it is permitted, not paused, and below both limits. A message that is larger than the
    limit of bytes is still taken while no byte is used. Safe from any thread.
    """

    def __init__(self, messages: int = 0, size: int = 0, *, permitted: bool = True) -> None:
        """At most `messages` messages, of at most `size` bytes together, at a time; 0: no limit."""
        self.interested = permitted
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._messages = messages
        self._size = size
        self._used_messages = 0
        self._used_size = 0
        self._short_of = 0
        self._paused = False
        self._permitted = permitted

    def __repr__(self) -> str:
        """The use of both limits, and whether it is interested."""
        used = (
            f"{self._used_messages} of {self._messages or 'any'} messages, {self._used_size} of {self._size or 'any'} B"
        )
        return f"<Credit: {used}, {'interested' if self.interested else 'not interested'}>"

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this after each change of `interested`, except by `take` and `fits`, whose callers see it.

        The thread that made the change calls it, without a lock; a listener reads `interested` itself.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling this listener; a thread that is reporting a change may still call it once."""
        with self._lock:
            self._listeners = tuple(other for other in self._listeners if other != listener)

    def take(self, size: int) -> bool:
        """Use the credit of one message of this size; False, and nothing used, if there is not enough."""
        with self._lock:
            if not self._fits(size):
                return False
            self._used_messages += 1
            self._used_size += size
            self._short_of = 0
            self.interested = self._computed()
            return True

    def fits(self, size: int) -> bool:
        """Whether the credit suffices for a message of this size.

        If only bytes are missing, interest is off until there are enough for this message, or `forget_need` is called.
        """
        with self._lock:
            return self._fits(size)

    def _fits(self, size: int) -> bool:
        if not self.interested:
            return False
        if self._size and self._used_size and self._used_size + size > self._size:
            self._short_of = size
            self.interested = False
            return False
        return True

    def forget_need(self) -> None:
        """Stop waiting for credit of a certain size: the message that was too large went elsewhere."""
        with self._lock:
            self._short_of = 0
            changed = self._compute()
        self._report(changed=changed)

    def give_back(self, size: int = 0, *, silently: bool = False) -> None:
        """Return the credit of one message of this size. `silently`: its consumer pulls next and needs no report."""
        with self._lock:
            self._used_messages -= 1
            self._used_size -= size
            changed = self._compute()
        self._report(changed=changed and not silently)

    def pause(self) -> None:
        """Have no interest until `resume`."""
        self._set(paused=True, permitted=self._permitted)

    def resume(self) -> None:
        """End a pause."""
        self._set(paused=False, permitted=self._permitted)

    def permit(self, *, permitted: bool) -> None:
        """Set whether a limit outside of this consumer, such as a rate, lets it work."""
        self._set(paused=self._paused, permitted=permitted)

    def _set(self, *, paused: bool, permitted: bool) -> None:
        with self._lock:
            self._paused, self._permitted = paused, permitted
            changed = self._compute()
        self._report(changed=changed)

    def _compute(self) -> bool:
        """Compute the interest; returns whether it changed."""
        before, self.interested = self.interested, self._computed()
        return before != self.interested

    def _computed(self) -> bool:
        if self._paused or not self._permitted or (self._messages and self._used_messages >= self._messages):
            return False
        return not (self._size and self._used_size) or self._used_size + max(1, self._short_of) <= self._size

    def _report(self, *, changed: bool) -> None:
        if changed:
            for listener in self._listeners:
                listener()


class RunningLimit:
    """How many messages of a queue its consumers hold, if that has a limit: `most` at a time, or None.

    `coming` is the number of consumers that were woken for a message and have not pulled yet: a place is kept for each.
    Not safe from several threads.
    """

    __slots__ = ("_held", "_running", "coming", "most")

    def __init__(self, most: int | None) -> None:
        """No message is held yet; with `most` None there is no limit."""
        self.most = most
        self.coming = 0
        self._running = 0
        self._held: dict[object, int] = {}

    @property
    def reached(self) -> bool:
        """Whether no consumer may take a message, besides those that were woken for one."""
        return self.most is not None and self._running + self.coming >= self.most

    @property
    def places(self) -> int | None:
        """How many more messages may be held, those included that consumers are on their way for."""
        return None if self.most is None else max(0, self.most - self._running)

    def take(self, consumer: object) -> None:
        """Count one more message that a consumer holds."""
        if self.most is not None:
            self._running += 1
            self._held[consumer] = self._held.get(consumer, 0) + 1

    def end(self, consumer: object) -> bool:
        """Count one message less that a consumer holds; False if it is not known to hold any."""
        if not (held := self._held.pop(consumer, 0)):
            return False
        self._running -= 1
        if held > 1:
            self._held[consumer] = held - 1
        return True

    def forget(self, consumer: object) -> bool:
        """Count none of the messages that a consumer holds; False if it is not known to hold any."""
        held = self._held.pop(consumer, 0)
        self._running -= held
        return held > 0
