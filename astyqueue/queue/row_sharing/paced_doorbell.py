"""The doorbell of a queue in one process, rung after sends and read while waiting, neither more often than is useful.

Processes in which the queue is idle read it only in their turns: they get a notice in the activity log of the store.
`protocol.coordination` has the cells and notices in the store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.protocol.coordination import doorbell
from astyqueue.protocol.coordination.activity_log import notice_of
from astyqueue.protocol.coordination.doorbell import RebalanceRequest
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Client, Steps, read
from astyqueue.store import Batch, Column, Slice
from astyqueue.units import BEGINNING, NEVER, SECOND, MonotonicUs

#: After a ring this process does not ring again for five milliseconds; rows sent to meanwhile go into its next ring.
_RING_INTERVAL: Final = SECOND // 200
#: A send takes this long at most, so a row whose time shard ended longer ago is not rung for.
_LONGEST_SEND: Final = 60 * SECOND
#: A notice stands for what this process does in the queue within ten seconds of it.
_NOTICE_FOR: Final = 10 * SECOND
#: After an error of the store the next notice waits a second, so that not every send waits for that error too.
_NOTICE_AGAIN: Final = SECOND
#: The pause after a ring was read until all current rows are probed once more, for sends just after it.
_SECOND_PROBE_AFTER: Final = 3 * SECOND // 100
#: (time since the last traffic here, least pause between two reads of the doorbell, the same pause in multiples of the
#: duration of a read): up to a second, up to a minute, and longer, while the queue is in use elsewhere. The multiple
#: keeps a distant store from being read all the time.
_PACES: Final = ((SECOND, SECOND // 1_000, 5), (60 * SECOND, 3 * SECOND // 1_000, 5), (NEVER, SECOND // 40, 100))
#: The longest pause for the duration of a read, because the process may have been suspended during it. The headers of
#: current rows are polled as often.
_LONGEST: Final = 2 * SECOND
#: The least pause between two reads while this process has work: then it needs only the requests for its rows.
_BUSY: Final = SECOND // 20


class DoorbellNews(NamedTuple):
    """The places of the current rows to probe, and a new request for a row; `rung`: the bell is a new one."""

    places: set[int]
    request: RebalanceRequest | None
    rung: bool


class PacedDoorbell:
    """Rung by any thread that sends; read by the leader of each process's claimer."""

    def __init__(self, ring: Ring, clock: Clock) -> None:
        """`ring` gives the places of the current rows."""
        self._ring = ring
        self._clock = clock
        self._lock = threading.Lock()
        self._unrung: set[int] = set()
        self._rung = BEGINNING
        self._noticed: int | None = None
        self._process = Client("", clock.now)
        self._cells: doorbell.DoorbellCells | None = None
        self._next = self._read_at = BEGINNING
        self._cost = 0
        self._second_probe_at: MonotonicUs | None = None

    def __repr__(self) -> str:
        """The queue, and how many rows its next ring will name besides its own."""
        return f"<PacedDoorbell of {self._ring.queue}: {len(self._unrung)} rows unrung>"

    def ring(self, rows: Iterable[str], *, frees_group: bool = False) -> Steps[None]:
        """Signal to other processes that these rows changed: at most one request, and none soon after another.

        With `frees_group` a message of a group has ended. That rings also in a queue of few rows, whose processes poll
        them all: a settle changes no header, and a blocked message is not new.
        """
        now = self._clock.now()
        yield from self._write(self._places_to_ring(rows, now, always=frees_group), now)

    def notify_idle(self) -> Steps[None]:
        """Have processes in which the queue is idle poll it: a message falls due earlier than they know."""
        yield from self._write(set(), self._clock.now())

    def _write(self, named: set[int], now: int) -> Steps[None]:
        """Ring for these places, if there are any, and write the notice unless one stands.

        What a cancelled caller did not write goes into the next ring and notice.
        """
        bell = [doorbell.bell_of(self._ring.queue, named, ids.nonce())] if named else []
        notice, written = self._notice(now), None
        try:
            written = yield from doorbell.write_hints([*bell, *notice])
        finally:
            if named and written is None:
                self._ring_again(named)
            if notice and not written:
                self._take_back(now, None if written is None else now - _NOTICE_FOR + _NOTICE_AGAIN)

    def _ring_again(self, named: set[int]) -> None:
        """Have the next ring, however soon it comes, name these places too."""
        with self._lock:
            self._unrung |= named
            self._rung = BEGINNING

    def _take_back(self, noticed: int, instead: int | None) -> None:
        """Take the notice of the moment `noticed` as one of `instead`; a later one stays as it is."""
        with self._lock:
            if self._noticed == noticed:
                self._noticed = instead

    def _notice(self, now: int) -> list[Batch]:
        """The notice for processes in which the queue is idle, unless an earlier one still stands.

        By the wall clock: a monotonic one stands still while the machine is suspended.
        """
        with self._lock:
            if self._noticed is not None and abs(now - self._noticed) < _NOTICE_FOR:
                return []
            self._noticed = now
        return [notice_of(self._ring.queue, self._process)]

    def _places_to_ring(self, rows: Iterable[str], now: int, *, always: bool) -> set[int]:
        """The places to name in a ring now; none if the last ring was less than five milliseconds ago.

        In a queue with one concurrency shard only `always` rings: the processes in which it is in use poll its current
        rows, and turns do.
        """
        if not (self._ring.shared or always):
            return set()
        place_of = self._ring.place if always else self._place_of_sent
        places = {place for row in rows if (place := place_of(row, now)) is not None}
        with self._lock:
            self._unrung |= places
            if not self._unrung or self._clock.monotonic() < self._rung + _RING_INTERVAL:
                return set()
            self._rung = self._clock.monotonic()
            named, self._unrung = self._unrung, set()
            return named

    def _place_of_sent(self, row: str, now: int) -> int | None:
        """The place of a row among the current ones; if its time shard ended during the send, that which it had.

        A process in which the queue is idle learns by any ring that something happened.
        """
        began = self._ring.turn(row, now)
        if began is not None and self._ring.has_ended(row, now - _LONGEST_SEND, now):
            return self._ring.place(row, began)
        return self._ring.place(row, now)

    def forget(self) -> None:
        """Take the last notice as one of an hour ago, for a measurement or a test that cannot wait for that."""
        self._noticed = None

    def request(self, request: RebalanceRequest) -> Steps[None]:
        """Request a row from its owner, which then leaves it alone for a moment."""
        yield from doorbell.request_rebalance(self._ring.queue, request, ids.nonce())

    def expect_ring(self) -> None:
        """Have the next read, at once, name all current rows: a ring may have come while the doorbell was not read."""
        self._second_probe_at = self._clock.monotonic()

    @property
    def was_read(self) -> bool:
        """Whether a ring that comes now would be known as new."""
        return self._cells is not None

    @property
    def next_time(self) -> MonotonicUs:
        """The monotonic moment of the next read."""
        return self._next if self._second_probe_at is None else min(self._next, self._second_probe_at)

    def set_pace(self, quiet: int, *, has_work: bool) -> None:
        """Set the moment of the next read; `quiet` is the time since the last traffic, in microseconds.

        The pause begins with the end of the last read: a process with some work now and then must not begin it anew.
        """
        pause, times = next((pause, times) for least, pause, times in _PACES if quiet < least)
        self._next = self._read_at + max(_BUSY if has_work else pause, min(times * self._cost, _LONGEST))

    def read(self, *also: Slice) -> Steps[tuple[DoorbellNews, list[list[Column]]]]:
        """Read what is new at the doorbell, and the columns of other slices in the same request."""
        began = self._clock.monotonic()
        second_probe = self._second_probe_at is not None and began >= self._second_probe_at
        if second_probe:
            self._second_probe_at = None  # also if the read fails: it must not be repeated at once
        try:
            cells, *found = yield from read(doorbell.cells(self._ring.queue), *also)
        finally:
            self._read_at = self._clock.monotonic()
        self._cost = self._read_at - began
        current = doorbell.doorbell_cells(cells)
        before = self._cells or current  # the cells of the first read may be old, so they are not news
        self._cells = current
        wanted = current.wanted if current.wanted != before.wanted else None
        rung = current.bell != before.bell
        places = self._places(current.bell if rung else None, began, second_probe=second_probe)
        return DoorbellNews(places, doorbell.rebalance_request_in(wanted) if wanted else None, rung), found

    def _places(self, rung: bytes | None, now: MonotonicUs, *, second_probe: bool) -> set[int]:
        everywhere = set(range(self._ring.width))
        if rung is None:
            return everywhere if second_probe else set()
        if self._second_probe_at is None:
            self._second_probe_at = now + _SECOND_PROBE_AFTER
        named = doorbell.rows_rung(rung)
        return everywhere if second_probe or named is None else named & everywhere
