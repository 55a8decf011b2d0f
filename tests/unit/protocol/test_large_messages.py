"""Claims of large messages: what one read brings is bounded in bytes, and small messages cost no request more."""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue import ids
from astyqueue.errors import StoreUnavailable
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId, encode_plain
from astyqueue.protocol.admin.browse import contents
from astyqueue.protocol.claiming.claim import Claim, claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import SCANS, State
from astyqueue.protocol.row.bounded_reads import READ_BUDGET, MessageSizes
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.insert import message_put
from astyqueue.protocol.settling.outcomes import Reject, Release
from astyqueue.protocol.steps import Commit, Read, Request, run
from astyqueue.store import Column, Store
from astyqueue.testing import Faulty
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, warm

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20


class Weighing(Faulty):
    """Notes how many bytes each read brings, and how many requests there are; gives up a read of too many."""

    def __init__(self, store: Store, *, bears: int = 1 << 40) -> None:
        super().__init__(store)
        self._bears = bears
        self.bytes: list[int] = []
        self.requests = 0

    def perform(self, request: Request) -> object:
        self.requests += isinstance(request, Read | Commit)
        answer = super().perform(request)
        if isinstance(request, Read) and isinstance(answer, list):
            self.bytes.append(sum(_bytes(columns) for columns in answer))
            if self.bytes[-1] > self._bears:
                raise StoreUnavailable
        return answer


def _bytes(columns: list[Column]) -> int:
    return sum(len(column.value) for column in columns)


class Loaded(Scene):
    """A row with messages of a size in bytes, which ann claims."""

    def __init__(self, *, messages: int, size: int, bears: int = 1 << 40) -> None:
        super().__init__()
        self.weighing = Weighing(self.store, bears=bears)
        self.snapshot = RowSnapshot(ROW, 1)
        self.load(messages, size)

    def load(self, messages: int, size: int) -> list[Id]:
        puts = [
            message_put(0, ids.at(self.now + number), _body(size, self.now), sent=self.now)
            for number in range(messages)
        ]
        self.clock.advance("1s")
        self.put(*puts)
        return [put.name.id for put in puts]

    def take(self, want: int = 200) -> list[Id]:
        """What one claim brings; what it reads and asks is counted from here on."""
        self.weighing.bytes.clear()
        self.weighing.requests = 0
        claimed = run(claim(self.process("ann"), self.snapshot, ClaimRequest(want, LEASE, ATTEMPTS)), self.weighing)
        return [held.entry.id for taken in claimed.claims for held in taken.held]


def _body(size: int, now: int) -> bytes:
    return encode_plain(now, b'"%b"' % (b"x" * size))


@pytest.mark.parametrize("size", [100 * KIBIBYTE, 256 * KIBIBYTE - KIBIBYTE])
def test_what_a_claim_reads_is_bounded_in_bytes(size: int) -> None:
    scene = Loaded(messages=100, size=size)
    seen: list[Id] = []
    while taken := scene.take():
        assert sum(scene.weighing.bytes) <= READ_BUDGET + 2 * size
        seen += taken
    assert len(seen) == 100


def test_of_the_largest_messages_a_claim_takes_few_but_one_at_least() -> None:
    scene = Loaded(messages=40, size=MEBIBYTE)
    scene.take()
    counts = []
    while taken := scene.take():
        assert sum(scene.weighing.bytes) <= READ_BUDGET + MEBIBYTE
        counts.append(len(taken))
    assert min(counts) >= 1
    assert sum(counts) == 40 - 16


def test_a_claim_says_that_there_is_more_when_its_bytes_are_used_up() -> None:
    scene = Loaded(messages=100, size=100 * KIBIBYTE)
    claimed = run(claim(scene.process("ann"), scene.snapshot, ClaimRequest(200, LEASE, ATTEMPTS)), scene.store)
    assert claimed.more


def test_small_messages_cost_no_request_more_once_one_claim_has_seen_how_small_they_are() -> None:
    """A claim reads messages and commits.

    The second has three late looks besides, and the first reads the row and two parts of its messages.
    """
    scene = Loaded(messages=800, size=200)
    requests = []
    for _ in range(4):
        assert len(scene.take()) == 200
        requests.append(scene.weighing.requests)
    assert requests == [6, 5, 2, 2]


