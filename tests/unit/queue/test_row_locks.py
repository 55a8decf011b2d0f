"""The locks of rows, all three alike: who goes first, and that nothing depends on it."""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Iterator

import pytest

from astyqueue.errors import Undecodable
from astyqueue.model.settings import Layout, Settings
from astyqueue.protocol.admin.browse import counts
from astyqueue.protocol.layout.columns import HEADER, Type
from astyqueue.protocol.steps import Client, Commit, Read, Send, run
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.options import DEFAULT_OPTIONS, with_lock
from astyqueue.queue.row_sharing.external_lock import CallingThread, ManagerCall
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.store import Batch, Name, Put, Slice, Store
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.support.places import Place
from tests.unit.queue.clients import Party, claims
from tests.unit.queue.lock_managers import Broken, Locks, Mumbling, No, Shelf, Silent, Telling, Yes
from tests.unit.queue.stepped_workers import MILLISECOND, Crew

EVERY = ("guard", "columns", "manager")
#: Locks that let one process in at a time; the guard lets all in, and one commit through.
EXCLUSIVE = ("columns", "manager")
ROW = "mail:0:0"
TWO_ROWS = Layout(concurrency_shards=2)


@pytest.fixture(autouse=True)
def _the_same_every_time() -> None:
    """Processes differ by chance in how patient they are."""
    random.seed(1)


@pytest.fixture
def locks() -> Locks:
    return Locks()


@pytest.fixture
def heard() -> Iterator[threading.Event]:
    """Set when a manager's failure is logged; the thread that calls the manager logs it."""
    told = threading.Event()

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("lock_manager_failed "):
                told.set()

    logger, hearing = logging.getLogger("astyqueue.queue"), Hearing(logging.ERROR)
    logger.addHandler(hearing)
    yield told
    logger.removeHandler(hearing)


def lock_columns(store: Store, row: str = ROW) -> list[Name]:
    [columns] = store.read((Slice(row, Type.LOCK),))
    return [column.name for column in columns if column.name != HEADER]


def left(store: Store, clock: TimeMachine, layout: Layout | None = None) -> int:
    process = Client("judge", clock.now)
    return run(
        counts(
            process, QueueRuntime(Settings(name="mail", layout=layout or Layout()), clock, ()).ring.rows(), levels=1
        ),
        store,
    ).total


