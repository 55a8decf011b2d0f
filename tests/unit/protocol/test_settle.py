"""Settles: what becomes of a message, which receipts end with it, and what an unknown outcome is taken for."""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import REASON_LENGTH, State, Type, dead_name, decode_dead
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Commit, Read, run
from astyqueue.store import Batch, Name, Named, Put
from astyqueue.testing import Failing
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene

NOW = Scene().now
OUTCOMES: list[Outcome] = [
    ACK,
    Reject("rejected", "no", 1),
    Extend(NOW + 2 * LEASE),
    Release(NOW + 2 * LEASE, 1),
    Release(NOW + SECOND, 1),
]
WORDS = ["ack", "reject", "extend", "release later", "release sooner"]


def owned(scene: Scene, snapshot: RowSnapshot) -> None:
    """Another process commits the header."""
    scene.clock.advance(0.001)
    scene.send(1)
    scene.do("owner", snapshot=snapshot, want=1)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=WORDS)
@pytest.mark.every_store
def test_a_settle_touches_only_its_own_message(outcome: Outcome) -> None:
    scene = Scene(messages=3)
    taken = scene.do("ann").claims[0]
    mine, *others = (held.entry.id for held in taken.held)
    assert not scene.settle(taken, {mine: outcome}).lost
    places = picture(scene.store).places
    assert {places[id_].timer.name for id_ in others} == {taken.timer.name}
    assert mine not in places or places[mine].timer.name != taken.timer.name
    assert not scene.settle(taken, dict.fromkeys(others, ACK)).lost
    scene.store.require_lawful()


@pytest.mark.parametrize("outcome", OUTCOMES, ids=WORDS)
@pytest.mark.every_store
def test_a_settle_after_the_message_went_to_another_is_lost_and_changes_nothing(outcome: Outcome) -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    scene.clock.advance("30s")
    scene.do("bob")
    before = picture(scene.store)
    ids = [held.entry.id for held in taken.held]
    assert sorted(scene.settle(taken, dict.fromkeys(ids, outcome)).lost) == ids
    assert picture(scene.store) == before


@pytest.mark.parametrize("outcome", OUTCOMES, ids=WORDS)
def test_a_lease_that_ran_out_unseen_is_still_the_holders(outcome: Outcome) -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    scene.clock.advance("31s")
    assert not scene.settle(taken, {scene.sent[0]: outcome}).lost
    scene.store.require_lawful()


def test_a_timer_that_cannot_be_read_stops_no_settle_of_another_lease() -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    first, second = scene.sent
    scene.settle(taken, {first: Extend(scene.now + 600 * SECOND)})
    torn = Name(Type.TIMER, 0, ids.after(taken.timer.name.id), State.LEASED)
    scene.store.send(Batch(ROW, (Put(torn, b"\x63newer"),)))
    assert not scene.settle(taken, {first: ACK, second: ACK}).lost
    assert {first, second} <= scene.store.gone


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=WORDS)
@pytest.mark.every_store
def test_a_settle_of_unknown_outcome_is_done_once(outcome: Outcome, *, applied: bool) -> None:
    scene, twin = Scene(messages=2), Scene(messages=2)
    taken = scene.do("ann").claims[0]
    twin.settle(twin.do("ann").claims[0], {twin.sent[0]: outcome})
    store = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    assert not run(settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {scene.sent[0]: outcome})), store).lost
    assert picture(scene.store) == picture(twin.store)


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=WORDS)
def test_a_settle_whose_outcome_cannot_be_read_back_does_not_say_that_nothing_was_changed(
    outcome: Outcome, *, applied: bool
) -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    wanted = SettleRequest(taken.timer, {scene.sent[0]: outcome})
    commits = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    reads = 2 if isinstance(outcome, Release) and outcome.due < taken.timer.due else 1
    store = Failing(commits, StoreUnavailable("it was not read"), of=(Read,), at=reads)
    with pytest.raises(OutcomeUnknown, match="it is unknown whether") as caught:
        run(settle(scene.process("ann"), ROW, wanted), store)
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    assert not run(settle(scene.process("ann"), ROW, wanted), store).lost
    scene.store.require_lawful()


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=WORDS)
def test_a_settle_of_unknown_outcome_is_distinguished_from_another_settle_of_its_timer(
    outcome: Outcome, *, applied: bool
) -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    first, second = scene.sent
    unknown = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    reads = 3 if isinstance(outcome, Release) and outcome.due < taken.timer.due else 2
    store = Meanwhile(unknown, partial(scene.settle, taken, {second: ACK}, name="bob"), at=reads)
    assert not run(settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {first: outcome})), store).lost
    assert second in scene.store.gone
    place = picture(scene.store).places.get(first)
    assert (first in scene.store.gone) == (outcome is ACK)
    assert (place is not None) == isinstance(outcome, Extend | Release)
    assert place is None or place.timer.name != taken.timer.name, "it moved"
    scene.store.require_lawful()


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_mark_of_unknown_outcome_is_there_when_it_was_reported(*, applied: bool) -> None:
    """The header is refused, the mark's commit is not answered, and Bob settles under the same timer meanwhile."""
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    first, second = scene.sent
    unknown = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), at=2, applied=applied)
    raising = Meanwhile(unknown, partial(owned, scene, RowSnapshot(ROW, 1)), at=2)
    store = Meanwhile(raising, partial(scene.settle, taken, {second: ACK}, name="bob"), at=4)
    outcome = Release(scene.now + SECOND, 1)
    assert run(settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {first: outcome})), store).lost == []
    marks = [mark for timer in picture(scene.store).timers for mark in timer.marks]
    moved = [timer for timer in picture(scene.store).timers if timer.state == State.BACKING_OFF]
    assert [mark.id for mark in marks] == [first] or [entry.id for timer in moved for entry in timer.entries] == [first]
    assert scene.settle(taken, {first: ACK}).lost == [first], "its receipt has ended"


