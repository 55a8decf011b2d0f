"""Changes whose answers are lost: what the store says then, and what the queue makes of it, on a real node."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from itertools import count as count_from
from itertools import cycle
from pathlib import Path

import pytest
from cassandra.cluster import Session

from astyqueue import MessageQueue, ids
from astyqueue.clock import SystemClock
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.store import Batch, Expectation, Name, Named, Put, Store
from astyqueue.stores import open_store
from astyqueue.testing.cassandra import Contacts
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from tests.support.proxy import Proxy

CLOCK = SystemClock()
ROW = "changed row"
HEADER = Name(0, 0, ids.LEAST, 0)
MESSAGE = Name(2, 0, ids.first_at(0), 1)
SEND = Batch(ROW, puts=(Put(MESSAGE, b"sent"),))
COMMIT = (Batch(ROW, puts=(Put(HEADER, b"1"),)), (Expectation(HEADER, None),))

Change = Callable[[Store], object]
CHANGES: dict[str, Change] = {"send": lambda store: store.send(SEND), "commit": lambda store: store.commit(*COMMIT)}


@pytest.fixture
def proxy(cassandra: Contacts) -> Iterator[Proxy]:
    with Proxy(cassandra.contact_points[0], cassandra.port) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy, url: str) -> str:
    """The URL of the store, by way of the proxy."""
    return f"cassandra://{proxy.host}:{proxy.port}/{url.rpartition('/')[2]}"


@pytest.fixture
def store(through: str) -> Iterator[Store]:
    store = open_store(through, clock=CLOCK)
    yield store
    store.close()


def count(store: Store) -> int:
    """How many of the two columns are there."""
    ((*columns,),) = store.read((Named(ROW, (HEADER, MESSAGE)),), exact=True)
    return len(columns)


def clients(session: Session) -> set[tuple[str, int]]:
    return {(row.address, row.port) for row in session.execute("SELECT address, port FROM system_views.clients")}


def own_ports() -> set[int]:
    """The local ports of this process: others use the same node."""
    sockets = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.add(str(descriptor.readlink()))
    connections = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {int(one[1].partition(":")[2], 16) for one in connections if f"socket:[{one[9]}]" in sockets}


def test_the_driver_does_not_go_round_the_proxy(session: Session, proxy: Proxy, through: str) -> None:
    before = clients(session)
    store = open_store(through, clock=CLOCK)
    assert count(store) == 0
    came = {port for _, port in clients(session) - before} & own_ports()
    through_the_door = proxy.ports
    store.close()
    assert came
    assert came <= through_the_door


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_whose_answer_is_held_is_unknown_after_two_seconds_and_was_made_once(
    proxy: Proxy, store: Store, change: Change
) -> None:
    proxy.hold_answers()
    began = CLOCK.monotonic()
    with pytest.raises(OutcomeUnknown, match="read back before trying again"):
        change(store)
    assert 2 * SECOND <= CLOCK.monotonic() - began < 4 * SECOND
    proxy.pass_on()
    assert count(store) == 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_whose_answer_is_cut_off_is_unknown_at_once_and_was_made(
    proxy: Proxy, store: Store, change: Change
) -> None:
    proxy.cut_at_next_answer(ROW.encode())
    with pytest.raises(OutcomeUnknown):
        change(store)
    assert count(store) == 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_that_is_cut_off_on_its_way_is_unknown_too_and_is_not_made_behind_our_back(
    proxy: Proxy, store: Store, change: Change
) -> None:
    proxy.cut_at_next_question(ROW.encode())
    with pytest.raises(OutcomeUnknown):
        change(store)
    assert count(store) == 0


def test_a_read_whose_answer_is_lost_is_only_not_read(proxy: Proxy, store: Store) -> None:
    proxy.hold_answers()
    with pytest.raises(StoreUnavailable, match="Nothing was read"):
        count(store)


def test_reads_outlive_a_broken_connection_and_changes_find_the_new_one(proxy: Proxy, store: Store) -> None:
    for there, change in enumerate(CHANGES.values()):
        proxy.cut()
        assert count(store) == there
        change(store)
    assert count(store) == 2


class Losing(Faulty):
    """Loses the answer to a request when a test says so, and every second time the request."""

    def __init__(self, store: Store, proxy: Proxy, when: Callable[[Request], bool]) -> None:
        super().__init__(store)
        self._ways = cycle((proxy.cut_at_next_answer, proxy.cut_at_next_question))
        self._when = when
        self.lost: list[Request] = []

    def perform(self, request: Request) -> object:
        if isinstance(request, Send | Commit) and self._when(request):
            next(self._ways)(request.batch.row.encode())
        try:
            return super().perform(request)
        except OutcomeUnknown:
            self.lost.append(request)
            raise


def every_third(kind: type[Request]) -> Callable[[Request], bool]:
    numbers = count_from(1)
    return lambda request: isinstance(request, kind) and next(numbers) % 3 == 0


def emptied(queue: MessageQueue) -> list[object]:
    """The bodies of all messages, each acked."""
    bodies: list[object] = []
    while batch := queue.receive(10):
        with batch:
            bodies += [delivery.body for delivery in batch]
    return bodies


@pytest.mark.parametrize("kind", [Commit, Send])
def test_a_queue_loses_nothing_and_doubles_nothing_when_answers_are_lost(
    proxy: Proxy, store: Store, kind: type[Request]
) -> None:
    losing = Losing(store, proxy, every_third(kind))
    with MessageQueue.builder().store(losing).name(f"q{secrets.token_hex(4)}").lease("10m").build() as queue:
        for number in range(0, 60, 5):
            queue.send_many(range(number, number + 5))
        assert sorted(emptied(queue), key=str) == sorted(range(60), key=str)
        assert queue.counts().total == 0
    assert len(losing.lost) >= 4


def test_a_send_a_claim_and_an_ack_of_unknown_outcome_are_each_read_back(proxy: Proxy, store: Store) -> None:
    to_lose: list[type[Request]] = []

    def due(request: Request) -> bool:
        return bool(to_lose) and isinstance(request, to_lose[0]) and bool(to_lose.pop(0))

    losing = Losing(store, proxy, due)
    with MessageQueue.builder().store(losing).name(f"q{secrets.token_hex(4)}").lease("10m").build() as queue:
        for body in ("answer, question, answer", "question, answer, question"):
            to_lose += (Send, Commit, Commit)
            queue.send(body)
            [held] = queue.receive(1)
            assert held.body == body
            held.ack()
            assert not list(queue.receive(1))
            assert queue.counts().total == 0
    assert [type(request) for request in losing.lost] == [Send, Commit, Commit] * 2
