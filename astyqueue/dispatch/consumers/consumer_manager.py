"""Hands the claimed messages of one queue that wait in this process to the consumers that pull them.

The manager wakes a consumer only when it has seen a message that this consumer may take, and wakes one for each such
message. A consumer that was woken, or got a message, stays notified and pulls again without being woken; when it gets
nothing, it sleeps, behind those that sleep already.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from astyqueue.dispatch.consumers.consumer_states import NOTIFIED, REMOVED, Browsers, Consumer, Counters, Members
from astyqueue.dispatch.consumers.matching import Matcher
from astyqueue.dispatch.consumers.ready_buffer import REJECTIONS, Ready
from astyqueue.units import NEVER
from astyqueue.waiting import BargingLock

T = TypeVar("T")
Calls = list[Callable[[], None]]


class _Guarded(Generic[T]):
    """A matcher and its lock. What is to be called for a change is collected, and called without the lock."""

    def __init__(self, matcher: Matcher[T], on_expired: Callable[[list[Ready[T]]], None] | None) -> None:
        self.lock = BargingLock()
        self._matcher = matcher
        self._buffer = matcher.buffer
        self._on_expired = on_expired

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """The lock; on leaving, what was collected is called without it."""
        with self.lock:
            yield
            calls = self.collected()
        for call in calls:
            call()

    def collected(self) -> Calls:
        """What is to be called; nothing is collected any more."""
        calls = self._matcher.calls
        if expired := self._buffer.expired:
            self._buffer.expired = []
            if self._on_expired is not None:
                calls.append(functools.partial(self._on_expired, expired))
        if calls:
            self._matcher.calls = []
        return calls

    def pull_usual(self, consumer: Consumer[T]) -> Ready[T] | None:
        """A message for a consumer without credit that comes by itself, if there is one lane; else None.

        No function is called under the lock, so that the interpreter does not pass to another thread meanwhile, which
        would wait for the lock.
        """
        matcher, buffer, consumers = self._matcher, self._buffer, self._matcher.consumers
        with self.lock:
            lane = buffer.only
            if lane is None or not lane.messages or consumer.state is not NOTIFIED or not consumer.unlimited:
                return None
            if consumer.woken_for is not None or matcher.short or not consumers.of_one_priority:
                return None
            ready = lane.messages[0]
            if ready.expires != NEVER or matcher.age is not None:
                return None
            del lane.messages[0]
            ready.lane = None
            ready.holder = consumer
        consumer.delivered += 1
        consumer.bytes_delivered += ready.size
        return ready


class ConsumerManager(Generic[T]):
    """The consumers of one queue in this process, and the claimed messages that wait for them. Safe from any thread.

    It has no thread, does no I/O, and calls wake-ups after its lock is released.
    """

    def __init__(
        self,
        now: Callable[[], int],
        *,
        bound: int | None = None,
        live: int | None = None,
        age: int | None = None,
        running: int | None = None,
        on_expired: Callable[[list[Ready[T]]], None] | None = None,
    ) -> None:
        """`now` is a clock in microseconds, the one that `expires` of messages is measured by.

        At most `bound` messages wait; `put` returns the oldest ones above that. At most `live` consumers get messages,
        the others stand by. With `age` (microseconds), a consumer that waited so for a message gets the next one before
        those of higher priorities. At most `running` messages are held at a time: each until `ended`, its release, or
        its consumer's removal. `on_expired` gets messages that expired while they waited.
        """
        self._now = now
        self._bound = bound
        self._matcher: Matcher[T] = Matcher(now, age, running)
        self._guarded: _Guarded[T] = _Guarded(self._matcher, on_expired)
        self._lock = self._guarded.lock
        self._buffer = self._matcher.buffer
        self._consumers = self._matcher.consumers
        self._limit = self._matcher.limit
        self._browsers: Browsers[T] = Browsers(self._matcher.count_wakeup)
        self._members: Members[T] = Members(live)

    def __len__(self) -> int:
        """The number of waiting messages."""
        return self._buffer.waiting

    def __repr__(self) -> str:
        """The numbers of waiting messages and of consumers."""
        return f"<ConsumerManager: {len(self)} waiting, {len(self._members)} consumers, {len(self._browsers)} browsers>"

    @property
    def asleep(self) -> int:
        """The number of consumers, without browsers, that sleep until they are woken."""
        return self._consumers.asleep

    @property
    def places(self) -> int | None:
        """How many more messages may be held at a time, if that has a limit."""
        return self._limit.places

    @property
    def oldest(self) -> Ready[T] | None:
        """The waiting message that came first."""
        with self._lock:
            return self._buffer.oldest()

    @property
    def counters(self) -> Counters:
        """What happened to all consumers, removed ones and browsers included."""
        with self._lock:
            return self._members.counters(self._browsers)

    def add_consumer(self, consumer: Consumer[T], *, follow_credit: bool = True) -> None:
        """Add a consumer. It counts as interested from its first `pull` or `refresh`.

        With `follow_credit`, each reported change of its credit is followed by a `refresh`.
        """
        if follow_credit:
            consumer.follow_credit(self.refresh)
        with self._guarded.changing():
            if consumer.browser:
                self._browsers.add(consumer, self._buffer.in_order())
                return
            self._members.add(consumer)
            if self._consumers.add(consumer):
                self._select()

    def remove_consumer(self, consumer: Consumer[T]) -> None:
        """Remove a consumer for good: it gets nothing afterwards.

        What it holds stays its own until released, and does not count as held any more.
        """
        consumer.unfollow_credit()
        with self._guarded.changing():
            if consumer.browser:
                self._browsers.remove(consumer)
                self._members.remove(consumer)
            elif consumer in self._members:
                self._members.remove(consumer)
                if self._matcher.remove(consumer):
                    self._select()
                for promoted in self._members.promoted():
                    self._matcher.enter(promoted)

    def _select(self) -> None:
        """Follow a change of selectors: all lanes are new, and no consumer counts as on its way to one."""
        self._limit.coming = 0
        for consumer in self._members:
            consumer.woken_for = None
        self._buffer.select(self._consumers.selectors)
        self._matcher.retry_short()
        self._matcher.wake(self._buffer.lanes)

    def set_priority(self, consumer: Consumer[T], priority: int) -> None:
        """Change the priority of a consumer."""
        with self._guarded.changing():
            if consumer in self._members and priority != consumer.priority:
                self._consumers.set_priority(consumer, priority)
                self._matcher.retry_short()
                self._matcher.wake(self._matcher.lanes_of(consumer))

    def refresh(self, consumer: Consumer[T]) -> None:
        """Look at a consumer's credit again: with credit it is woken for what it may take, without it is withdrawn."""
        with self._guarded.changing():
            has_credit = consumer.asked = consumer.has_credit
            if consumer.browser:
                self._browsers.refresh(consumer, self._now(), interested=has_credit)
            elif consumer in self._members and not has_credit:
                self._matcher.withdraw(consumer)
            elif consumer in self._members and consumer.live:
                self._matcher.enter(consumer)

    def suspended(self, since: int) -> list[Consumer[T]]:
        """The consumers that were interested once, and have not been since that moment or longer."""
        with self._lock:
            return [one for one in (*self._members, *self._browsers) if one.is_suspended(since)]

    def recheck(self) -> None:
        """Wake consumers that have waited for `age`, or were short of bytes for a message that expired.

        Call this about once a second if there is an `age`, or credit in bytes: time alone wakes no consumer.
        """
        with self._guarded.changing():
            self._matcher.recheck()

    def put(self, messages: Iterable[Ready[T]]) -> list[Ready[T]]:
        """Add messages at the end, and wake a consumer for each; returns the oldest ones above the bound, removed."""
        messages = [*messages]
        displaced: list[Ready[T]] = []
        with self._lock:
            lanes = self._buffer.add(messages)
            if self._browsers.unseen:
                self._browsers.show(messages, len(self))
            if self._bound is not None and (displaced := self._buffer.displace(self._bound)):
                self._matcher.retry_short()
            if self._consumers.asleep:
                self._matcher.wake(lanes)
            calls = self._guarded.collected() if self._matcher.calls or self._buffer.expired else ()
        for call in calls:
            call()
        return displaced

    def pull(self, consumer: Consumer[T], *, ended: bool = False) -> Ready[T] | None:
        """The next message that this consumer may take now, which it then holds; None if there is none.

        After None a consumer with credit counts as asleep, and is woken; one without counts as not interested. `ended`:
        the message before has ended, and the next one may run in its place.
        """
        if self._limit.most is None and (ready := self._guarded.pull_usual(consumer)) is not None:
            return ready
        with self._lock:
            if ended:
                self._limit.end(consumer)
            ready = self._pull(consumer)
            if ended and ready is None:
                self._matcher.wake(self._buffer.lanes)
            calls = self._guarded.collected()
        for call in calls:
            call()
        return ready

    def _pull(self, consumer: Consumer[T]) -> Ready[T] | None:
        if consumer.state is REMOVED:
            return None
        if consumer.browser:
            return self._browsers.pull(consumer, self._now())
        consumer.asked = True
        return self._matcher.pull(consumer) if consumer.live else None

    def pull_quickly(self, consumer: Consumer[T]) -> Ready[T] | None:
        """As `pull` after a message that has ended, in the usual case; None in other cases: `pull` has to follow."""
        return self._guarded.pull_usual(consumer) if self._limit.most is None else self._pull_in_place(consumer)

    def _pull_in_place(self, consumer: Consumer[T]) -> Ready[T] | None:
        """One more message in the place of one that has ended, if their number has a limit.

        If the previous message has not ended, its consumer may next pull from another queue; this queue then wakes
        another consumer for the place.
        """
        with self._guarded.changing():
            if consumer.state is not NOTIFIED or not consumer.live or not self._limit.end(consumer):
                return None
            if (ready := self._matcher.pull(consumer)) is None:
                self._matcher.wake(self._buffer.lanes)
            return ready

    def ended(self, consumer: Consumer[T]) -> None:
        """A message that this consumer held has ended: if `running` is limited, another one may begin."""
        if self._limit.most is None:
            return
        with self._guarded.changing():
            if self._limit.end(consumer):
                self._matcher.wake(self._buffer.lanes)

    def release(self, consumer: Consumer[T], ready: Ready[T], *, reject: bool = False) -> bool:
        """Put a message back where it was, for any consumer; with `reject`, not for this one.

        False, and nothing done, if this consumer does not hold it: it was removed, or released before. Its credit is
        for the owner to give back. The rejections of 64 waiting messages are known, by the last 16 consumers each.
        """
        with self._guarded.changing():
            held = ready.holder is consumer
            if held:
                self._limit.end(consumer)
                if reject:
                    ready.rejected_by = (*ready.rejected_by, consumer.number)[-REJECTIONS:]
                self._buffer.put_back(ready)
                self._matcher.retry_short()
                self._matcher.wake(self._buffer.lanes)
        return held

    def remove(self, ready: Ready[T]) -> bool:
        """Take a message out, also from the consumer that holds it, whose `release` does nothing then.

        False if it is not here: removed before, or expired.
        """
        with self._guarded.changing():
            held = ready.holder is not None
            ready.holder = None
            removed = held or self._buffer.remove(ready)
            if removed and not held:
                self._matcher.retry_short()
        return removed

    def take_back(self) -> list[Ready[T]]:
        """Remove and return all waiting messages, in order, so that another process can claim them."""
        with self._guarded.changing():
            for consumer in self._members:
                if consumer.kept is not None:
                    self._matcher.forget_wakeup(consumer)
            messages = self._buffer.displace(0)
            self._matcher.retry_short()
        return messages
