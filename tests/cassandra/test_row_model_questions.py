"""What the model of one row left open, answered on a real node."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra.cluster import Session

from astyqueue.clock import SystemClock
from astyqueue.ids import Id
from astyqueue.model.envelope import encode_plain
from astyqueue.protocol.claiming.claim import Claim, claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER, State, Type, decode_header, decode_timer
from astyqueue.protocol.row.snapshot import RowSnapshot, read_all_timers
from astyqueue.protocol.sending.idempotent import idempotent_message, numbered_id, send_idempotent
from astyqueue.protocol.sending.insert import message_put, send
from astyqueue.protocol.settling.outcomes import Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Client, run
from astyqueue.store import Batch, Expectation, Name, Put, Refused, Slice, Store
from astyqueue.stores import open_store
from astyqueue.units import SECOND
from tests.unit.protocol.worlds import acking

CLOCK = SystemClock()
ROW = "mail:0:0"
LEASE = 60 * SECOND
DAY = 24 * 3_600


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, clock=CLOCK)
    yield store
    store.close()


def sent(store: Store, process: Client, count: int) -> list[Id]:
    ids = [process.id_at(CLOCK.now()) for _ in range(count)]
    puts = tuple(message_put(0, id_, encode_plain(CLOCK.now(), b"1"), sent=CLOCK.now()) for id_ in ids)
    run(send(process, Batch(ROW, puts)), store)
    return ids


def taken(store: Store, process: Client, count: int) -> list[Claim]:
    claims: list[Claim] = []
    while sum(len(one.held) for one in claims) < count:
        claims += run(claim(process, RowSnapshot(ROW, 1), ClaimRequest(200, LEASE, 50)), store).claims
    return claims


class Racing:
    """Raises a row's header as fast as it can, each time with a timer of its own.

    Whenever a commit is refused, it reads the timers.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._process = Client(name, CLOCK.now)
        self.refused = 0
        self.missing: list[str] = []

    def race(self, rounds: int) -> int:
        """How many of the commits went through."""
        value: bytes | None = None
        applied = 0
        for number in range(rounds):
            timer = Name(Type.TIMER, 0, self._process.id_at(CLOCK.now() + LEASE), State.SNOOZED)
            mine = b"%s after %s" % (timer.id.hex().encode(), (value or b"").split(b" ")[0])
            batch = Batch(ROW, (Put(HEADER, mine), Put(timer, b"%d" % number)))
            answer = self._store.commit(batch, (Expectation(HEADER, value),))
            applied += not isinstance(answer, Refused)
            value = self._looked(answer.present[HEADER]) if isinstance(answer, Refused) else mine
        return applied

    def _looked(self, header: bytes | None) -> bytes | None:
        """The header that a refusal showed; the timer that came with it must be there for a plain read."""
        self.refused += 1
        there = {column.name.id.hex() for column in self._store.read((Slice(ROW, Type.TIMER),))[0]}
        if header is not None and header.split(b" ")[0].decode() not in there:
            self.missing.append(header.decode())
        return header


def test_timers_read_after_a_refusal_show_what_came_with_the_header_that_it_told(store: Store) -> None:
    """The model asked whether a quorum read of timers after a refusal sees the last commit, or has to be exact."""
    racers = [Racing(store, name) for name in ("ann", "bob", "cyd")]
    with ThreadPoolExecutor(len(racers)) as threads:
        applied = sum(threads.map(lambda racer: racer.race(40), racers))
    assert sum(racer.refused for racer in racers) >= 20
    assert [racer.missing for racer in racers] == [[], [], []]
    assert len(store.read((Slice(ROW, Type.TIMER),))[0]) == applied


def test_back_offs_that_fall_due_close_together_share_timers_so_that_few_are_read_again(store: Store) -> None:
    """The model feared that many timers of one message each would make it dear to read them all again."""
    process = Client("ann", CLOCK.now)
    count = 600
    sent(store, process, count)
    for one in taken(store, process, count):
        now = CLOCK.now()
        failed = {held.entry.id: Release(now + 5 * SECOND + number * 1_000, 1) for number, held in enumerate(one.held)}
        assert not run(settle(process, ROW, SettleRequest(one.timer, failed)), store).lost
    timers = run(read_all_timers(ROW, 0), store)
    assert sum(len(timer.entries) for timer in timers) == count
    assert len(timers) <= count // 100


def test_a_thousand_timers_of_one_message_each_are_read_again_in_a_tenth_of_a_lease(store: Store) -> None:
    """Where they cannot be shared, because each message failed by itself: what a newcomer pays."""
    process = Client("ann", CLOCK.now)
    timers = [Name(Type.TIMER, 0, process.id_at(CLOCK.now() + LEASE), State.BACKING_OFF) for _ in range(1_000)]
    [one] = sent(store, process, 1)
    [held] = taken(store, process, 1)
    value = store.read((Slice(ROW, Type.TIMER),))[0][0].value
    for first in range(0, len(timers), 200):
        store.send(Batch(ROW, tuple(Put(name, value) for name in timers[first : first + 200])))
    began = CLOCK.monotonic()
    read = run(read_all_timers(ROW, 0), store)
    took = CLOCK.monotonic() - began
    assert len(read) == len(timers) + 1
    assert held.held[0].entry.id == one
    assert took < LEASE // 10
    print(f"1 001 timers read again in {took / 1_000:.0f} ms")  # noqa: T201 - the figure is the answer


def test_a_settled_record_is_remembered_for_a_day(store: Store, session: Session, keyspace: str) -> None:
    """A replay delivers the record again once the mark of its settle has expired; the server itself shows its TTL."""
    process = Client("ann", CLOCK.now)
    record = idempotent_message(encode_plain(CLOCK.now(), b"1"), 0, numbered_id("disk-7", 1, CLOCK.now()))
    assert run(send_idempotent(process, ROW, [record]), store) == 1
    [one] = taken(store, process, 1)
    run(settle(process, ROW, SettleRequest(one.timer, {held.entry.id: acking(held) for held in one.held})), store)
    assert run(send_idempotent(process, ROW, [record]), store) == 0
    asked = f'SELECT TTL(value) AS lasts FROM "{keyspace}"."entries" WHERE row = %s AND type = %s'  # noqa: S608 - a keyspace of this run
    [mark] = session.execute(asked, (ROW, int(Type.REMOVED)))
    assert DAY - 60 <= mark.lasts <= DAY
    assert not store.read((Slice(ROW, Type.MESSAGE),))[0]


def test_the_header_that_a_refusal_tells_is_the_one_that_an_exact_read_shows(store: Store) -> None:
    """The last of what a claim rests on: a refusal's header may stand in for an exact read."""
    process = Client("ann", CLOCK.now)
    sent(store, process, 2)
    taken(store, process, 2)
    answer = store.commit(Batch(ROW, (Put(HEADER, b"never"),)), (Expectation(HEADER, None),))
    assert isinstance(answer, Refused)
    [shown] = store.read((Slice(ROW, Type.LOCK),), exact=True)[0]
    assert answer.present[HEADER] == shown.value
    header = decode_header(ROW, shown.value)
    floors = [decode_timer(ROW, column.name, column.value).due for column in store.read((Slice(ROW, Type.TIMER),))[0]]
    assert header.floor <= min(floors)
