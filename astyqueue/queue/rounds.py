"""Which row to look at next: deciding cost and delay, never safety.

Every row has a moment of its next look: at once when somebody in this process sent to it or it had more to give, when
something in it falls due, when one of its late looks does, and now and then to see whether others changed it. Whoever
comes first goes first, so no row starves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from astyqueue import ids
from astyqueue.protocol.look import glance
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, read

_SECOND: Final = 1_000_000
#: How often the header of a row is read that others may be working in, and of one that rests.
_OPEN: Final = 2 * _SECOND
_RESTING: Final = 60 * _SECOND
#: A closed row counts as open for so long, for those who land late in it.
_LINGERS: Final = 600 * _SECOND
#: Between two glances for what other processes sent: while there is traffic, for a while after it, and when it is long ago.
_GLANCES: Final = ((_SECOND, 1_000), (60 * _SECOND, 3_000), (1 << 62, 25_000))
#: What is due and was not taken (a suspect waits for empty hands, a message came from the future) is looked at again so soon.
_AGAIN: Final = _SECOND // 20
#: What cannot be claimed for an error is left alone this long, so that other rows have their turn.
POSTPONED: Final = 5 * _SECOND
_NEVER: Final = 1 << 62
#: How often the ids behind all looks are walked once more; each walk goes twice as far back.
_ONCE_MORE: Final = 12 * 3_600 * _SECOND


@dataclass(slots=True)
class Visit:
    """When a row is next looked at, why at the latest, and when it last was."""

    sight: Sight
    next_look: int = 0
    refresh: int = 0
    visited: int = 0
    once_more: int = 0
    not_before: int = 0


@dataclass(slots=True)
class Rounds:
    """The rows of a queue in one process, and when to look at each."""

    ring: Ring
    visits: dict[str, Visit] = field(default_factory=dict)
    last_traffic: int = 0
    _turn: int = 0
    _latest: int = 0
    _next_glance: int = 0

    def __post_init__(self) -> None:
        """Have every row looked at once: this process knows nothing of any."""
        levels = self.ring.layout.priorities
        self.visits = {row: Visit(Sight(row, levels)) for row in self.ring.rows()}

    def sent(self, row: str, moment: int, now: int) -> None:
        """Somebody in this process sent to a row, for this moment."""
        self.last_traffic = now
        visit = self.visits[row]
        visit.next_look = min(visit.next_look, moment)

    def changed(self, row: str) -> None:
        """Somebody in this process raised a row's header past what is known of it here."""
        self.visits[row].refresh = 0

    def look_everywhere(self, now: int) -> None:
        """Let every current row be looked at now, whatever is known of it: somebody asks who will not wait."""
        for row in self.ring.current(now):
            if (visit := self.visits[row]).not_before <= now:
                visit.next_look = 0

    def was_set_back(self, now: int) -> bool:
        """Whether the clock was set back since it was last seen; then everything is looked at anew, from the time it shows."""
        set_back, self._latest = now < self._latest - _SECOND, now
        if set_back:
            self.last_traffic, self._next_glance = min(self.last_traffic, now), 0
            for visit in self.visits.values():
                visit.next_look = visit.refresh = visit.not_before = 0
                visit.once_more = min(visit.once_more, now + _ONCE_MORE)
                visit.sight.hold_back(now)
        return set_back

    def begin(self, visit: Visit) -> None:
        """A row is about to be looked at; what turns up in it meanwhile sets its next look anew."""
        visit.next_look = visit.refresh = _NEVER

    def choose(self, now: int) -> Visit | None:
        """The row whose look is due and that waited longest since its last one."""
        due = [visit for visit in self.visits.values() if min(visit.next_look, visit.refresh) <= now]
        return min(due, key=lambda visit: visit.visited, default=None)

    def visited(self, visit: Visit, now: int, *, more: bool) -> None:
        """Set the next look of a row that was just looked at."""
        self._turn += 1
        visit.visited = self._turn
        visit.sight.take_note()
        visit.refresh = min(visit.refresh, now + (_OPEN if self._open(visit, now) else _RESTING))
        following = visit.sight.next_look(now)
        following = now if more else visit.refresh if following is None else max(following, now + _AGAIN)
        visit.next_look = min(visit.next_look, following)
        if visit.once_more <= now:
            visit.sight.look_again_from(now - 2 * _ONCE_MORE if visit.once_more else now)
            visit.once_more = now + _ONCE_MORE

    def settled(self, row: str, now: int) -> None:
        """Let a row be looked at when what was just given back in it falls due."""
        visit = self.visits[row]
        visit.sight.take_note()
        following = visit.sight.next_look(now)
        if following is not None:
            visit.next_look = min(visit.next_look, following)

    def postpone(self, visit: Visit, now: int) -> None:
        """Leave a row alone for a while."""
        self._turn += 1
        visit.visited = self._turn
        visit.next_look = visit.refresh = visit.not_before = now + POSTPONED

    def _open(self, visit: Visit, now: int) -> bool:
        """Whether work may turn up in a row: its turn is not long over, or something is hidden in it."""
        row = visit.sight.row
        lately = range(now - _LINGERS, now + 1, self.ring.layout.time_shard_us)
        return bool(visit.sight.timers) or any(row in self.ring.current(moment) for moment in (*lately, now))

    def next_event(self, now: int) -> int:
        """When there will be something to look at or glance for."""
        soonest = min(min(visit.next_look, visit.refresh) for visit in self.visits.values())
        return min(soonest, self._next_glance, self.ring.closes(now))

    def glance(self, now: int) -> Steps[None]:
        """See whether other processes sent anything to the current rows; what is due later tells when to look."""
        if now < self._next_glance:
            return
        quiet = now - self.last_traffic
        self._next_glance = now + next(pause for least, pause in _GLANCES if quiet < least)
        known = [visit for row in self.ring.current(now) if (visit := self.visits[row]).sight.known]
        slices = [one for visit in known for one in glance(visit.sight)]
        found = yield from read(*slices)
        levels = self.ring.layout.priorities
        for index, columns in enumerate(found):
            if columns:
                visit = known[index // levels]
                visit.next_look = min(visit.next_look, ids.moment(columns[0].name.id))