def marked(scene: Scene) -> SettleResult:
    """Ann gives her message back, to come again in a second; the header is refused."""
    taken = scene.do("ann").claims[0]
    store = Meanwhile(scene.store, partial(owned, scene, RowSnapshot(ROW, 1)), at=2)
    return run(
        settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {scene.sent[0]: Release(scene.now + SECOND, 3)})),
        store,
    )


@pytest.mark.every_store
def test_a_mark_ends_the_receipt_and_any_process_hands_the_message_out_when_it_is_due() -> None:
    scene = Scene(messages=1)
    (settle_plan,) = marked(scene).done
    assert settle_plan.marked
    assert not [held for taken in scene.do("cyd").claims for held in taken.held if held.entry.id == scene.sent[0]]
    scene.clock.advance(1)
    again = [held.entry for taken in scene.do("dan").claims for held in taken.held]
    assert [(entry.id, entry.spent) for entry in again] == [(scene.sent[0], 3)]
    scene.store.require_lawful()


def test_a_mark_that_nobody_saw_comes_back_with_its_timer_and_counts_as_no_expiry() -> None:
    scene = Scene(messages=1)
    snapshot = RowSnapshot(ROW, 1)
    taken = scene.do("ann").claims[0]
    scene.do("bob", snapshot=snapshot)
    store = Meanwhile(scene.store, partial(owned, scene, snapshot), at=2)
    run(
        settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {scene.sent[0]: Release(scene.now + SECOND, 3)})),
        store,
    )
    scene.clock.advance(2)
    assert not scene.do("owner", snapshot=snapshot).claims, "it remembers the timer without the mark"
    scene.clock.advance("29s")
    again = [held.entry for one in scene.do("owner", snapshot=snapshot, leased_count=1).claims for held in one.held]
    assert (scene.sent[0], 3) in [(entry.id, entry.spent) for entry in again]
    scene.store.require_lawful()


@pytest.mark.parametrize("wait", [0, 7])
def test_messages_released_together_share_a_timer_also_when_the_clock_went_on(wait: int) -> None:
    scene = Scene(messages=50)
    taken = scene.do("ann", want=50).claims[0]
    due = scene.now
    scene.clock.advance(wait)
    scene.settle(taken, {id_: Release(due, 0) for id_ in scene.sent})
    assert [len(timer.entries) for timer in picture(scene.store).timers] == [50]


def test_pauses_that_end_within_a_twentieth_share_a_timer_due_with_the_last_of_them() -> None:
    scene = Scene(messages=6)
    taken = scene.do("ann").claims[0]
    pauses = [100, 103, 105, 106, 111, 112]
    scene.settle(
        taken, {id_: Release(scene.now + pause * SECOND, 1) for id_, pause in zip(scene.sent, pauses, strict=True)}
    )
    timers = picture(scene.store).timers
    assert [((timer.due - scene.now) // SECOND, len(timer.entries)) for timer in timers] == [
        (105, 3),
        (111, 2),
        (112, 1),
    ]


def test_a_lease_is_never_shortened() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    (settle_plan,) = scene.settle(taken, {scene.sent[0]: Extend(scene.now + SECOND)}).done
    assert [timer.due for timer in settle_plan.moved] == [taken.timer.due + 1]


def test_an_extended_message_keeps_its_receipt() -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    first, second = scene.sent
    for seconds in (60, 120, 180):
        assert not scene.settle(taken, {first: Extend(scene.now + seconds * SECOND)}, name="bob").lost
    assert not scene.settle(taken, {first: ACK, second: ACK}, name="cyd").lost
    assert scene.store.gone == {first, second}


def test_only_the_ids_that_are_gone_from_a_claim_are_lost() -> None:
    scene = Scene(messages=3)
    taken = scene.do("ann").claims[0]
    first, second, third = scene.sent
    scene.settle(taken, {first: Release(scene.now + 2 * LEASE, 1), second: Extend(scene.now + 2 * LEASE)}, name="bob")
    assert scene.settle(taken, dict.fromkeys(scene.sent, ACK)).lost == [first]
    assert scene.store.gone == {second, third}


def test_an_ack_that_goes_along_with_a_claim_is_lost_like_any_other_if_another_claim_took_the_message() -> None:
    """Another process claimed some messages of the lease; the holder learnt of it as it settled the others."""
    scene = Scene(messages=3)
    taken = scene.do("ann").claims[0]
    first, second, third = scene.sent
    scene.settle(taken, {first: Release(scene.now + 2 * LEASE, 1)}, name="bob")
    [*_, settle_plan] = scene.settle(taken, {second: ACK}).done
    assert settle_plan.left is not None
    settling = [SettleRequest(settle_plan.left, {first: ACK, third: ACK})]
    claimed = run(
        claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, ATTEMPTS), settling=settling),
        scene.store,
    )
    assert claimed.settled[settle_plan.left.name].lost == [first]
    assert scene.store.gone == {second, third}


def test_a_dead_letter_keeps_who_buried_it_when_and_why() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    scene.clock.advance(3)
    scene.settle(taken, {scene.sent[0]: Reject("failed", "x" * 5_000, 4)})
    (column,) = scene.store.read((Named(ROW, (dead_name(0, scene.sent[0]),)),))[0]
    dead = decode_dead(column.value)
    assert dead == (scene.now, 4, "failed", "x" * REASON_LENGTH, taken.timer.nonce.hex())
    assert picture(scene.store).messages == {scene.sent[0]}
    assert not scene.everything_again()
