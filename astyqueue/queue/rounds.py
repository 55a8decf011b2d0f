"""Which row to look at next: deciding cost and delay, never safety.

Every row has a moment of its next look, which may end in a claim: when somebody sent to it or it had more to give, when
something in it falls due, when one of its late looks does. Whoever's turn comes first goes first, so no row starves.
"""

from __future__ import annotations

from typing import Final

from astyqueue.clock import SECOND, Clock
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.steps import Steps
from astyqueue.queue.agenda import NEVER
from astyqueue.queue.rescans import Rescans
from astyqueue.queue.survey import Survey
from astyqueue.queue.visits import Visit, Visits

#: What is due and was not taken (a suspect waits for empty hands, a message came from the future) is looked at again so soon.
_AGAIN: Final = SECOND // 20
#: What cannot be claimed for an error is left alone so long, and twice as long after each further one, so that other rows
#: have their turn and a mishap that is over costs little.
_POSTPONED: Final = SECOND // 20
POSTPONED_AT_MOST: Final = 5 * SECOND


class Rounds:
    """The rows of a queue in one process, and whose turn it is."""

    def __init__(self, ring: Ring, clock: Clock, me: str) -> None:
        """Have every row surveyed at once, those that are written to first: this process knows nothing of any."""
        self.visits = Visits(ring, clock, me)
        self.survey = Survey(self.visits)
        self.rescans = Rescans(self.visits, me)
        self._clock = clock
        self.answered = 0
        self._asked = 0
        self._busy = False
        self._latest = 0

    def was_set_back(self, now: int) -> bool:
        """Whether the clock was set back since it was last seen; then everything is looked at anew, from the time it shows."""
        set_back, self._latest = now < self._latest - SECOND, now
        if set_back:
            self.visits.last_traffic = min(self.visits.last_traffic, now)
            self.survey.start_anew()
            self.rescans.was_set_back(now)
            for row, visit in self.visits.of.items():
                visit.work, visit.not_before, visit.obliging = now, 0, 0
                visit.sight.hold_back(now)
                visit.sight.upcoming.postponed.clear()
                self.visits.looks.set(row, now)
        return set_back

    def look_around(self, now: int) -> Steps[None]:
        """Learn what others did, and look for what landed late, as far as it is time for that."""
        yield from self.survey.listen(now, busy=self._busy)
        yield from self.survey.read(now)
        yield from self.rescans.go_on(now)

    def idle(self, now: int) -> Steps[None]:
        """There is nothing known to do: see for who asked, listen more closely, wish for a row of which others have too many."""
        if self._asked < self.visits.asked:
            self._asked = self.visits.asked
            self.survey.hurry()
        if not self.survey.complete:
            return
        self.answered = self._asked
        if self._asked == self.visits.asked:
            self.visits.insisted.clear()
        if self._busy:
            self._busy = False
            self.survey.doorbell.pace(now - self.visits.last_traffic, busy=False)
        yield from self.survey.wish(now)

    def answer(self, asked: int) -> None:
        """Nobody may be handed anything, so those who asked up to this number have seen all there is for them."""
        self.answered = max(self.answered, asked)

    def next_event(self, now: int) -> int:
        """When there will be something to look at, or to learn."""
        return now if self.visits.news else min(self.visits.looks.next(), self.survey.next_event(now), self.rescans.next_event(now))

    def choose(self, now: int) -> Visit | None:
        """The row whose look is due and that waited longest; one that others are at work in is left to them for now."""
        self.visits.take_in(now)
        while (row := self.visits.looks.take(now)) is not None:
            visit = self.visits.of[row]
            if (until := self.visits.held_back(visit)) > now:
                self.visits.looks.set(row, until)
            elif self._may_go(visit, now):
                self._busy = True
                visit.work = NEVER
                return visit
        return None

    def _may_go(self, visit: Visit, now: int) -> bool:
        """Whether a row is open to us; if not, its owner is watched and it comes up again."""
        at = self._clock.monotonic()
        if visit.sight.row in self.visits.insisted:
            self.visits.insisted.discard(visit.sight.row)
            return True
        if not self.visits.shared or visit.lease.open_for(visit.work, now, at):
            return True
        self.survey.by(visit, now + visit.lease.wait_for(visit.work, now, at))
        return False

    def visited(self, visit: Visit, now: int, *, more: bool, refused: int = 0) -> None:
        """Set the next look of a row that was just looked at."""
        sight = visit.sight
        sight.take_note()
        visit.failures = 0
        self.survey.visited(visit, now)
        if refused and self.visits.shared:
            visit.work = now
            self.survey.by(visit, now)
        elif more or refused or not sight.known:
            self.survey.wishes.refused(sight.row, refused)
            self.visits.look_at(visit, now)
        elif (following := sight.next_look(now)) is not None:
            self.visits.look_at(visit, following, at=max(following, now + _AGAIN))

    def settled(self, row: str, now: int) -> None:
        """Let a row be looked at when what was just given back in it falls due."""
        visit = self.visits.of[row]
        visit.sight.take_note()
        following = visit.sight.next_look(now)
        if following is not None:
            self.visits.look_at(visit, following)

    def postpone(self, visit: Visit, now: int) -> None:
        """Leave a row alone for a while, and longer each time."""
        visit.not_before = now + min(_POSTPONED << min(visit.failures, 8), POSTPONED_AT_MOST)
        visit.failures += 1
        self.visits.look_at(visit, now)
