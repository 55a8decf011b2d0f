"""What lands behind all looks is found, whatever the row, at a cost that has a bound."""

from __future__ import annotations

import random

import pytest

from astyqueue import ids
from astyqueue.durations import as_microseconds
from astyqueue.ids import Id
from astyqueue.model.envelope import encode_plain
from astyqueue.model.settings import Layout
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.row.paging import PAGE_SIZE
from astyqueue.protocol.row.rescan import RESCANNED, LastRescan, last_rescan_in, write_last_rescan
from astyqueue.protocol.sending.idempotent import idempotent_message, send_idempotent
from astyqueue.protocol.sending.insert import message_put
from astyqueue.protocol.steps import Client, Read, Send, run
from astyqueue.queue.row_sharing.rescans import EVERY, due, since
from astyqueue.store import Batch, Column, Named, Slice, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.queue.stepped_workers import Crew, Worker

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
RING = Layout(time_shards=30, concurrency_shards=1)
NEVER_CLOSES = Layout()
MAX = 1 << 62
#: What the documentation states: half a day, and a little for the processes to agree on who does it.
FOUND_WITHIN = EVERY + 30 * MINUTE


def left_to_the_full_run(*moments: str) -> list[object]:
    """These as parameters of `make test-full`: a day that passes minute by minute takes seconds."""
    return [pytest.param(moment, marks=pytest.mark.full) for moment in moments]


@pytest.fixture(autouse=True)
def _the_same_every_time() -> None:
    """Processes differ by chance in when they ask about a row."""
    random.seed(1)


@pytest.fixture
def store(clock: TimeMachine) -> Store:
    return MemoryStore(clock)


def working(store: Store, clock: TimeMachine, layout: Layout) -> tuple[Crew, Worker]:
    crew = Crew(store, clock, layout)
    return crew, crew.join(hands=1_000)


