"""Mistakes planted into the protocol, each of which the simulation has to notice.

`python -m tests.simulation.measure` tells how soon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from astyqueue import ids
from astyqueue.clock import SECOND
from astyqueue.ids import Id
from astyqueue.protocol import claim as claiming
from astyqueue.protocol import look, outcomes, picking, raising, remove, settle, sight, steps
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import HEADER, State, Timer, Type, decode_timer, message_name
from astyqueue.protocol.looks import LAGS
from astyqueue.protocol.outcomes import Worked
from astyqueue.protocol.picking import Again, Picked
from astyqueue.protocol.sight import Sight, all_timers
from astyqueue.protocol.steps import Commit, Read, Steps, read, read_column
from astyqueue.queue import producer
from astyqueue.store import Batch, Column, Committed, Named, Put, Slice
from astyqueue.testing.simulation import Fault
from astyqueue.testing.simulation.cluster import Hear
from astyqueue.testing.simulation.people import Person
from tests.simulation.planted_homes import HOMES
from tests.simulation.planting import Asked, Forward, Patches, Planted, asking_otherwise, unknown, without


def _plainly(asked: Asked) -> Asked:
    if isinstance(asked, Read) and asked.exact and asked.wanted == (Named(asked.wanted[0].row, (HEADER,)),):
        return Read(asked.wanted)
    return asked


def _know_header_last(seen: Sight, now: int) -> Steps[None]:
    if seen.known and seen.timers is not None:
        return
    timers = yield from all_timers(seen.row, seen.header.floor if seen.header else 0)
    column = yield from read_column(seen.row, HEADER, exact=True)
    seen.learn(column.value if column else None, now, column.written if column else None)
    seen.remember(timers)
    seen.dead = None


def _know_due_timers(seen: Sight, now: int) -> Steps[None]:
    new = not seen.known or seen.timers is None
    yield from sight.know(seen, now)
    if new:
        seen.remember([timer for timer in (seen.timers or {}).values() if timer.due <= now])


def _dead_first() -> list[Patches]:
    kept: dict[str, list[Column]] = {}

    def know(seen: Sight, now: int) -> Steps[None]:
        if not seen.known or seen.timers is None:
            found = yield from read(*[Slice(seen.row, Type.DEAD, level, values=False) for level in range(seen.levels)])
            kept[seen.row] = [column for columns in found for column in columns]
        yield from sight.know(seen, now)
        seen.dead = {column.name.id for column in kept.get(seen.row, [])}

    def read_one(wanted: Slice | Named) -> Steps[list[Column]]:
        if wanted.row in kept and isinstance(wanted, Slice) and wanted.type == Type.DEAD:
            return kept[wanted.row]
        return (yield from steps.read_one(wanted))

    return [mock.patch.object(look, "know", know), mock.patch.object(look, "read_one", read_one)]


def _old_messages() -> list[Patches]:
    kept: dict[tuple[int, int], tuple[int, list[Column]]] = {}
    walk = look._walk  # noqa: SLF001 - the mistake is made there

    def remembering(seen: Sight, wanted: Slice, now: int) -> Steps[tuple[list[Column], bool]]:
        place = (id(seen), wanted.priority or 0)
        at, columns = kept.get(place, (0, []))
        left = [column for column in columns if column.name.id > wanted.after]
        if wanted.values and left and now - at < 30 * SECOND:
            return left[: wanted.limit], False
        found, long = yield from walk(seen, wanted, now)
        if wanted.values:
            more, _ = yield from walk(seen, replace(wanted, limit=50), now)
            kept[place] = (now, more)
        return found, long

    return [mock.patch.object(look, "_walk", remembering)]


def _to_an_earlier_key() -> list[Patches]:
    honest = outcomes.work_out

    def careless(*values: Any, marking: bool = False) -> Worked:  # noqa: ANN401, ARG001 - handed on, and nothing is marked
        worked = honest(*values)
        worked.moved, worked.sooner = [*worked.moved, *worked.sooner], []
        return worked

    return [mock.patch.object(module, "work_out", careless) for module in (settle, claiming)]


def _floor_only_raised() -> list[Patches]:
    honest = settle.raise_for

    def careless(*values: Any, due: int | None) -> object:  # noqa: ANN401, ARG001 - handed on, but for the due
        return honest(*values, due=None)

    return [mock.patch.object(module, "raise_for", careless) for module in (settle, raising)]


def _cursors_by_the_clock() -> list[Patches]:
    honest = look.look

    def careless(now: int, seen: Sight, *values: Any, **options: Any) -> Steps[Picked]:  # noqa: ANN401 - handed on as they are
        picked = yield from honest(now, seen, *values, **options)
        for cursors in seen.looks.cursors:
            cursors[:] = [max(cursor, ids.first_at(now - lag)) for cursor, lag in zip(cursors, LAGS, strict=True)]
        return picked

    return [mock.patch.object(claiming, "look", careless)]


def _repeated(asked: Asked, forward: Forward, hear: Hear) -> None:
    forward(asked, lambda answer: forward(asked, hear) if unknown(asked, answer) else hear(answer))


def _repeated_unconditionally(asked: Asked, forward: Forward, hear: Hear) -> None:
    again = replace(asked, expects=()) if isinstance(asked, Commit) else asked
    forward(asked, lambda answer: forward(again, hear) if unknown(asked, answer) else hear(answer))


def _taken_for_done(asked: Asked, forward: Forward, hear: Hear) -> None:
    forward(asked, lambda answer: hear(Committed() if unknown(asked, answer) else answer))


def _stamped_with_due(priority: int, id_: Id, value: bytes, *, sent: int) -> Put:  # noqa: ARG001 - that is the mistake
    return Put(message_name(priority, id_), value, ids.moment(id_))


def _dropping_headers() -> list[Patches]:
    honest = remove.clear

    def careless(*values: Any) -> Steps[int]:  # noqa: ANN401 - handed on as they are
        removed = yield from honest(*values)
        change = Change(values[1])
        change.delete(HEADER)
        yield from change.commit()
        return removed

    often = mock.patch.object(Person, "_delete", Person._clear)  # noqa: SLF001 - who deletes one message clears the row instead
    return [mock.patch.object(remove, "clear", careless), often]


def _acking_first(asked: Asked) -> Asked:
    if not isinstance(asked, Commit) or HEADER not in [each.name for each in asked.expects]:
        return asked
    leased = [
        decode_timer("", put.name, put.value) for put in asked.batch.puts if put.name.type == Type.TIMER and put.name.state == State.LEASED
    ]
    names = {message_name(entry.priority, entry.id) for timer in leased for entry in timer.entries}
    return replace(asked, batch=replace(asked.batch, deletes=tuple({**dict.fromkeys(asked.batch.deletes), **dict.fromkeys(sorted(names))})))


def _burying_nobody(asked: Asked) -> Asked:
    if not isinstance(asked, Commit):
        return asked
    dead = [put.name for put in asked.batch.puts if put.name.type == Type.DEAD]
    puts = tuple(put for put in asked.batch.puts if put.name.type != Type.DEAD)
    deletes = (*asked.batch.deletes, *[message_name(name.priority, name.id) for name in dead])
    return replace(asked, batch=Batch(asked.batch.row, puts, deletes))


def _counting_in_company() -> list[Patches]:
    honest = picking._of_timer  # noqa: SLF001 - the mistake is made there

    def careless(timer: Timer, now: int, *, company: bool) -> list[Again]:  # noqa: ARG001 - that is the mistake
        found = honest(replace(timer, made_for=1, alone=True), now, company=False)
        return [again._replace(timer=timer) for again in found]

    return [mock.patch.object(picking, "_of_timer", careless)]


def _from_the_start() -> list[Patches]:
    honest = look.look

    def careless(now: int, seen: Sight, *values: Any, **options: Any) -> Steps[Picked]:  # noqa: ANN401 - handed on as they are
        for cursors in seen.looks.cursors:
            cursors[0] = ids.LEAST
        return (yield from honest(now, seen, *values, **options))

    return [mock.patch.object(claiming, "look", careless)]


def _knowing(know: Callable[[Sight, int], Steps[None]]) -> Callable[[], list[Patches]]:
    return lambda: [mock.patch.object(look, "know", know)]


#: What tears commits apart, for mistakes that show only then.
_BROKEN: Final = frozenset({Fault.DROPS, Fault.DELAYS, Fault.PARTITIONS, Fault.NODE_PAUSES})

PLANTED: Final = (
    Planted("no header guard", 60, meddling=without(Type.LOCK)),
    Planted("header read plainly", 2_000, meddling=asking_otherwise(_plainly), always=_BROKEN, first=200),
    Planted("header read last", 200, _knowing(_know_header_last)),
    Planted("only due timers known", 60, _knowing(_know_due_timers)),
    Planted("timers read again, old messages kept", 200, _old_messages),
    Planted("dead columns read before timers", 400, _dead_first),
    Planted("a settle moves a timer to an earlier key", 400, _to_an_earlier_key),
    Planted("no expectation on a replaced timer", 60, meddling=without(Type.TIMER)),
    Planted("floor only raised", 200, _floor_only_raised),
    Planted("cursors moved by the clock", 200, _cursors_by_the_clock),
    Planted("a commit repeated blindly", 400, meddling=_repeated, first=20),
    Planted("a commit repeated without its expectations", 200, meddling=_repeated_unconditionally),
    Planted("an unknown outcome taken for done", 200, meddling=_taken_for_done),
    Planted("stamps from the due time", 400, lambda: [mock.patch.object(producer, "message_put", _stamped_with_due)]),
    Planted("header deleted by drop", 2_000, _dropping_headers, always=frozenset({Fault.CLIENT_PAUSES, Fault.DELAYS}), first=40),
    Planted("graves kept for 5 s", 400, grace_us=5 * SECOND),
    Planted("ack before claim", 30, meddling=asking_otherwise(_acking_first)),
    Planted("rejected messages dropped", 60, meddling=asking_otherwise(_burying_nobody)),
    Planted("expiries counted in company", 60, _counting_in_company),
    Planted("looks begin at the start", 100, _from_the_start),
    *HOMES,
)
