"""Which queues of a process are in use, and how all idle ones are watched: affects cost and delay, never safety.

A queue is *in use* for a minute after anything happened in it: its doorbell and headers are polled. Then it is *idle*:
nothing of it is read until a notice in the activity log names it, until one of its messages or timers falls due, which
this process knows, or until it has its turn to look for what it missed. The thread of one idle queue reads the log for
all of them while it rests.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from enum import Enum
from typing import Final
from weakref import WeakKeyDictionary, WeakSet, ref

from astyqueue.clock import Clock
from astyqueue.protocol.coordination.activity_log import KEPT, Notice, read_notices
from astyqueue.protocol.steps import Steps
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Rest, Wakeup

#: How long a queue is in use after something happened in it. Much longer than the ten seconds for which the notice of a
#: send stands for later ones of the same process: their messages are found by the polls of this time.
IN_USE: Final = 60 * SECOND
#: A queue that becomes idle polls all its rows, so notices from before this time say nothing new to it: one stands for
#: ten seconds, and clocks differ.
_BEFORE: Final = 15 * SECOND
#: The least pause between two reads of the log: for a minute after the start and after a notice, and later. The
#: multiple of the duration of a read keeps a distant store from being read all the time. It adds two seconds at most,
#: because the process may have been suspended during the read.
_PAUSE_AT_FIRST: Final = SECOND // 40
_PAUSE: Final = SECOND // 8
_COSTS: Final = 10
_LONGEST: Final = 2 * SECOND
#: How far behind the last read each read begins, and one read a second: for notices of slow writers and of processes
#: whose clocks are behind. One that can be read more than a second after its moment may be missed.
_OVERLAP: Final = SECOND // 4
_LONG_OVERLAP: Final = 2 * SECOND
_LONG_EVERY: Final = SECOND
#: The pause between two turns, whatever the number of queues.
_TURN: Final = 2 * SECOND
#: Queues that may be gone before the watch looks which of them are.
_FEW: Final = 16
#: A wall clock that was set by more than this makes every known moment of a queue come sooner or later.
_SET: Final = SECOND


class WakeReason(Enum):
    """Why an idle queue is woken."""

    NOTICE = "a notice names it"
    TURN = "a catch-up poll is due"
    GAP = "notices were missed, so all its rows are to be polled"


class QueueActivity:
    """Whether one queue is in use in this process.

    Any thread reports use (`used`); the watch wakes the queue, and its leader takes the reasons. The leader sets
    `idle`. `was_used`: a thread called `used` since then, however long ago. `turn`: the queue has its turn, and the
    leader has not made the catch-up poll yet, for want of credit. `must_poll_all`: the watch has missed notices, so the
    leader must poll every row.
    `last_traffic` is the time of the last send or claim here, or of the notice that woke the idle queue, in
    microseconds since 1970.
    """

    def __init__(self, queue: str, watch: ActivityWatch, clock: Clock) -> None:
        """Idle: nothing has happened yet that this process knows of."""
        self.queue = queue
        self.watch = watch
        self.idle = True
        self.was_used = False
        self.turn = False
        self.must_poll_all = False
        self.last_traffic = 0
        self.since = clock.now() - _BEFORE
        self.closed = False
        self.joined = False
        watch.opened(self)
        self._clock = clock
        self._until = BEGINNING
        self._lock = threading.Lock()
        self._wake_reasons: set[WakeReason] = set()

    def __repr__(self) -> str:
        """Whether it is idle."""
        return f"<QueueActivity of {self.queue}: {'idle' if self.idle else 'in use'}>"

    def traffic(self, now: int) -> None:
        """Report a send or a claim of this process, which knows the message."""
        self.last_traffic = now
        self._until = self._clock.monotonic() + IN_USE

    def used(self) -> None:
        """Report that something happened in the queue: it is in use for another minute."""
        self._until = self._clock.monotonic() + IN_USE
        self.was_used = True

    def forget(self) -> None:
        """Take the queue as unused for an hour, for a measurement or a test that cannot wait for that."""
        self._until, self.last_traffic, self.was_used = BEGINNING, 0, False
        self.watch.forget()

    @property
    def in_use(self) -> bool:
        """Whether something happened within the last minute."""
        return self._clock.monotonic() < self._until

    @property
    def unwatched(self) -> bool:
        """Whether nothing has to be followed now: the queue is idle, nothing happened in it, and it has no turn."""
        return self.idle and not self.turn and not self.in_use

    @property
    def was_woken(self) -> bool:
        """Whether the queue was woken since its leader last took the reasons."""
        return bool(self._wake_reasons)

    def wake(self, reason: WakeReason) -> None:
        """Note a reason to wake the queue, from any thread."""
        with self._lock:
            self._wake_reasons.add(reason)

    def take_wake_reasons(self) -> None:
        """Take note of why the queue was woken; only its leader does this, before it reads anything of the queue."""
        if not self.joined:
            self.watch.join(self)
        if not self._wake_reasons:
            return
        with self._lock:
            reasons, self._wake_reasons = self._wake_reasons, set()
        self.turn = self.turn or WakeReason.TURN in reasons
        if WakeReason.NOTICE in reasons:
            if self.idle:
                self.last_traffic = self._clock.now()
            self.used()
        self.must_poll_all = self.must_poll_all or WakeReason.GAP in reasons

    def begin_use(self) -> None:
        """The queue is in use again."""
        self.idle = self.was_used = False

    def begin_idling(self, now: int) -> None:
        """The queue is idle; all its rows are polled now, so only later notices matter, and those of the last 15 s."""
        self.was_used = False
        self.idle, self.must_poll_all, self.since = True, False, now - _BEFORE

    def rest(self, me: Wakeup, until: MonotonicUs) -> Steps[None]:
        """Rest as its leader, until the queue or its leader is woken, or until this moment."""
        yield from self.watch.rest(self, me, until)


class ActivityWatch:
    """Watches the activity log for the idle queues of a connection; safe to use from several threads and tasks.

    Of the leaders that rest, one watches: its rests end at the next read of the log, and it wakes the queues that are
    named there. When it has other work, another of them is woken to watch.

    It refers to queues weakly: a program may open one for each of its requests, and close none.
    """

    def __init__(self, clock: Clock) -> None:
        """Nothing is watched yet."""
        self._open: WeakSet[QueueActivity] = WeakSet()
        self._pid = os.getpid()
        self._clock = clock
        self._lock = threading.Lock()
        self._queues: dict[str, WeakKeyDictionary[QueueActivity, None]] = {}
        self._resting: dict[QueueActivity, Wakeup] = {}
        self._turns: deque[tuple[str, ref[QueueActivity]]] = deque()
        self._watching: QueueActivity | None = None
        self._read_to = clock.now() - _BEFORE
        self._named = clock.monotonic()
        self._next_read = BEGINNING
        self._next_long = BEGINNING
        self._next_turn = BEGINNING
        self._seen: set[Notice] = set()
        self._recent: deque[tuple[MonotonicUs, Notice]] = deque()
        self._shift = clock.now() - int(clock.monotonic())
        self._in_children: dict[int, ActivityWatch] = {}

    def __repr__(self) -> str:
        """How many queues it has, and how many of them rest."""
        return f"<ActivityWatch of {len(self._open)} queues, {len(self._resting)} of them idle>"

    def here(self) -> ActivityWatch:
        """This watch or, in a child process after a fork, a new one, the same for all threads."""
        if (pid := os.getpid()) == self._pid:
            return self
        return self._in_children.setdefault(pid, ActivityWatch(self._clock))

    @property
    def lap(self) -> int:
        """How long it takes until each queue had a turn, in microseconds, if all of them become idle."""
        return max(1, len(self._open)) * _TURN

    def forget(self) -> None:
        """Take the last notice as one of an hour ago."""
        self._named = BEGINNING

    def opened(self, activity: QueueActivity) -> None:
        """Count a queue that was opened; it is woken once it has joined."""
        with self._lock:
            self._open.add(activity)

    def join(self, activity: QueueActivity) -> None:
        """Start waking this queue's leader, and wake it now if a recent notice names the queue.

        That notice also stands for sends that come later. The leader does this before it first polls the queue: until
        it rests, another leader may read a notice.
        """
        with self._lock:
            if activity.closed:
                return
            activity.joined = True
            self._forget_gone()
            self._queues.setdefault(activity.queue, WeakKeyDictionary())[activity] = None
            self._turns.append((activity.queue, ref(activity)))
            if any(one.queue == activity.queue and one.moment >= activity.since for _, one in self._recent):
                activity.wake(WakeReason.NOTICE)

    def leave(self, activity: QueueActivity) -> None:
        """Forget a queue that was closed."""
        with self._lock:
            self._open.discard(activity)
            if activity.joined and not activity.closed:
                self._turns.remove((activity.queue, ref(activity)))
                del self._queues[activity.queue][activity]
                self._forget_if_gone(activity.queue)
            activity.closed = True

    def _forget_gone(self) -> None:
        """Forget the queues that are gone, once they are most: where no leader rests, no turn shows that they are."""
        if len(self._turns) <= 2 * len(self._open) + _FEW:
            return
        gone = [queue for queue, joined in self._turns if joined() is None]
        self._turns = deque(turn for turn in self._turns if turn[1]() is not None)
        for queue in gone:
            self._forget_if_gone(queue)

    def _forget_if_gone(self, queue: str) -> None:
        if not self._queues.get(queue, True):
            del self._queues[queue]

    def rest(self, activity: QueueActivity, me: Wakeup, until: MonotonicUs) -> Steps[None]:
        """Rest for a queue until it is woken, `me` is set, or the moment has come, and read the log meanwhile."""
        self._enter(activity, me)
        try:
            while not activity.was_woken:
                seen, moment = me.seen, min(until, self._next_read) if self._watching is activity else until
                yield Rest(me, moment)
                if me.seen != seen or self._clock.monotonic() < moment or moment >= until:
                    return
                yield from self._read()
        finally:
            self._exit(activity)

    def _enter(self, activity: QueueActivity, me: Wakeup) -> None:
        with self._lock:
            self._resting[activity] = me
            self._watching = self._watching or activity

    def _exit(self, activity: QueueActivity) -> None:
        """If no leader watches now, wake one that rests; it leaves its rest and so wakes the next, until one rests."""
        with self._lock:
            self._resting.pop(activity, None)
            if self._watching is activity:
                self._watching = None
            following = next(iter(self._resting.values()), None) if self._watching is None else None
        if following is not None:
            following.set()

    def _read(self) -> Steps[None]:
        """Read what is new in the log, and wake the queues that it names, and the one whose turn it is.

        An error of the store is raised to the queue that watches; after that, another one tries.
        """
        at, now = self._clock.monotonic(), self._clock.now()
        self._next_read = at + _PAUSE
        self._check_clock(at, now)
        lost, far_back = now - KEPT, at >= self._next_long
        overlap = _LONG_OVERLAP if far_back else _OVERLAP
        notices = yield from read_notices(max(min(self._read_to, now), lost) - overlap, now + _LONG_OVERLAP)
        if far_back:
            self._next_long = at + _LONG_EVERY
        pause = _PAUSE_AT_FIRST if at - self._named < IN_USE else _PAUSE
        took = self._clock.monotonic() - at
        self._next_read = at + max(pause, min(_COSTS * took, took + _LONGEST))
        missed, self._read_to = self._read_to < lost, now
        with self._lock:
            new = [notice for notice in notices if notice not in self._seen]
            self._seen = {one for one in self._seen.union(new) if one.moment >= now - 2 * _LONG_OVERLAP}
            self._recent.extend((at, notice) for notice in new)
            while self._recent and self._recent[0][0] < at - _BEFORE:
                self._recent.popleft()
            self._wake_named(new)
            if missed:
                self._wake_all_that_missed(lost)
            self._give_turn(at)

    def _check_clock(self, at: MonotonicUs, now: int) -> None:
        """Wake every resting leader if the wall clock was set: its rest ends sooner or later by the new time.

        If it was set back, notices are new from earlier moments on.
        """
        shift = now - int(at)
        if abs(shift - self._shift) > _SET:
            with self._lock:
                resting = list(self._resting.values())
                for activity in self._open:
                    activity.since = min(activity.since, now - _BEFORE)
            for wakeup in resting:
                wakeup.set()
        self._shift = shift

    def _wake_named(self, notices: list[Notice]) -> None:
        for notice in notices:
            for activity in self._queues.get(notice.queue, ()):
                if notice.moment >= activity.since:
                    self._named = self._clock.monotonic()
                    self._wake(activity, WakeReason.NOTICE)

    def _wake_all_that_missed(self, lost: int) -> None:
        for activity in (joined() for _, joined in self._turns):
            if activity is not None and activity.idle and activity.since < lost:
                self._wake(activity, WakeReason.GAP)

    def _give_turn(self, at: MonotonicUs) -> None:
        """Wake the resting queue whose last turn is longest ago."""
        if at < self._next_turn:
            return
        self._next_turn = at + _TURN
        for _ in range(len(self._turns)):
            queue, joined = self._turns.popleft()
            if (activity := joined()) is None:
                self._forget_if_gone(queue)
                continue
            self._turns.append((queue, joined))
            if activity in self._resting:
                self._wake(activity, WakeReason.TURN)
                return

    def _wake(self, activity: QueueActivity, reason: WakeReason) -> None:
        """Wake a queue; the caller holds the lock, so its leader either rests or sees the reason before it does."""
        activity.wake(reason)
        if activity in self._resting and activity is not self._watching:
            self._resting[activity].set()
