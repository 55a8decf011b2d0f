"""Decides the row of a message: by its time and key, by its key alone, one row for all, or by a user's function.

Messages without a key go to the concurrency shards in turn, unless a function or "single" decides. A batch is one row,
so the messages of one call go in runs of adjacent messages, one shard for every 50 messages. All messages of a group
are in one row, the home row of the group, whatever the rule and their keys. Messages with unique keys and schedules are
not placed here: they are stored in the home row of their key, so that one commit of one row keeps their promises. A
search by key uses the hints that were written at sending, wherever messages are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from types import MappingProxyType
from typing import Final, NamedTuple

from astyqueue.clock import instant
from astyqueue.errors import BadSetting
from astyqueue.model.message import PreparedMessage
from astyqueue.model.settings import BY_KEY, FUNCTION, SINGLE
from astyqueue.protocol.layout.rows import Ring

#: A call with n messages uses ceil(n / 50) shards, at most all of them, in runs of nearly equal length.
RUN: Final = 50
#: A function is called twice for this number of messages, to check that its answers agree.
_ASKED_TWICE: Final = 100
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """The argument of a placement function, which returns a shard from 0 to `shards` - 1. `due` is None for now."""

    key: str | None
    priority: int
    due: datetime | None
    headers: Mapping[str, str]
    shards: int


PlacementFunction = Callable[[PlacementRequest], int]


class ShardAssignment(NamedTuple):
    """A concurrency shard, of the ring of time shards or of the home rows."""

    shard: int
    at_home: bool = False


#: A due moment (zero: now) and a shard.
Lot = tuple[int, ShardAssignment]


def checked_function(place: object) -> PlacementFunction:
    """An ordinary function; anything else raises BadSetting."""
    if not callable(place) or isinstance(place, type) or inspect.iscoroutinefunction(place):
        given = f"{place!r:.80} is not a placement"
        message = f'{given}: give "time", "key", "single", or an ordinary function from a PlacementRequest to a shard'
        raise BadSetting(message)
    function: PlacementFunction = place
    return function


class Placement:
    """Places the messages of one queue."""

    def __init__(self, ring: Ring, function: PlacementFunction | None = None) -> None:
        """The layout of `ring` has the rule; `function` is used if that is "function"."""
        self._ring = ring
        self._rule = ring.layout.placement
        self._uses_round_robin = self._rule not in (SINGLE, FUNCTION)
        self._function = function
        self._asked = 0
        self._round_robin = count()

    def row_of(self, one: PreparedMessage, moment: int) -> str:
        """The row of a single message with this time."""
        if self._goes_round_robin(one):
            return self._ring.row(moment, next(self._round_robin) % self._ring.layout.concurrency_shards)
        return self.row(moment, self._spot(one))

    def row_of_numbered(self, one: PreparedMessage, moment: int, number: int) -> str:
        """As `row_of`, but always the same row: `number` stands for the turn of a message without a key."""
        if self._goes_round_robin(one):
            return self._ring.row(moment, number % self._ring.layout.concurrency_shards)
        return self.row(moment, self._spot(one))

    def fits(self, row: str, one: PreparedMessage, moment: int) -> bool:
        """Whether a message with this time may be stored in this row."""
        if self._goes_round_robin(one):
            return self._ring.contains(row) and self._ring.place(row, moment) is not None
        return self.row(moment, self._spot(one)) == row

    def row(self, moment: int, spot: ShardAssignment) -> str:
        """The row of messages with this time and shard."""
        return self._ring.home(spot.shard) if spot.at_home else self._ring.row(moment, spot.shard)

    def lots(self, prepared: Sequence[PreparedMessage | None]) -> dict[Lot, Sequence[int]]:
        """Messages by due moment and shard, as positions in the list."""
        if all(one and not one.due and self._goes_round_robin(one) for one in prepared):
            return {(0, spot): places for spot, places in self._runs(len(prepared))}
        free = [place for place, one in enumerate(prepared) if one and self._goes_round_robin(one)]
        spots = {free[at]: spot for spot, run in self._runs(len(free)) for at in run}
        lots: dict[Lot, list[int]] = {}
        for place, one in enumerate(prepared):
            if one:
                lots.setdefault((one.due, spots.get(place) or self._spot(one)), []).append(place)
        return dict(lots)

    def _runs(self, number: int) -> list[tuple[ShardAssignment, range]]:
        """The next shards in turn, each with a run of adjacent messages of nearly equal length."""
        shards = self._ring.layout.concurrency_shards
        runs = min(shards, -(-number // RUN))
        # other threads may draw some in between: use the shards from the first on
        drawn = [next(self._round_robin) for _ in range(runs)]
        bounds = [number * run // runs for run in range(runs + 1)] if runs else []
        return [
            (ShardAssignment((drawn[0] + run) % shards), range(bounds[run], bounds[run + 1])) for run in range(runs)
        ]

    def _goes_round_robin(self, one: PreparedMessage) -> bool:
        return self._uses_round_robin and one.key is None and one.group is None

    def _spot(self, one: PreparedMessage) -> ShardAssignment:
        if one.group is not None:
            return ShardAssignment(self._ring.shard_of_key(one.group), at_home=True)
        if self._rule == SINGLE:
            return ShardAssignment(0, at_home=True)
        if self._rule == FUNCTION:
            return ShardAssignment(self._ask(one))
        return ShardAssignment(self._ring.shard_of_key(str(one.key)), self._rule == BY_KEY)

    def _ask(self, one: PreparedMessage) -> int:
        """The shard that the function returns for a message; BadSetting if invalid or different in a second call."""
        if self._function is None:
            message = f"queue {self._ring.queue!r} uses a placement function: pass the same one with .placement(...)"
            raise BadSetting(message)
        due = instant(one.due) if one.due else None
        placing = PlacementRequest(
            one.key, one.priority, due, one.headers or _NO_HEADERS, self._ring.layout.concurrency_shards
        )
        shard = _answer(self._function, placing)
        if self._asked < _ASKED_TWICE:
            self._asked += 1
            _check_again(self._function, placing, shard)
        return shard


def _answer(function: PlacementFunction, placing: PlacementRequest) -> int:
    try:
        shard: object = function(placing)
    except Exception as error:
        message = f"the placement function {_named(function)} failed for {placing}: {error!r}; nothing was sent"
        raise BadSetting(message) from error
    if not isinstance(shard, int) or isinstance(shard, bool) or not 0 <= shard < placing.shards:
        message = (
            f"the placement function {_named(function)} returned {shard!r:.80} for {placing}; it must return a whole "
            f"number from 0 to {placing.shards - 1}: take it modulo `shards`; nothing was sent"
        )
        raise BadSetting(message)
    return shard


def _check_again(function: PlacementFunction, placing: PlacementRequest, shard: int) -> None:
    if (other := _answer(function, placing)) != shard:
        message = (
            f"the placement function {_named(function)} returned {shard} and then {other} for {placing}: it must "
            "depend only on its argument (for a key: `zlib.crc32`; `hash` differs between processes); nothing was sent"
        )
        raise BadSetting(message)


def _named(function: PlacementFunction) -> str:
    return getattr(function, "__qualname__", repr(function))
