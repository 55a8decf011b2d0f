"""Mistakes planted into the protocol, each of which the simulation has to notice.

`python -m tests.simulation.mutants.measure` tells how soon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.protocol import steps
from astyqueue.protocol.admin import delete
from astyqueue.protocol.claiming import claim as claiming
from astyqueue.protocol.claiming import scan, selection
from astyqueue.protocol.claiming.selection import ClaimPlan, Redelivery
from astyqueue.protocol.layout.columns import HEADER, State, Timer, Type, decode_timer, message_name
from astyqueue.protocol.row import snapshot, transaction
from astyqueue.protocol.row.cursors import SCAN_LAGS
from astyqueue.protocol.row.snapshot import RowSnapshot, read_all_timers
from astyqueue.protocol.row.transaction import RowTransaction
from astyqueue.protocol.settling import outcomes, settle
from astyqueue.protocol.settling.outcomes import SettlePlan
from astyqueue.protocol.steps import Commit, Read, Steps, read, read_column
from astyqueue.queue.producing import producer
from astyqueue.store import Batch, Column, Committed, Named, Put, Slice
from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Hear
from tests.simulation.mutants.keys import HOMES
from tests.simulation.mutants.locks import LOCKS
from tests.simulation.mutants.mutant import Asked, Forward, Patches, Planted, asking_otherwise, unknown, without


def _plainly(asked: Asked) -> Asked:
    if isinstance(asked, Read) and asked.exact and asked.wanted == (Named(asked.wanted[0].row, (HEADER,)),):
        return Read(asked.wanted)
    return asked


def _know_header_last(seen: RowSnapshot, now: int) -> Steps[None]:
    if seen.known and seen.timers is not None:
        return
    timers = yield from read_all_timers(seen.row, seen.header.floor if seen.header else 0)
    column = yield from read_column(seen.row, HEADER, exact=True)
    seen.learn(column.value if column else None, now, column.written if column else None)
    seen.remember(timers)
    seen.dead = None


def _know_due_timers(seen: RowSnapshot, now: int) -> Steps[None]:
    new = not seen.known or seen.timers is None
    yield from snapshot.load_snapshot(seen, now)
    if new:
        seen.remember([timer for timer in (seen.timers or {}).values() if timer.due <= now])


def _dead_first() -> list[Patches]:
    kept: dict[str, list[Column]] = {}

    def know(seen: RowSnapshot, now: int) -> Steps[None]:
        if not seen.known or seen.timers is None:
            found = yield from read(*[Slice(seen.row, Type.DEAD, level, values=False) for level in range(seen.levels)])
            kept[seen.row] = [column for columns in found for column in columns]
        yield from snapshot.load_snapshot(seen, now)
        seen.dead = {column.name.id for column in kept.get(seen.row, [])}

    def read_one(wanted: Slice | Named) -> Steps[list[Column]]:
        if wanted.row in kept and isinstance(wanted, Slice) and wanted.type == Type.DEAD:
            return kept[wanted.row]
        return (yield from steps.read_one(wanted))

    return [mock.patch.object(scan, "load_snapshot", know), mock.patch.object(scan, "read_one", read_one)]


def _old_messages() -> list[Patches]:
    kept: dict[tuple[int, int], tuple[int, list[Column]]] = {}
    walk = scan._walk  # noqa: SLF001 - the mistake is made there

    def remembering(
        seen: RowSnapshot, wanted: Slice, now: int, *, whole: bool = False
    ) -> Steps[tuple[list[Column], bool]]:
        place = (id(seen), wanted.priority or 0)
        at, columns = kept.get(place, (0, []))
        left = [column for column in columns if column.name.id > wanted.after]
        if wanted.values and left and now - at < 30 * SECOND:
            return left[: wanted.limit], False
        found, long = yield from walk(seen, wanted, now, whole=whole)
        if wanted.values:
            more, _ = yield from walk(seen, replace(wanted, limit=50), now)
            kept[place] = (now, more)
        return found, long

    return [mock.patch.object(scan, "_walk", remembering)]


def _to_an_earlier_key() -> list[Patches]:
    honest = outcomes.plan_settle

    def careless(*values: Any, marking: bool = False) -> SettlePlan:  # noqa: ANN401, ARG001 - handed on, and nothing is marked
        worked = honest(*values)
        worked.moved, worked.sooner = [*worked.moved, *worked.sooner], []
        return worked

    return [mock.patch.object(module, "plan_settle", careless) for module in (settle, claiming)]


def _floor_only_raised() -> list[Patches]:
    honest = transaction.bump_header

    def careless(*values: Any, due: int | None) -> object:  # noqa: ANN401, ARG001 - handed on, but for the due
        return honest(*values, due=None)

    return [mock.patch.object(module, "bump_header", careless) for module in (settle, transaction)]


def _cursors_by_the_clock() -> list[Patches]:
    honest = scan.scan_row

    def careless(now: int, seen: RowSnapshot, *values: Any, **options: Any) -> Steps[ClaimPlan]:  # noqa: ANN401 - handed on as they are
        picked = yield from honest(now, seen, *values, **options)
        for cursors in seen.scans.cursors:
            cursors[:] = [max(cursor, ids.first_at(now - lag)) for cursor, lag in zip(cursors, SCAN_LAGS, strict=True)]
        return picked

    return [mock.patch.object(claiming, "scan_row", careless)]


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
    honest = delete.clear

    def careless(*values: Any) -> Steps[int]:  # noqa: ANN401 - handed on as they are
        removed = yield from honest(*values)
        change = RowTransaction(values[1])
        change.delete(HEADER)
        yield from change.commit()
        return removed

    return [mock.patch.object(delete, "clear", careless)]


def _acking_first(asked: Asked) -> Asked:
    if not isinstance(asked, Commit) or HEADER not in [each.name for each in asked.expects]:
        return asked
    leased = [
        decode_timer("", put.name, put.value)
        for put in asked.batch.puts
        if put.name.type == Type.TIMER and put.name.state == State.LEASED
    ]
    names = {message_name(entry.priority, entry.id) for timer in leased for entry in timer.entries}
    return replace(
        asked,
        batch=replace(
            asked.batch, deletes=tuple({**dict.fromkeys(asked.batch.deletes), **dict.fromkeys(sorted(names))})
        ),
    )


def _burying_nobody(asked: Asked) -> Asked:
    if not isinstance(asked, Commit):
        return asked
    dead = [put.name for put in asked.batch.puts if put.name.type == Type.DEAD]
    puts = tuple(put for put in asked.batch.puts if put.name.type != Type.DEAD)
    deletes = (*asked.batch.deletes, *[message_name(name.priority, name.id) for name in dead])
    return replace(asked, batch=Batch(asked.batch.row, puts, deletes))


def _counting_in_company() -> list[Patches]:
    honest = selection._of_timer  # noqa: SLF001 - the mistake is made there

    def careless(timer: Timer, now: int, *, company: bool) -> list[Redelivery]:  # noqa: ARG001 - that is the mistake
        found = honest(replace(timer, made_for=1, alone=True), now, company=False)
        return [again._replace(timer=timer) for again in found]

    return [mock.patch.object(selection, "_of_timer", careless)]


def _from_the_start() -> list[Patches]:
    honest = scan.scan_row

    def careless(now: int, seen: RowSnapshot, *values: Any, **options: Any) -> Steps[ClaimPlan]:  # noqa: ANN401 - handed on as they are
        for cursors in seen.scans.cursors:
            cursors[0] = ids.LEAST
        return (yield from honest(now, seen, *values, **options))

    return [mock.patch.object(claiming, "scan_row", careless)]


def _late_looks_again() -> list[Patches]:
    honest = scan.scan_row

    def careless(now: int, seen: RowSnapshot, *values: Any, **options: Any) -> Steps[ClaimPlan]:  # noqa: ANN401 - handed on as they are
        for cursors in seen.scans.cursors:
            cursors[1:] = [ids.LEAST] * len(cursors[1:])
        return (yield from honest(now, seen, *values, **options))

    return [mock.patch.object(claiming, "scan_row", careless)]


def _knowing(know: Callable[[RowSnapshot, int], Steps[None]]) -> Callable[[], list[Patches]]:
    return lambda: [mock.patch.object(scan, "load_snapshot", know)]


PLANTED: Final = (
    Planted("no header guard", 60, meddling=without(Type.LOCK)),
    Planted("header read plainly", 2_000, meddling=asking_otherwise(_plainly), first=1_720),
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
    Planted("header deleted by drop", 2_000, _dropping_headers, first=100),
    Planted("tombstones kept for 5 s", 400, grace_us=5 * SECOND),
    Planted("ack before claim", 30, meddling=asking_otherwise(_acking_first)),
    Planted("rejected messages dropped", 60, meddling=asking_otherwise(_burying_nobody)),
    Planted("attempts counted for leases that expired together", 60, _counting_in_company),
    Planted("scans begin at the start", 100, _from_the_start),
    Planted("late scans begin at the start", 100, _late_looks_again),
    *HOMES,
    *LOCKS,
)
