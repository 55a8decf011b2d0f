"""The permit of this process in a queue that limits how many processes claim from it at the same time.

The leader takes a permit when a consumer wants deliveries and the queue is in use, or something is due in it. It renews
the permit at a third of its lease, and releases it when the queue is idle or the process leaves. Without one, the
process stands by: it claims nothing, and looks for a free permit every 400 ms. Where the limit is not set, none of this
makes a request.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.model.settings import Behaviour
from astyqueue.model.views import ActiveProcess
from astyqueue.protocol.coordination.permits import (
    Permit,
    PermitTable,
    delete_permit,
    new_permit,
    put_permit,
    read_permits,
    report_standby,
)
from astyqueue.protocol.layout.rows import permits_row
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.consuming.lease_table import LeaseTable
from astyqueue.queue.consuming.suspect_wait import SuspectWait
from astyqueue.queue.row_sharing.row_scheduler import RowScheduler
from astyqueue.queue.row_sharing.row_state import RowState
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.structured_log import log_event
from astyqueue.units import BEGINNING, SECOND, MonotonicUs

#: A permit is renewed, and a stand-by reports again, when 1/_RENEWED_AT of the lease is over: two renewals may fail.
_RENEWED_AT: Final = 3
#: A process stops claiming this long before its permit ends (a quarter of a short lease): the estimates of the
#: store's time in two processes may differ by that. It is also how long a commit of a claim may be under way.
_MARGIN: Final = SECOND
_MARGIN_PART: Final = 4
#: How often a stand-by looks for a free permit, and how long it leaves one to those that have waited longer. Together
#: they are less than the second within which a permit that was released must be taken.
_LOOK: Final = 4 * SECOND // 10
_GIVE_WAY: Final = 45 * SECOND // 100
#: The pause before a permit is tried again after another process was faster, or an outcome was unknown.
_AGAIN: Final = SECOND // 20

_log: Final = logging.getLogger("astyqueue.queue")


def margin_of(lease: int) -> int:
    """How long before the end of its permit a process stops claiming, for a permit of this lease."""
    return min(_MARGIN, lease // _MARGIN_PART)


@dataclass(frozen=True, slots=True)
class _Held:
    """A permit of this process, and until when it claims under it: by its monotonic clock, and by the store's time.

    By both: a monotonic clock stands still while a machine is suspended, and the other one may be set back.
    """

    permit: Permit
    until: MonotonicUs
    until_moment: int


class ProcessPermit:
    """What one process knows of the permits of a queue. Only the leader calls `keep`."""

    def __init__(self, process: Client, clock: Clock, settings_sync: SettingsSync) -> None:
        """Nothing is held."""
        self._process = process
        self._clock = clock
        self._settings_sync = settings_sync
        #: How often the process was granted a permit that it had not.
        self.grants = 0
        self._held: _Held | None = None
        self._yielding = self._releasing = self._ended = False
        self._next = BEGINNING
        self._due: MonotonicUs | None = None
        self._standing_by: ActiveProcess | None = None
        self._reported = BEGINNING
        self._listed_until = 0
        self._gave_way = False
        self._unanswered: Permit | None = None

    def __repr__(self) -> str:
        """The limit, and whether this process has a permit."""
        state = "held" if self._held else "standing by" if self._standing_by else "not wanted"
        return f"<ProcessPermit of {self._limit}: {state}>"

    @property
    def _behaviour(self) -> Behaviour:
        return self._settings_sync.behaviour

    @property
    def _queue(self) -> str:
        return self._settings_sync.settings.name

    @property
    def _limit(self) -> int:
        return self._behaviour.max_active_processes

    @property
    def concerns(self) -> bool:
        """Whether anything has to be kept: there is a limit, or was one when this process got a permit or stood by."""
        return self._limit > 0 or self._keeps_something

    @property
    def held(self) -> bool:
        """Whether this process has a permit to release, which may have run out."""
        return self._held is not None

    @property
    def granted(self) -> bool:
        """Whether this process may claim now."""
        if not self._limit:
            return True
        held = self._held
        return (
            held is not None
            and held.permit.place < self._limit
            and self._clock.monotonic() < held.until
            and self._process.now() < held.until_moment
        )

    @property
    def stands_by(self) -> bool:
        """Whether this process wants to claim, and others have all permits."""
        return self._limit > 0 and self._standing_by is not None

    def before_next(self, until: MonotonicUs | None) -> MonotonicUs | None:
        """The monotonic moment `until` (None: without limit), or that of the next request if it comes first."""
        if self._due is None or until is None:
            return self._due or until
        return min(until, self._due)

    def stand_down(self) -> None:
        """Release the permit once nothing is wanted and nothing is leased to this process. Safe from any thread.

        Wake the claimer afterwards. It ends when a consumer has credit again.
        """
        self._yielding = True

    def leave(self, *, for_good: bool) -> None:
        """Release the permit now, unless a consumer wants it; `for_good`, also then, and take none again."""
        self._releasing, self._ended = True, self._ended or for_good

    @property
    def leaving(self) -> bool:
        """Whether the leader has not yet followed `leave`."""
        return self._releasing and self._keeps_something

    @property
    def _keeps_something(self) -> bool:
        return self._held is not None or self._standing_by is not None or self._unanswered is not None

    def keep(self, *, wanting: bool, needed: bool, working: bool) -> Steps[None]:
        """Take, renew or release the permit, if it is time.

        `wanting`: a consumer would accept a delivery; `needed`: the queue is in use, or something is due in it;
        `working`: messages are leased to this process. Store errors are raised only while it may not claim.
        """
        wanting = wanting and not self._ended
        self._yielding = self._yielding and not wanting
        yields = not wanting and (self._releasing or (self._yielding and not working))
        held, self._due, self._releasing = self._held, None, False
        if held and (not needed or yields or held.permit.place >= self._limit):
            yield from self._release(held.permit)
        elif held is None and not (wanting and needed and self._limit):
            yield from self._take_back()
        if yields:
            yield from self._withdraw()
        if not needed or not self._limit:
            self._standing_by = None
            return
        if self._held is None and not wanting:
            return
        if self._clock.monotonic() >= self._next:
            yield from self._request()
        self._due = self._next

    def _release(self, permit: Permit) -> Steps[None]:
        """Release the permit; after an error of the store it runs out."""
        self._held, self._next = None, BEGINNING
        log_event(_log, logging.INFO, "permit_released", queue=self._queue)
        with contextlib.suppress(StoreError):
            yield from delete_permit(self._queue, permit)
        yield from self._take_back()
        yield from self._withdraw()

    def _take_back(self) -> Steps[None]:
        """Release a permit also if it is unknown whether it was taken or renewed; if that fails, it runs out."""
        permit, self._unanswered = self._unanswered, None
        if permit is not None:
            with contextlib.suppress(StoreError):
                yield from delete_permit(self._queue, permit)

    def _withdraw(self) -> Steps[None]:
        """Wait for a permit no longer: without this, others would leave a free one to this process for a moment."""
        now, self._standing_by = self._process.now(), None
        if self._listed_until > now:
            self._listed_until = 0
            yield from report_standby(self._queue, ActiveProcess(self._process.name, now, now), now)

    def _request(self) -> Steps[None]:
        self._next = self._clock.monotonic() + _LOOK
        try:
            if self._held is None or not (yield from self._put(self._held.permit, self._held.permit.holder.since)):
                yield from self._apply()
        except StoreError:
            if not self.granted:
                raise

    def _apply(self) -> Steps[None]:
        """Take a free permit, or stand by. One that names this process is its own.

        An earlier commit of unknown outcome was applied then.
        """
        table = yield from read_permits(self._queue)
        self._report_read_back(table)
        now, me = self._process.now(), self._process.name
        own = table.of(me)
        if own is not None and own.place < self._limit:
            yield from self._put(own, own.holder.since)
            return
        self._lose()
        free = table.free(self._limit, now)
        self._gave_way = self._gave_way and bool(free)
        if not free:
            yield from self._stand_by(table, now)
        elif not self._gave_way and self._must_give_way(table, now, len(free)):
            self._gave_way = True
            yield from self._stand_by(table, now)
            self._next = self._clock.monotonic() + _GIVE_WAY
        else:
            # Several processes begin at different places, so that not all try the same one.
            place = free[sum(me.encode()) % len(free)]
            yield from self._put(table.permits.get(place) or Permit(place, ActiveProcess("", 0, 0), b""), now)

    def _report_read_back(self, table: PermitTable) -> None:
        """Notify observers of whether a change without an answer was applied."""
        permit, self._unanswered = self._unanswered, None
        if permit is not None:
            found = table.permits.get(permit.place)
            applied = found is not None and found.value == permit.value
            self._process.report_read_back(permits_row(self._queue), "change", applied=applied)

    def _put(self, known: Permit, since: int) -> Steps[bool]:
        """Take or renew a permit that was read as `known`; returns whether this process has it for another lease."""
        began, now, lease = self._clock.monotonic(), self._process.now(), self._behaviour.permit_lease_us
        permit = new_permit(self._process, known.place, since, now + lease)
        try:
            done = yield from put_permit(self._queue, permit, known.value or None, now)
        except OutcomeUnknown:
            done, self._unanswered = False, permit
        if not done:
            self._next = self._clock.monotonic() + _AGAIN
            return False
        new, margin = self._held is None, margin_of(lease)
        self._held = _Held(permit, began + (lease - margin), now + lease - margin)
        self._next = began + lease // _RENEWED_AT
        self._standing_by, self._gave_way = None, False
        if new:
            log_event(_log, logging.INFO, "permit_granted", queue=self._queue)
            self.grants += 1
        return True

    def _lose(self) -> None:
        """Another process has what was this process's permit."""
        if self._held is not None:
            self._held = None
            log_event(
                _log, logging.WARNING, "permit_lost", queue=self._queue, reason="it ran out before it was renewed"
            )

    def _must_give_way(self, table: PermitTable, now: int, free: int) -> bool:
        """Whether as many processes as there are free permits have waited longer than this one."""
        since = self._standing_by.since if self._standing_by else now
        before = [one for one in table.waiting(now) if (one.since, one.process) < (since, self._process.name)]
        return len(before) >= free

    def _stand_by(self, table: PermitTable, now: int) -> Steps[None]:
        """Report that this process waits, once in a third of the lease, and look again when a permit may be free.

        It is not reported at its first look: others would leave a free permit to a process that looks once and ends.
        """
        at, lease = self._clock.monotonic(), self._behaviour.permit_lease_us
        if self._standing_by is None:
            self._standing_by, self._reported = ActiveProcess(self._process.name, now, now), at
        elif at >= self._reported:
            since = self._standing_by.since
            self._standing_by = ActiveProcess(self._process.name, since, now + lease)
            self._reported, self._listed_until = at + lease // _RENEWED_AT, now + lease
            yield from report_standby(self._queue, self._standing_by, now)
        ends = [one.holder.until - now for one in table.permits.values() if one.holder.until > now]
        self._next = at + min([_LOOK, *ends])


