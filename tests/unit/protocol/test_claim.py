"""Claims: what they take, under which lease, what they bury, and what they do when the store does not answer."""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreUnavailable, Undecodable
from astyqueue.model.envelope import FORMAT
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER, Type, dead_name, decode_dead, message_name
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Commit, Read, Request, perform, run
from astyqueue.store import Batch, Committed, Named, Put, Slice
from astyqueue.testing import Failing, Recording
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, put_at, warm

DAMAGED = [
    b"",
    b"\x01",
    b"\x02[]",
    b"\x01[]",
    b"\x01{}",
    b"\x01null",
    b"\x01[1,2",
    b'\x01["x",0,null,null,null,null,null,1]',
    b'\x01"12345678"',
]


@pytest.mark.parametrize("value", DAMAGED)
def test_a_message_that_cannot_be_read_becomes_a_dead_letter_in_place_with_its_bytes_kept(value: bytes) -> None:
    scene = Scene()
    bad = put_at(scene.now)._replace(value=value)
    good = put_at(scene.now, 1)
    scene.put(bad, good)
    claimed = scene.do("ann")
    assert [held.entry.id for held in claimed.claims[0].held] == [good.name.id]
    assert claimed.dead == 1
    kept, dead = scene.store.read((Named(ROW, (bad.name,)), Named(ROW, (dead_name(0, bad.name.id),))))
    assert kept[0].value == value
    assert decode_dead(dead[0].value).kind == "undecodable"
    assert not scene.do("bob").dead
    scene.store.require_lawful()


def test_a_message_past_its_expiry_dies_instead_of_being_delivered() -> None:
    scene = Scene()
    scene.put(put_at(scene.now, expires=scene.now + SECOND), put_at(scene.now, 1, expires=scene.now + 3 * SECOND))
    scene.clock.advance(1)
    claimed = scene.do("ann")
    assert len(claimed.claims[0].held) == claimed.dead == 1
    scene.clock.advance("31s")
    assert scene.do("ann").dead == 1, "also when it was handed out before"
    assert len(picture(scene.store).dead) == 2


@pytest.mark.parametrize(("own", "deliveries"), [(None, ATTEMPTS), (2, 2), (7, 7)])
def test_a_message_that_always_outlives_its_lease_dies_after_the_attempts_of_the_queue_or_its_own(
    own: int | None, deliveries: int
) -> None:
    scene = Scene()
    scene.put(put_at(scene.now, attempts=own))
    spent = []
    while not picture(scene.store).dead:
        spent += [held.entry.spent for taken in scene.do("ann").claims for held in taken.held]
        scene.clock.advance("31s")
    assert spent == list(range(deliveries))
    scene.store.require_lawful()


@pytest.mark.every_store
def test_a_message_with_lease_zero_is_settled_as_it_is_delivered() -> None:
    scene = Scene()
    scene.put(put_at(scene.now, lease=0))
    claimed = scene.do("ann")
    assert not claimed.claims
    assert [held.envelope.body for held in claimed.at_most_once] == [0]
    left = picture(scene.store)
    assert not left.messages
    assert not left.timers


@pytest.mark.parametrize("applied", [True, False])
def test_a_message_with_lease_zero_comes_once_also_when_the_outcome_was_unknown(*, applied: bool) -> None:
    scene = Scene()
    scene.put(put_at(scene.now, lease=0))
    store = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    claimed = run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS)), store)
    assert len(claimed.at_most_once) == 1
    assert not scene.do("bob").at_most_once


@pytest.mark.every_store
def test_messages_of_different_leases_share_a_claim_but_no_timer() -> None:
    scene = Scene()
    scene.put(
        put_at(scene.now), put_at(scene.now, 1, lease=5 * SECOND), put_at(scene.now, 2), put_at(scene.now, 3, lease=0)
    )
    claimed = scene.do("ann")
    assert [len(taken.held) for taken in claimed.claims] == [2, 1]
    assert [taken.timer.due - scene.now for taken in claimed.claims] == [LEASE, 5 * SECOND]
    assert len(claimed.at_most_once) == 1
    header = picture(scene.store).header
    assert header is not None
    assert (header.version, header.floor) == (1, scene.now + 5 * SECOND)


