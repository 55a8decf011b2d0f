"""Mutants of the protocol, each of which the simulation has to detect.

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
from astyqueue.protocol.row import header_commit, snapshot
from astyqueue.protocol.row.cursors import SCAN_LAGS
from astyqueue.protocol.row.header_commit import RowTransaction
from astyqueue.protocol.row.snapshot import RowSnapshot, read_all_timers
from astyqueue.protocol.row.timer_index import TimerIndex
from astyqueue.protocol.settling import outcomes, settle
from astyqueue.protocol.settling.outcomes import SettlePlan
from astyqueue.protocol.steps import Commit, Read, Steps, read, read_column
from astyqueue.queue.producing import producer
from astyqueue.store import Batch, Column, Committed, Named, Put, Slice
from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import OnAnswer
from tests.simulation.mutants.idle import IDLE_MUTANTS
from tests.simulation.mutants.keys import KEY_MUTANTS
from tests.simulation.mutants.kinds import KIND_MUTANTS
from tests.simulation.mutants.locks import LOCK_MUTANTS
from tests.simulation.mutants.mutant import Forward, Mutant, Patches, StoreRequest, asking_otherwise, unknown, without


def _plainly(request: StoreRequest) -> StoreRequest:
    if isinstance(request, Read) and request.exact and request.wanted == (Named(request.wanted[0].row, (HEADER,)),):
        return Read(request.wanted)
    return request


def _know_header_last(seen: RowSnapshot, now: int) -> Steps[TimerIndex]:
    if seen.timers is not None:
        return seen.timers
    timers = yield from read_all_timers(seen.row, seen.header.decoded.floor if seen.header else 0)
    column = yield from read_column(seen.row, HEADER, exact=True)
    seen.learn(column.value if column else None, now, column.written if column else None)
    seen.timers = TimerIndex(timers)
    return seen.timers


def _know_due_timers(seen: RowSnapshot, now: int) -> Steps[TimerIndex]:
    new = seen.timers is None
    timers = yield from snapshot.load_snapshot(seen, now)
    if new:
        seen.timers = timers = TimerIndex(timer for timer in timers if timer.due <= now)
    return timers


def _dead_first() -> list[Patches]:
    kept: dict[str, list[Column]] = {}

    def know(seen: RowSnapshot, now: int) -> Steps[TimerIndex]:
        if seen.timers is None:
            found = yield from read(*[Slice(seen.row, Type.DEAD, level, values=False) for level in range(seen.levels)])
            kept[seen.row] = [column for columns in found for column in columns]
        timers = yield from snapshot.load_snapshot(seen, now)
        timers.dead = {column.name.id for column in kept.get(seen.row, [])}
        return timers

    def read_one(wanted: Slice | Named) -> Steps[list[Column]]:
        if wanted.row in kept and isinstance(wanted, Slice) and wanted.type == Type.DEAD:
            return kept[wanted.row]
        return (yield from steps.read_one(wanted))

    return [mock.patch.object(scan, "load_snapshot", know), mock.patch.object(scan, "read_one", read_one)]


def _old_messages() -> list[Patches]:
    kept: dict[tuple[int, int], tuple[int, list[Column]]] = {}
    read_slice = scan._read_slice  # noqa: SLF001 - the mistake is made there

    def remembering(
        seen: RowSnapshot, wanted: Slice, now: int, *, whole: bool = False
    ) -> Steps[tuple[list[Column], bool]]:
        place = (id(seen), wanted.priority or 0)
        at, columns = kept.get(place, (0, []))
        left = [column for column in columns if column.name.id > wanted.after]
        if wanted.values and left and now - at < 30 * SECOND:
            return left[: wanted.limit], False
        found, long = yield from read_slice(seen, wanted, now, whole=whole)
        if wanted.values:
            more, _ = yield from read_slice(seen, replace(wanted, limit=50), now)
            kept[place] = (now, more)
        return found, long

    return [mock.patch.object(scan, "_read_slice", remembering)]


def _to_an_earlier_key() -> list[Patches]:
    original = outcomes.plan_settle

    def mutated(*values: Any, marking: bool = False) -> SettlePlan:  # noqa: ANN401, ARG001 - handed on, and nothing is marked
        settle_plan = original(*values)
        settle_plan.moved, settle_plan.sooner = [*settle_plan.moved, *settle_plan.sooner], []
        return settle_plan

    return [mock.patch.object(module, "plan_settle", mutated) for module in (settle, claiming)]


def _floor_only_raised() -> list[Patches]:
    original = header_commit.bump_header

    def mutated(*values: Any, due: int | None) -> object:  # noqa: ANN401, ARG001 - handed on, but for the due
        return original(*values, due=None)

    return [mock.patch.object(module, "bump_header", mutated) for module in (settle, header_commit)]


def _cursors_by_the_clock() -> list[Patches]:
    original = scan.scan_row

    def mutated(now: int, seen: RowSnapshot, *values: Any, **options: Any) -> Steps[ClaimPlan]:  # noqa: ANN401 - handed on as they are
        claim_plan = yield from original(now, seen, *values, **options)
        for cursors in seen.scans.cursors:
            cursors[:] = [max(cursor, ids.first_at(now - lag)) for cursor, lag in zip(cursors, SCAN_LAGS, strict=True)]
        return claim_plan

    return [mock.patch.object(claiming, "scan_row", mutated)]


def _repeated(request: StoreRequest, forward: Forward, on_answer: OnAnswer) -> None:
    forward(request, lambda answer: forward(request, on_answer) if unknown(request, answer) else on_answer(answer))


def _repeated_unconditionally(request: StoreRequest, forward: Forward, on_answer: OnAnswer) -> None:
    again = replace(request, expects=()) if isinstance(request, Commit) else request
    forward(request, lambda answer: forward(again, on_answer) if unknown(request, answer) else on_answer(answer))


def _taken_for_done(request: StoreRequest, forward: Forward, on_answer: OnAnswer) -> None:
    forward(request, lambda answer: on_answer(Committed() if unknown(request, answer) else answer))


def _stamped_with_due(priority: int, id_: Id, value: bytes, *, sent: int) -> Put:  # noqa: ARG001 - that is the mistake
    return Put(message_name(priority, id_), value, ids.moment(id_))


def _dropping_headers() -> list[Patches]:
    original = delete.clear

    def mutated(*values: Any) -> Steps[int]:  # noqa: ANN401 - handed on as they are
        removed = yield from original(*values)
        change = RowTransaction(values[1])
        change.delete(HEADER)
        yield from change.commit()
        return removed

    return [mock.patch.object(delete, "clear", mutated)]


def _acking_first(request: StoreRequest) -> StoreRequest:
    if not isinstance(request, Commit) or HEADER not in [each.name for each in request.expects]:
        return request
    leased = [
        decode_timer("", put.name, put.value)
        for put in request.batch.puts
        if put.name.type == Type.TIMER and put.name.state == State.LEASED
    ]
    names = {message_name(entry.priority, entry.id) for timer in leased for entry in timer.entries}
    return replace(
        request,
        batch=replace(
            request.batch, deletes=tuple({**dict.fromkeys(request.batch.deletes), **dict.fromkeys(sorted(names))})
        ),
    )


def _keeping_no_dead_letters(request: StoreRequest) -> StoreRequest:
    if not isinstance(request, Commit):
        return request
    dead = [put.name for put in request.batch.puts if put.name.type == Type.DEAD]
    puts = tuple(put for put in request.batch.puts if put.name.type != Type.DEAD)
    deletes = (*request.batch.deletes, *[message_name(name.priority, name.id) for name in dead])
    return replace(request, batch=Batch(request.batch.row, puts, deletes))


def _counting_in_company() -> list[Patches]:
    original = selection._of_timer  # noqa: SLF001 - the mistake is made there

    def mutated(timer: Timer, now: int, *, company: bool) -> list[Redelivery]:  # noqa: ARG001 - that is the mistake
        found = original(replace(timer, made_for=1, alone=True), now, company=False)
        return [again._replace(timer=timer) for again in found]

    return [mock.patch.object(selection, "_of_timer", mutated)]


def _from_the_start() -> list[Patches]:
    original = scan.scan_row

    def mutated(now: int, seen: RowSnapshot, *values: Any, **options: Any) -> Steps[ClaimPlan]:  # noqa: ANN401 - handed on as they are
        for cursors in seen.scans.cursors:
            cursors[0] = ids.LEAST
        return (yield from original(now, seen, *values, **options))

    return [mock.patch.object(claiming, "scan_row", mutated)]


def _late_looks_again() -> list[Patches]:
    original = scan.scan_row

    def mutated(now: int, seen: RowSnapshot, *values: Any, **options: Any) -> Steps[ClaimPlan]:  # noqa: ANN401 - handed on as they are
        for cursors in seen.scans.cursors:
            cursors[1:] = [ids.LEAST] * len(cursors[1:])
        return (yield from original(now, seen, *values, **options))

    return [mock.patch.object(claiming, "scan_row", mutated)]


def _knowing(know: Callable[[RowSnapshot, int], Steps[TimerIndex]]) -> Callable[[], list[Patches]]:
    return lambda: [mock.patch.object(scan, "load_snapshot", know)]


MUTANTS: Final = (
    Mutant("no header guard", 60, interceptor=without(Type.LOCK)),
    Mutant("header read plainly", 2_000, interceptor=asking_otherwise(_plainly), first=270),
    Mutant("header read last", 200, _knowing(_know_header_last)),
    Mutant("only due timers known", 60, _knowing(_know_due_timers)),
    Mutant("timers read again, old messages kept", 200, _old_messages),
    Mutant("dead columns read before timers", 400, _dead_first),
    Mutant("a settle moves a timer to an earlier key", 400, _to_an_earlier_key),
    Mutant("no expectation on a replaced timer", 60, interceptor=without(Type.TIMER)),
    Mutant("floor only raised", 200, _floor_only_raised),
    Mutant("cursors moved by the clock", 200, _cursors_by_the_clock),
    Mutant("a commit repeated blindly", 400, interceptor=_repeated, first=20),
    Mutant("a commit repeated without its expectations", 200, interceptor=_repeated_unconditionally),
    Mutant("an unknown outcome taken for done", 200, interceptor=_taken_for_done),
    Mutant("stamps from the due time", 400, lambda: [mock.patch.object(producer, "message_put", _stamped_with_due)]),
    Mutant("header deleted by drop", 2_000, _dropping_headers),
    Mutant("tombstones kept for 5 s", 400, grace_us=5 * SECOND),
    Mutant("ack before claim", 30, interceptor=asking_otherwise(_acking_first)),
    Mutant("rejected messages dropped", 60, interceptor=asking_otherwise(_keeping_no_dead_letters)),
    Mutant("attempts counted for leases that expired together", 60, _counting_in_company),
    Mutant("scans begin at the start", 100, _from_the_start),
    Mutant("late scans begin at the start", 100, _late_looks_again),
    *KEY_MUTANTS,
    *KIND_MUTANTS,
    *LOCK_MUTANTS,
    *IDLE_MUTANTS,
)