def pass_time(crew: Crew, duration: str, *, sends: Worker | None = None) -> None:
    """Let time pass, minute by minute; with `sends` a message comes every ten minutes."""
    for minute in range(as_microseconds(duration) // MINUTE):
        if sends and minute % 10 == 0:
            sends.send(1)
        crew.pass_time(MINUTE, step=MINUTE)


def land(crew: Crew, store: Store, row: str, moment: int) -> Id:
    """A message of this moment lands now, and its producer is dead."""
    id_ = Client("dead", crew.clock.now).id_at(moment)
    store.send(Batch(row, (message_put(0, id_, encode_plain(moment, b'"late"'), sent=moment),)))
    return id_


def found_after(crew: Crew, worker: Worker, id_: Id, *, within: int) -> int:
    """How long it takes until a message is handed out; its worker goes on sending."""
    began = crew.clock.now()
    while crew.clock.now() - began < within:
        pass_time(crew, "10m", sends=worker)
        for at, delivery in worker.got:
            if delivery.id == id_:
                return at - began
    pytest.fail(f"not found within {within // HOUR} h")


@pytest.mark.parametrize(
    "layout",
    [
        RING,
        Layout(time_shards=2),
        Layout(time_shards=242),
        Layout(time_shards=180, time_shard_us=10 * MINUTE),
        Layout(time_shards=3, time_shard_us=10 * SECOND),
        Layout(time_shards=7, time_shard_us=11 * HOUR),
    ],
)
def test_whatever_the_ring_each_moment_is_covered_by_a_rescan_within_half_a_day_of_landing(layout: Layout) -> None:
    ring = Ring("mail", layout)
    row, lap = ring.row(5 * layout.time_shard_us, 0), ring.lap
    begins = 400_000 * lap + layout.time_shards * 7 * MINUTE
    last, rescans = LastRescan(begins), []
    while last.began < begins + 4 * lap + EVERY:
        start = due(ring, row, last)
        rescans.append((since(ring, row, last, start), start))
        last = LastRescan(start)
    turn = ring.turn(row, begins + 2 * lap)
    assert turn is not None
    for moment in (turn, turn + layout.time_shard_us // 2, turn + layout.time_shard_us - 1):
        for landed in (moment + lap * part // 16 for part in range(17)):
            seen_to = max(landed, turn + layout.time_shard_us + 10 * MINUTE)
            first = next(
                start for start_from, start in rescans if start >= landed and start_from <= moment < start - 10 * MINUTE
            )
            assert first - seen_to <= EVERY
        times = sum(start_from <= moment < start - 10 * MINUTE for start_from, start in rescans)
        assert times <= (lap + layout.time_shard_us) // EVERY + 2 + 10 * MINUTE // lap


@pytest.mark.parametrize("late", [*left_to_the_full_run("90m", "20h", "28h50m", "29h30m", "30h"), "5h"])
def test_what_lands_in_a_closed_row_is_found_within_half_a_day_until_the_ring_has_come_round(
    store: Store, clock: TimeMachine, late: str
) -> None:
    crew, worker = working(store, clock, RING)
    pass_time(crew, "1h", sends=worker)
    moment = clock.now() - 30 * MINUTE
    pass_time(crew, late, sends=worker)
    stray = land(crew, store, worker.core.ring.row(moment, 0), moment)
    assert found_after(crew, worker, stray, within=FOUND_WITHIN) <= FOUND_WITHIN


def test_what_lands_in_a_closed_row_is_found_although_nothing_else_ever_happens_in_the_queue(
    store: Store, clock: TimeMachine
) -> None:
    crew, worker = working(store, clock, RING)
    worker.send(3)
    pass_time(crew, "90m")
    moment = clock.now() - 90 * MINUTE
    stray = land(crew, store, worker.core.ring.row(moment, 0), moment)
    pass_time(crew, "12h30m")
    assert stray in {delivery.id for _, delivery in worker.got}


@pytest.mark.parametrize("late", [*left_to_the_full_run("11m", "5h"), "11h30m"])
@pytest.mark.parametrize("row", ["mail:0:0", "mail:home:0"])
def test_what_lands_in_a_row_that_never_closes_is_found_within_half_a_day(
    store: Store, clock: TimeMachine, row: str, late: str
) -> None:
    """With the twenty minutes before, the latest of them lands just under twelve hours after its time."""
    crew, worker = working(store, clock, NEVER_CLOSES)
    worker.send(1)
    worker.send(1, key="of the home row", unique="reject")
    pass_time(crew, "20m", sends=worker)
    moment = clock.now() - 20 * MINUTE - SECOND
    pass_time(crew, late, sends=worker)
    stray = land(crew, store, row, moment)
    assert found_after(crew, worker, stray, within=FOUND_WITHIN) <= FOUND_WITHIN


def test_what_lands_behind_the_last_message_that_timers_listed_is_found_within_half_a_day(
    store: Store, clock: TimeMachine
) -> None:
    """Its process has passed that message since, but has claimed nothing by which the header says so."""
    crew = Crew(store, clock, NEVER_CLOSES)
    worker = crew.join(hands=1)
    for _ in range(2):
        row = worker.core.ring.row(clock.now(), 0)
        one = idempotent_message(encode_plain(clock.now(), b'"repeatable"'), 0, ids.first_at(clock.now()))
        run(send_idempotent(Client("spool", clock.now), row, [one]), store)
        pass_time(crew, "20m")
    assert len(worker.got) == 2
    stray = land(crew, store, row, clock.now() - 21 * MINUTE)
    pass_time(crew, "13h")
    assert stray in [delivery.id for _, delivery in worker.got]


@pytest.mark.parametrize("late", ["2h", *left_to_the_full_run("20h")])
def test_the_next_process_rescans_what_its_forerunner_did_not_come_to(
    store: Store, clock: TimeMachine, late: str
) -> None:
    """Workers that are replaced more often than twice a day would never rescan anything if each began to count anew."""
    crew, worker = working(store, clock, RING)
    pass_time(crew, "3h", sends=worker)
    moment = clock.now() - 150 * MINUTE
    pass_time(crew, late, sends=worker)
    stray = land(crew, store, worker.core.ring.row(moment, 0), moment)
    for _ in range(13):
        worker.dead = True
        worker = crew.join(hands=1_000)
        pass_time(crew, "1h", sends=worker)
    assert stray in {delivery.id for each in crew.workers for _, delivery in each.got}


def test_a_process_that_dies_in_a_rescan_leaves_it_to_others(store: Store, clock: TimeMachine) -> None:
    crew, worker = working(store, clock, NEVER_CLOSES)
    worker.send(1)
    pass_time(crew, "20m", sends=worker)
    moment = clock.now() - 20 * MINUTE - SECOND
    land(crew, store, "mail:0:0", moment)
    store.send(rescanned(LastRescan(clock.now() - EVERY - MINUTE, clock.now())))
    other = crew.join(hands=1_000)
    worker.dead = True
    pass_time(crew, "4m")
    assert not other.got
    pass_time(crew, "10m")
    assert len(other.got) == 1


@pytest.mark.full
def test_processes_rescan_a_row_once_between_them(store: Store, clock: TimeMachine) -> None:
    crew, worker = working(store, clock, RING)
    for _ in range(2):
        crew.join(hands=1_000)
    pass_time(crew, "14h", sends=worker)
    for each in crew.workers:
        each.requests.clear()
    row = worker.core.ring.row(clock.now() - 8 * HOUR, 0)
    pass_time(crew, "12h", sends=worker)
    assert 1 <= sum(completed(each, row) for each in crew.workers) <= 2


@pytest.mark.full
def test_each_id_is_rescanned_a_fixed_number_of_times(store: Store, clock: TimeMachine) -> None:
    """The figure that the documentation states: as often as half a day goes into a lap and one turn more, and twice."""
    crew, worker = working(store, clock, RING)
    pass_time(crew, "30m", sends=worker)
    worker.send(500)
    row, seen = worker.core.ring.row(clock.now(), 0), worker.got[-1][1].id
    pass_time(crew, "70h", sends=worker)
    times = sum(wanted.after <= seen < wanted.until for wanted in rescanning(worker, row))
    assert times <= (RING.time_shards + 1) * RING.time_shard_us // EVERY + 2


@pytest.mark.full
def test_a_row_that_never_closes_is_rescanned_twice_a_day_and_each_id_of_it_twice(
    store: Store, clock: TimeMachine
) -> None:
    crew, worker = working(store, clock, NEVER_CLOSES)
    pass_time(crew, "30m", sends=worker)
    seen = worker.got[-1][1].id
    pass_time(crew, "3d", sends=worker)
    assert 2 <= sum(wanted.after <= seen < wanted.until for wanted in rescanning(worker, "mail:0:0")) <= 3
    assert 5 <= completed(worker, "mail:0:0") <= 7


def test_a_row_in_which_nothing_passed_costs_a_read_of_its_header(store: Store, clock: TimeMachine) -> None:
    crew, worker = working(store, clock, RING)
    worker.send(1)
    pass_time(crew, "45h")
    worker.requests.clear()
    pass_time(crew, "15h")
    assert not rescanning(worker)
    asked = sum(isinstance(wanted, Named) and RESCANNED in wanted.names for wanted in slices(worker))
    assert asked <= 2 * len(worker.core.ring.rows())


def rescanned(last: LastRescan) -> Batch:
    [request] = write_last_rescan("mail:0:0", last)
    assert isinstance(request, Send)
    return request.batch


def completed(worker: Worker, row: str) -> int:
    """How many rescans of a row a worker brought to their end."""
    puts = [
        put
        for request in worker.requests
        if isinstance(request, Send) and request.batch.row == row
        for put in request.batch.puts
    ]
    return sum(put.name == RESCANNED and not last_rescan_in(Column(*put[:2], MAX), MAX).going for put in puts)


def slices(worker: Worker) -> list[Slice | Named]:
    """All that a worker ever read."""
    return [wanted for request in worker.requests if isinstance(request, Read) for wanted in request.wanted]


def rescanning(worker: Worker, row: str | None = None) -> list[Slice]:
    """The slices that its rescans read: names alone from an id on, where late looks begin behind one."""
    found = [
        wanted
        for wanted in slices(worker)
        if isinstance(wanted, Slice) and wanted.type == Type.MESSAGE and wanted.limit == PAGE_SIZE
    ]
    return [wanted for wanted in found if not wanted.values and not wanted.beyond and row in (None, wanted.row)]