def test_what_is_due_again_is_read_a_few_at_a_time_too() -> None:
    scene = Loaded(messages=60, size=200 * KIBIBYTE)
    while scene.take():
        pass
    scene.clock.advance("31s")
    again: list[Id] = []
    for _ in range(10):
        taken = scene.take()
        assert sum(scene.weighing.bytes) <= READ_BUDGET + 200 * KIBIBYTE
        assert taken or len(again) == 60
        again += taken
    assert len(set(again)) == len(again) == 60


def test_what_was_released_in_small_messages_is_claimed_again_with_one_read() -> None:
    scene = Loaded(messages=200, size=200)
    for delay in (0, 60 * SECOND):
        claimed = run(claim(scene.process("ann"), scene.snapshot, ClaimRequest(200, LEASE, ATTEMPTS)), scene.store)
        for taken in claimed.claims:
            due = scene.now + delay
            scene.settle(
                taken, {held.entry.id: Release(due, 0, State.SNOOZED) for held in taken.held}, snapshot=scene.snapshot
            )
    scene.clock.advance("1m")
    assert len(scene.take()) == 200
    assert sum(size > 0 for size in scene.weighing.bytes) == 1


def test_what_lands_late_is_taken_a_few_at_a_time() -> None:
    scene = Loaded(messages=1, size=10)
    late = [
        message_put(0, ids.at(scene.now + number), _body(250 * KIBIBYTE, scene.now), sent=scene.now)
        for number in range(60)
    ]
    scene.clock.advance("1s")
    scene.load(1, 10)
    assert len(scene.take()) == 2
    scene.put(*late)
    scene.weighing.bytes.clear()
    scene.clock.advance("2s")
    seen: list[Id] = []
    for _ in range(10):
        seen += scene.take()
        assert max(scene.weighing.bytes) <= READ_BUDGET + 250 * KIBIBYTE or len(seen) == 60
        scene.clock.advance("1s")
    assert set(seen) == {put.name.id for put in late}


def test_a_row_whose_messages_became_large_is_claimed_from_after_one_failure() -> None:
    """Small ones until now, so that many are read at once; the store cannot answer, and next time fewer are read."""
    scene = Loaded(messages=200, size=200, bears=32 * MEBIBYTE)
    scene.take()
    scene.load(200, 256 * KIBIBYTE)
    with pytest.raises(StoreUnavailable):
        scene.take()
    assert len(scene.take()) >= 1
    assert max(scene.weighing.bytes) <= READ_BUDGET + 256 * KIBIBYTE


def test_a_scan_of_many_large_messages_reads_a_few_at_a_time() -> None:
    scene = Loaded(messages=0, size=0)
    sent = scene.load(60, 250 * KIBIBYTE)
    found = run(contents([MessageId(ROW, 0, id_) for id_ in sent]), scene.weighing)
    assert len(found) == 60
    assert max(scene.weighing.bytes) <= READ_BUDGET + 250 * KIBIBYTE


def test_what_dies_between_two_parts_of_what_a_claim_reads_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead columns are read once for all parts: what dies later was listed in a timer when the timers were read."""
    monkeypatch.setattr(MessageSizes, "within", lambda _, budget: min(1, budget))
    for at in range(1, 20):
        scene = Scene(messages=6)
        [held] = scene.do("ann", want=3).claims
        snapshot = warm(scene, "bob")
        snapshot.scans.cursors = [[ids.LEAST] * SCANS]
        store = Meanwhile(scene.store, partial(reject, scene, held), at=at)
        claimed = run(claim(scene.process("bob"), snapshot, ClaimRequest(10, LEASE, ATTEMPTS)), store)
        assert [one.entry.id for taken in claimed.claims for one in taken.held] == scene.sent[3:]
        scene.store.require_lawful()
        if len(store.requests) < at:
            return
    pytest.fail("it never came to an end")


def reject(scene: Scene, held: Claim) -> None:
    """All of these messages die."""
    scene.settle(held, {one.entry.id: Reject("rejected", "", 1) for one in held.held})
