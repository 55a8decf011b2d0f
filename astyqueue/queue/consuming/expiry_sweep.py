"""Looks for expired messages that no claim reaches, where a queue bounds the life of its messages."""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import StoreError, Undecodable
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.expiry import bury_expired
from astyqueue.protocol.claiming.claim import ClaimResult
from astyqueue.protocol.claiming.selection import DeadLettered
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.consuming.outcome_recorder import OutcomeRecorder
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.units import BEGINNING, SECOND, MonotonicUs

#: How often a process looks into a row, and the least pause between two rows if it has many.
_EVERY: Final = 60 * SECOND
_PAUSE: Final = SECOND


class ExpirySweep:
    """A sweep of a process: one of its claims, in the rows that they visit, and one of its sends, in row after row."""

    def __init__(self, process: Client, clock: Clock, settings_sync: SettingsSync, recorder: OutcomeRecorder) -> None:
        """`recorder` counts the dead letters, writes them into the history, and calls the hooks."""
        self._process = process
        self._clock = clock
        self._settings_sync = settings_sync
        self._recorder = recorder
        self._rows = Ring(settings_sync.settings.name, settings_sync.settings.layout).rows()
        self._last_place = int.from_bytes(process.nonce()) % len(self._rows)
        self._next: MonotonicUs = BEGINNING
        self._visits: dict[str, MonotonicUs] = {}
        self._lock = threading.Lock()

    def visit(self, row: str) -> Steps[bool]:
        """Look into this row, unless this process did so within a minute; whether it was changed."""
        if not self._settings_sync.behaviour.expires_cap_us:
            return False
        with self._lock:
            now = self._clock.monotonic()
            if now < self._visits.get(row, BEGINNING):
                return False
            self._visits[row] = now + _EVERY
        return (yield from self._bury(row))

    def next_row(self) -> Steps[str | None]:
        """Look into the next row if it is time: all rows in a minute, at most one in a second; the row if changed."""
        if not self._settings_sync.behaviour.expires_cap_us:
            return None
        with self._lock:
            now = self._clock.monotonic()
            if now < self._next:
                return None
            self._next = now + max(_PAUSE, _EVERY // len(self._rows))
            self._last_place = (self._last_place + 1) % len(self._rows)
            row = self._rows[self._last_place]
        return row if (yield from self.visit(row)) else None

    def all_rows(self) -> Steps[list[str]]:
        """Look into each row, unless this process did so within a minute; returns the rows that were changed."""
        changed: dict[str, bool] = {}
        for row in self._rows:
            changed[row] = yield from self.visit(row)
        return [row for row, was_changed in changed.items() if was_changed]

    def _bury(self, row: str) -> Steps[bool]:
        """Bury what has expired; errors are left to claims and sends, which meet them too."""
        settings, buried = self._settings_sync.settings, list[DeadLettered]()
        levels, life = settings.layout.priorities, settings.behaviour.expires_cap_us
        with contextlib.suppress(StoreError, Undecodable):
            yield from bury_expired(self._process, row, levels, life, buried.extend)
        if not buried:
            return False
        self._recorder.stats.add("buried", len(buried))
        for entry, death, _ in buried:
            self._recorder.notifier.buried(MessageId(row, entry.priority, entry.id), death.kind, death.reason)
        events = self._recorder.history.events
        yield from self._recorder.history.write_or_buffer(
            events.of_claim(row, ClaimResult(buried=buried), at=self._process.now())
        )
        return True

    def call_hooks(self) -> None:
        """Call the hooks about what was buried; claims do that themselves."""
        self._recorder.notifier.call()