class ClaimPermission:
    """Whether the leader may claim now: always in a queue without a limit, otherwise under the permit of its process.

    A process polls an idle queue without a permit, so it knows when something falls due there, and takes one then,
    before it claims. So a limited queue costs no commits while it is idle.
    """

    def __init__(
        self,
        permit: ProcessPermit,
        process: Client,
        scheduler: RowScheduler,
        leases: LeaseTable,
        *,
        suspect_wait: SuspectWait,
    ) -> None:
        """`scheduler` and `leases` are those of the same process and queue as `permit`."""
        self.suspect_wait = suspect_wait
        self._permit = permit
        self._process = process
        self._scheduler = scheduler
        self._leases = leases
        self._needed = False

    def keep(self, *, wanting: bool) -> Steps[None]:
        """Keep the permit; `wanting`: consumers have credit.

        After a grant, no row is left to its owner: that may be a process which is gone.
        """
        now, grants = self._process.now(), self._permit.grants
        self._needed = not self._scheduler.activity.idle or self._scheduler.has_scan_due(now)
        yield from self._permit.keep(wanting=wanting, needed=self._needed, working=self._leases.leased_count > 0)
        if self._permit.grants != grants:
            self._scheduler.request(ignoring_owners=True)

    @property
    def may_poll(self) -> bool:
        """Whether to poll, and to claim what is found: not while others have the permits that this process needs."""
        return self._permit.granted or not self._needed

    @property
    def must_wait(self) -> bool:
        """Whether nothing may be claimed until messages that are leased to this process have ended."""
        return self.suspect_wait.forbids(self._leases.leased_count)

    def next_row(self, now: int) -> RowState | None:
        """The row to claim from; none without a permit, which the next round takes if a poll found something due."""
        if not self._permit.granted:
            return None
        return self.suspect_wait.row_to_look_into() or self._scheduler.next_row(now)