def test_what_expired_comes_back_in_smaller_claims() -> None:
    scene = Scene(messages=200)
    scene.do("ann", want=200)
    sizes = []
    for _ in range(2):
        scene.clock.advance("31s")
        sizes.append([len(taken.held) for taken in scene.do("bob", want=200, leased_count=1).claims])
    assert sizes == [[20] * 10, [1] * 200]
    scene.clock.advance("31s")
    claimed = scene.do("cyd", want=200, leased_count=1)
    assert claimed.suspect
    assert not claimed.claims, "a suspect waits for empty hands"
    alone = scene.do("cyd", want=200)
    assert [len(taken.held) for taken in alone.claims] == [1]
    assert alone.claims[0].timer.alone
    assert alone.claims[0].held[0].entry.spent == 0, "it expired in company, and that counts nothing"
    scene.clock.advance("31s")
    again = {
        held.entry.id: held.entry.spent for _ in range(200) for taken in scene.do("dan").claims for held in taken.held
    }
    assert again.pop(alone.claims[0].held[0].entry.id) == 1, "it expired alone, and that counts"
    assert set(again.values()) == {0}
    scene.store.require_lawful()


def test_a_claim_of_no_messages_takes_none_not_even_a_suspect() -> None:
    scene = Scene(messages=2)
    scene.do("ann", want=1, leased_count=1)
    scene.clock.advance("31s")
    claimed = scene.do("bob", want=0)
    assert claimed.suspect
    assert not claimed.claims
    assert [taken.timer.made_for for taken in scene.do("bob").claims] == [1]


@pytest.mark.every_store
def test_greater_priorities_go_first_and_what_is_due_again_before_what_waits() -> None:
    scene = Scene()
    scene.put(*[put_at(scene.now, number, priority=number % 3) for number in range(6)])
    snapshot = RowSnapshot(ROW, 3)
    taken = scene.do("ann", snapshot=snapshot, want=3).claims[0]
    assert [held.entry.priority for held in taken.held] == [2, 2, 1]
    again = taken.held[0].entry.id
    scene.settle(taken, {again: Release(scene.now, 1)}, snapshot=snapshot)
    scene.put(put_at(scene.now, 9, priority=2))
    claimed = scene.do("ann", snapshot=snapshot, want=3)
    assert next(held.entry.id for one in claimed.claims for held in one.held) == again
    assert [held.entry.priority for one in claimed.claims for held in one.held] == [2, 2, 1]


@pytest.mark.parametrize(("broken", "column"), [("header", "its header"), ("timer", "the timer")])
def test_a_header_or_timer_that_cannot_be_read_stops_claims_and_not_settles(broken: str, column: str) -> None:
    scene = Scene(messages=3)
    taken = scene.do("ann", want=2).claims[0]
    other = scene.do("ann", want=1, leased_count=2).claims[0]
    name = HEADER if broken == "header" else other.timer.name
    value = scene.store.read((Named(ROW, (name,)),))[0][0].value
    assert isinstance(scene.store.commit(Batch(ROW, (Put(name, value[:-3]),)), ()), Committed)
    for _ in range(2):
        with pytest.raises(Undecodable, match=column) as raised:
            scene.do("bob")
        assert raised.value.row == ROW
        assert ids.text(other.timer.name.id) in str(raised.value) or broken == "header"
    first, second = (held.entry.id for held in taken.held)
    assert not scene.settle(taken, {first: Release(scene.now + SECOND, 1)}).lost
    assert not scene.settle(taken, {second: ACK}).lost
    assert second in scene.store.gone
    assert first in {column.name.id for column in scene.store.read((Slice(ROW, Type.MESSAGE),))[0]}


def test_a_newer_format_is_an_error_that_names_it() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    scene.store.commit(Batch(ROW, (Put(taken.timer.name, b"\x07" + taken.timer.value[1:]),)), ())
    with pytest.raises(Undecodable, match=f"format byte 07, and this astyqueue knows {FORMAT.hex()}"):
        scene.do("bob")


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.every_store
def test_a_claim_of_unknown_outcome_is_read_back_and_brings_each_message_once(*, applied: bool) -> None:
    scene = Scene(messages=3)
    store = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    claimed = run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS)), store)
    assert [held.entry.id for taken in claimed.claims for held in taken.held] == scene.sent
    assert scene.store.raised == 1
    assert not scene.acked(claimed.claims[0]).lost


@pytest.mark.parametrize("applied", [True, False])
def test_a_claim_that_cannot_be_read_back_does_not_say_that_nothing_was_changed(*, applied: bool) -> None:
    scene = Scene(messages=3)
    recording = Recording(Scene(messages=3).store)
    run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, ATTEMPTS)), recording)
    reads = sum(isinstance(request, Read) for request in recording.requests)
    commits = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    store = Failing(commits, StoreUnavailable("it was not read"), of=(Read,), at=reads + 1)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, ATTEMPTS)), store)
    scene.store.require_lawful()


