"""Which row a message goes to: by its time and its key, by its key alone, all to one, or as a function of the user's says.

Messages that nothing else decides about go to the concurrency shards in turn. A batch is one row, so those of one call go in
runs: the first part of them to one shard, the next part to the next, as many shards as there are runs worth a batch.
Messages with unique keys and schedules do not ask: they live in the home row of their key, so that what they promise is a
commit of one row. Whoever looks for a message of a key finds it by what was noted of it when it was sent, wherever that went.
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
from astyqueue.model.outgoing import Composed
from astyqueue.model.settings import BY_KEY, FUNCTION, SINGLE
from astyqueue.protocol.rows import Ring

#: Messages of one call that go to another shard only if there are more: fewer are not worth a batch of their own.
RUN: Final = 50
#: A function is asked twice about so many messages, to see whether it says the same.
_ASKED_TWICE: Final = 100
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Placing:
    """What a placement function is told of a message. `due`: None if that is now; `shards`: answers are 0 to one less than that."""

    key: str | None
    priority: int
    due: datetime | None
    headers: Mapping[str, str]
    shards: int


PlacementFunction = Callable[[Placing], int]


class Spot(NamedTuple):
    """A concurrency shard, of the ring of time or of the rows at home."""

    shard: int
    at_home: bool = False


#: A due moment (zero: now) and where to.
Group = tuple[int, Spot]


def checked_function(place: object) -> PlacementFunction:
    """What can be called; anything else raises BadSetting."""
    if not callable(place) or isinstance(place, type) or inspect.iscoroutinefunction(place):
        message = f'{place!r:.80} is no placement: give "time", "key", "single", or an ordinary function of a Placing that gives a shard'
        raise BadSetting(message)
    function: PlacementFunction = place
    return function


class Placement:
    """Places the messages of one queue; those that nothing else decides about go to each shard in turn."""

    def __init__(self, ring: Ring, function: PlacementFunction | None = None) -> None:
        """As the queue's layout says; `function` is what it stands for if it says "function"."""
        self._ring = ring
        self._rule = ring.layout.placement
        self._function = function
        self._asked = 0
        self._turn = count()

    def row(self, moment: int, spot: Spot) -> str:
        """The row of messages with this time."""
        return self._ring.home(spot.shard) if spot.at_home else self._ring.row(moment, spot.shard)

    def groups(self, composed: Sequence[Composed | None]) -> dict[Group, Sequence[int]]:
        """Which messages go together, by their places in the list: those due at one moment that go to one spot."""
        takes_turns = self._rule not in (SINGLE, FUNCTION)
        if takes_turns and all(one and not one.due and one.key is None for one in composed):
            return {(0, spot): places for spot, places in self._runs(len(composed))}
        free = [place for place, one in enumerate(composed) if one and one.key is None] if takes_turns else []
        turns = {free[at]: spot for spot, run in self._runs(len(free)) for at in run}
        groups: dict[Group, list[int]] = {}
        for place, one in enumerate(composed):
            if one:
                groups.setdefault((one.due, turns.get(place) or self._spot(one)), []).append(place)
        return dict(groups)

    def _runs(self, number: int) -> list[tuple[Spot, range]]:
        """The next shards in turn, and which of so many messages each gets: those that follow each other, as evenly as can be."""
        shards = self._ring.layout.concurrency_shards
        runs = min(shards, -(-number // RUN))
        turns = [next(self._turn) for _ in range(runs)]  # other threads may take some between: those from the first on are ours
        bounds = [number * run // runs for run in range(runs + 1)] if runs else []
        return [(Spot((turns[0] + run) % shards), range(bounds[run], bounds[run + 1])) for run in range(runs)]

    def _spot(self, one: Composed) -> Spot:
        if self._rule == SINGLE:
            return Spot(0, at_home=True)
        if self._rule == FUNCTION:
            return Spot(self._ask(one))
        return Spot(self._ring.shard_of_key(str(one.key)), self._rule == BY_KEY)

    def _ask(self, one: Composed) -> int:
        """What the function says of a message; BadSetting if that is no answer, or not the same twice."""
        if self._function is None:
            message = f"queue {self._ring.queue!r} places messages by a function of its makers: give that with .placement(...) to send here"
            raise BadSetting(message)
        due = instant(one.due) if one.due else None
        placing = Placing(one.key, one.priority, due, one.headers or _NO_HEADERS, self._ring.layout.concurrency_shards)
        shard = _answer(self._function, placing)
        if self._asked < _ASKED_TWICE:
            self._asked += 1
            _check_again(self._function, placing, shard)
        return shard


def _answer(function: PlacementFunction, placing: Placing) -> int:
    try:
        shard: object = function(placing)
    except Exception as error:
        message = f"the placement function {_named(function)} failed for {placing}: {error!r}; nothing was sent"
        raise BadSetting(message) from error
    if not isinstance(shard, int) or isinstance(shard, bool) or not 0 <= shard < placing.shards:
        message = (
            f"the placement function {_named(function)} said {shard!r:.80} for {placing}, and must say a whole number from 0 to "
            f"{placing.shards - 1}: take it modulo `shards`; nothing was sent"
        )
        raise BadSetting(message)
    return shard


def _check_again(function: PlacementFunction, placing: Placing, shard: int) -> None:
    if (other := _answer(function, placing)) != shard:
        message = (
            f"the placement function {_named(function)} said {shard} and then {other} for {placing}: let it depend on nothing but "
            "what it is given (for a key, `zlib.crc32`; `hash` differs between processes); nothing was sent"
        )
        raise BadSetting(message)


def _named(function: PlacementFunction) -> str:
    return getattr(function, "__qualname__", repr(function))