@pytest.mark.parametrize("lock", EXCLUSIVE)
@pytest.mark.every_store
def test_while_one_process_claims_from_a_row_others_keep_out(
    store: Store, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    ann, bob = (Party(store, clock, locks.client_options(lock)) for _ in range(2))
    ann.send(15)
    ann.stop_before()
    assert bob.take() == []
    assert bob.core.claimer.stats.busy_rows == 1
    assert not any(map(claims, bob.requests))
    assert len(ann.go_on()) == 10
    locks.shelf.wait_until_free()
    clock.advance("100ms")
    assert len(bob.take()) == 5
    assert ann.core.claimer.stats.refused_commits == bob.core.claimer.stats.refused_commits == 0


@pytest.mark.parametrize("lock", EVERY)
def test_a_receipt_is_current_once_although_a_lock_ran_out_in_the_middle_of_a_claim(
    store: Store, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    ann, bob = (Party(store, clock, locks.client_options(lock)) for _ in range(2))
    ann.send(15)
    ann.stop_before()
    got = bob.take()
    while len(got) < 10:
        clock.advance("1s")
        got = bob.take()
    others = ann.go_on()
    locks.shelf.wait_until_free()
    clock.advance("1s")
    others += ann.take()
    assert len({delivery.id for delivery in [*got, *others]}) == len([*got, *others]) == 15
    assert all(map(bob.is_current, got))
    assert all(map(ann.is_current, others))
    assert lock_columns(store) == []


@pytest.mark.parametrize("manager", [Yes, No, Broken, Mumbling, Telling])
def test_a_manager_that_lies_or_fails_loses_nothing_and_doubles_nothing(
    store: Store, clock: TimeMachine, manager: type[Shelf], heard: threading.Event
) -> None:
    client_options = with_lock(DEFAULT_OPTIONS, manager(), "5s")
    ann, bob = Party(store, clock, client_options), Party(store, clock, client_options)
    began = clock.now()
    ann.send(30)
    got: list[BaseDelivery] = []
    while len(got) < 30 and clock.now() < began + 20 * SECOND:
        if manager is Yes:
            ann.stop_before()
        got += bob.take()
        got += ann.go_on() if manager is Yes else ann.take()
        clock.advance("500ms")
    assert len({delivery.id for delivery in got}) == len(got) == 30
    assert all(map(ann.is_current, got))
    assert heard.wait(10) if manager in (Broken, Mumbling) else not heard.is_set()


@pytest.mark.parametrize("lock", EVERY)
def test_a_dead_holder_stops_a_row_for_the_timeout_and_no_longer(
    store: Store, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    crew = Crew(store, clock, Layout())
    dead = Party(store, clock, locks.client_options(lock))
    dead.send(5)
    dead.stop_before()
    began = clock.now()
    worker = crew.join(client_options=locks.client_options(lock))
    crew.pass_time(6 * SECOND, step=20 * MILLISECOND)
    waited = [at - began for at, _ in worker.got]
    assert len(waited) == 5
    assert max(waited) <= 5.2 * SECOND
    assert lock == "guard" or min(waited) >= 4.9 * SECOND
    assert lock_columns(store) == []


@pytest.mark.parametrize("lock", EVERY)
@pytest.mark.every_store
def test_a_row_is_let_go_of_in_the_commit_of_the_claim(
    place: Place, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    store = place.store(clock)
    usual, party = Party(place.store(clock), clock), Party(store, clock, locks.client_options(lock))
    for each in (usual, party):
        each.send(5)
        each.requests.clear()
        assert len(each.take()) == 5
    requests = [
        [sum(isinstance(request, kind) for request in each.requests) for kind in (Send, Read, Commit)]
        for each in (usual, party)
    ]
    extra = [more - less for less, more in zip(*requests, strict=True)]
    assert extra == ([2, 1, 0] if lock == "columns" else [0, 0, 0])
    last = party.requests[-1]
    assert claims(last)
    assert isinstance(last, Commit)
    assert sum(name.type == Type.LOCK for name in last.batch.deletes) == (lock == "columns")
    assert lock_columns(store) == []
    locks.shelf.wait_until_free()
    assert locks.shelf.released == ([ROW] if lock == "manager" else [])


@pytest.mark.parametrize("lock", EXCLUSIVE)
def test_a_row_with_nothing_to_claim_is_let_go_of_too(
    store: Store, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    ann, bob = (Party(store, clock, locks.client_options(lock)) for _ in range(2))
    ann.send()
    assert len(ann.take()) == 1
    clock.advance("1s")
    assert ann.take() == []
    assert lock_columns(store) == []
    locks.shelf.wait_until_free()
    ann.send()
    clock.advance("1s")
    assert len(bob.take()) == 1


@pytest.mark.parametrize("lock", EXCLUSIVE)
def test_a_row_that_cannot_be_claimed_from_is_let_go_of_too(
    store: Store, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    party = Party(store, clock, locks.client_options(lock))
    party.send()
    store.commit(Batch(ROW, (Put(HEADER, b"\xff"),)), ())
    with pytest.raises(Undecodable):
        party.take()
    assert lock_columns(store) == []
    locks.shelf.wait_until_free()


@pytest.fixture
def _managers_answer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise who gets a lock next is decided by when a thread runs, not by the steps of a test."""

    def carry_out(thread: CallingThread, call: ManagerCall) -> None:
        call.carry_out(thread._manager)  # noqa: SLF001 - as the thread does

    monkeypatch.setattr(CallingThread, "hand_in", carry_out)


@pytest.mark.parametrize(
    "layout", [Layout(), pytest.param(TWO_ROWS, marks=pytest.mark.full)], ids=["one row", "two rows"]
)
@pytest.mark.parametrize("lock", EVERY)
@pytest.mark.every_store
@pytest.mark.usefixtures("_managers_answer_at_once")
def test_two_processes_both_get_their_part(
    store: Store, clock: TimeMachine, locks: Locks, lock: str, layout: Layout
) -> None:
    crew = Crew(store, clock, layout)
    ann, bob = (
        crew.join(client_options=locks.client_options(lock), hands=5, busy_for=10 * MILLISECOND, paced=True)
        for _ in range(2)
    )
    sender = crew.outsider()
    crew.pass_time(SECOND, each=lambda: sender.send(1), step=MILLISECOND)
    parts = [len(ann.got), len(bob.got)]
    assert min(parts) * 3 >= max(parts) > 0, parts


@pytest.mark.parametrize("lock", EVERY)
def test_an_ack_goes_through_while_somebody_else_has_the_row(
    store: Store, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    ann, bob = (Party(store, clock, locks.client_options(lock)) for _ in range(2))
    ann.send(15)
    mine = ann.take()
    locks.shelf.wait_until_free()
    clock.advance("1s")
    bob.stop_before()
    assert all(map(ann.is_current, mine))
    assert left(store, clock) == 5
    assert len(bob.go_on()) == 5


@pytest.mark.parametrize("lock", EXCLUSIVE)
def test_a_busy_row_costs_the_others_nothing_and_is_soon_tried_again(
    store: Store, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    crew = Crew(store, clock, TWO_ROWS)
    holder = Party(store, clock, locks.client_options(lock), TWO_ROWS)
    holder.send(11)
    holder.stop_before()
    holder.send(5)
    worker = crew.join(client_options=locks.client_options(lock))
    crew.pass_time(200 * MILLISECOND)
    assert {delivery.row for _, delivery in worker.got} == {"mail:0:1"}
    assert len(worker.got) == 5
    assert len(holder.go_on()) == 10
    locks.shelf.wait_until_free()
    crew.pass_time(200 * MILLISECOND)
    assert len(worker.got) == 6


def test_processes_with_different_locks_share_a_queue(store: Store, clock: TimeMachine, locks: Locks) -> None:
    crew = Crew(store, clock, TWO_ROWS)
    for lock in (*EVERY, "columns"):
        crew.join(client_options=locks.client_options(lock), hands=5, busy_for=10 * MILLISECOND)
    sender = crew.outsider()
    sent = itertools.count(1)

    def send() -> None:
        sender.send(4)
        next(sent)

    crew.pass_time(SECOND // 2, each=send)
    crew.pass_time(SECOND)
    got = [delivery.id for worker in crew.workers for _, delivery in worker.got]
    assert len(set(got)) == len(got) == 4 * (next(sent) - 1)
    assert left(store, clock, TWO_ROWS) == 0
    assert all(worker.got for worker in crew.workers)


def test_a_manager_that_never_answers_delays_a_row_for_the_timeout(store: Store, clock: TimeMachine) -> None:
    manager = Silent()
    crew = Crew(store, clock, TWO_ROWS)
    worker = crew.join(client_options=with_lock(DEFAULT_OPTIONS, manager, "5s"), answered=False)
    sender = crew.outsider()
    sender.send(5)
    sender.send(5)
    began = clock.now()
    crew.pass_time(8 * SECOND, step=20 * MILLISECOND)
    assert len(worker.got) == 10
    assert max(at - began for at, _ in worker.got) <= 6.5 * SECOND
    crew.pass_time(SECOND, step=20 * MILLISECOND)
    began = clock.now()
    sender.send(5)
    crew.pass_time(SECOND, step=20 * MILLISECOND)
    assert len(worker.got) == 15
    manager.answers.set()


def test_a_yes_that_comes_too_late_is_released(store: Store, clock: TimeMachine) -> None:
    manager = Silent()
    crew = Crew(store, clock, Layout())
    worker = crew.join(client_options=with_lock(DEFAULT_OPTIONS, manager, "5s"), answered=False)
    worker.send(1)
    crew.pass_time(SECOND, step=20 * MILLISECOND)
    assert manager.asked.wait(30)
    assert worker.got == []
    manager.answers.set()
    assert manager.done.wait(30)
    assert manager.taken == set()


@pytest.mark.parametrize("lock", EVERY)
def test_without_a_row_lease_no_name_is_left_in_the_header(
    store: Store, clock: TimeMachine, locks: Locks, lock: str
) -> None:
    party = Party(store, clock, locks.client_options(lock))
    party.send()
    party.take()
    snapshot = party.core.scheduler.rows[ROW].snapshot
    snapshot.apply_settles()
    assert snapshot.loaded_header.decoded.owner == (party.core.process.name if lock == "guard" else "")