@pytest.mark.parametrize("applied", [True, False])
def test_a_claim_of_unknown_outcome_is_found_by_its_timer_after_others_went_on(*, applied: bool) -> None:
    scene = Scene(messages=3)
    unknown = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    others = Meanwhile(unknown, partial(scene.do, "bob"), at=6)
    claimed = run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(2, LEASE, ATTEMPTS)), others)
    assert len(claimed.claims) == applied
    scene.store.require_lawful()


def test_a_joined_settle_goes_at_once_alone_when_the_header_is_refused() -> None:
    scene = Scene(messages=2)
    snapshot = RowSnapshot(ROW, 1)
    taken = scene.do("ann", snapshot=snapshot, want=1).claims[0]
    scene.do("bob")
    scene.clock.advance(1)
    scene.send(1)
    seen = Recording(scene.store)
    settling = [SettleRequest(taken.timer, {taken.held[0].entry.id: ACK})]
    claimed = run(claim(scene.process("ann"), snapshot, ClaimRequest(1, LEASE, ATTEMPTS), settling=settling), seen)
    commits = [request for request in seen.requests if isinstance(request, Commit)]
    assert claimed.refused == 1
    assert [len(request.expects) for request in commits] == [2, 1, 1]
    assert taken.held[0].entry.id in scene.store.gone


def test_what_another_holder_acked_proves_no_commit_of_ours() -> None:
    """The commit is lost; meanwhile the lease ends, and another process claims and acks the message it was to ack."""
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    scene.clock.advance("30s")
    scene.put(put_at(scene.now, 1, lease=0))

    def others() -> None:
        scene.acked(scene.do("bob", want=1).claims[0])

    lost = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,))
    settling = [SettleRequest(taken.timer, {scene.sent[0]: ACK})]
    steps = claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS), settling=settling)
    claimed = run(steps, Once(lost, others))
    assert len(claimed.at_most_once) == 1
    assert not scene.do("cyd").at_most_once
    assert scene.store.gone >= set(scene.sent)


class Once(Meanwhile):
    """Lets others act at the first request that follows a commit."""

    def perform(self, request: Request) -> object:
        if self.requests and isinstance(self.requests[-1], Commit) and self._at is None:
            self._at = len(self.requests) + 1
        elif self._at is None:
            self.requests.append(request)
            return perform(request, self._store)
        return super().perform(request)


def test_a_floor_rises_only_where_all_timers_are_known() -> None:
    """A claim that was refused again and again over many ids stores nothing: it no longer knows the timers."""
    scene = Scene(messages=1)
    scene.do("eve")
    snapshot = warm(scene, "ann")
    snapshot.ids_scanned = 5_000
    scene.clock.advance("31s")

    def others() -> None:
        scene.clock.advance(0.01)
        scene.send(2)
        scene.do("bob", want=1, leased_count=1)

    outrun = Meanwhile(scene.store, others)
    claimed = run(claim(scene.process("ann"), snapshot, ClaimRequest(5, LEASE, ATTEMPTS, 1)), outrun)
    assert claimed.refused == 3
    run(claim(scene.process("cyd"), snapshot, ClaimRequest(0, LEASE, ATTEMPTS)), scene.store)
    scene.store.require_lawful()
    assert not scene.settle(scene.do("dan").claims[0], {}).lost


def test_a_claim_that_dies_half_way_forgets_the_snapshot() -> None:
    scene = Scene(messages=2)
    snapshot = warm(scene, "ann")
    steps = claim(scene.process("ann"), snapshot, ClaimRequest(1, LEASE, ATTEMPTS))
    next(steps)
    steps.close()
    assert snapshot.header is None
    assert scene.do("ann", snapshot=snapshot).claims


def test_ids_of_a_timer_whose_message_is_gone_are_dropped_from_it() -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    first = taken.held[0].entry.id
    scene.store.send(Batch(ROW, deletes=(message_name(0, first),)))
    scene.clock.advance("31s")
    again = scene.do("bob").claims
    assert [held.entry.id for one in again for held in one.held] == [taken.held[1].entry.id]
    assert not [timer for timer in picture(scene.store).timers if timer.name == taken.timer.name]
    assert run(settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {first: ACK})), scene.store).lost == [first]
