"""Settles of which only the store knows whether they were done: what callers get, at once and on a retry."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from astyqueue.errors import Closed, OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.ids import first_at
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.delete import clear, delete
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.row.compare_and_set import update
from astyqueue.protocol.row.snapshot import WORTH_STORING, RowSnapshot
from astyqueue.protocol.sending.idempotent import idempotent_message, send_idempotent
from astyqueue.protocol.sending.insert import message_put, send
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release, SettlePlan
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Commit, Read, Request, Send, Steps, perform, run
from astyqueue.store import Batch, Store
from astyqueue.testing import Failing, Faulty
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.stage import ROW as STAGE_ROW
from tests.unit.protocol.stage import Stage, Unanswered
from tests.unit.protocol.test_settle import OUTCOMES, WORDS
from tests.unit.protocol.worlds import LEASE, Scene, acking, put_at


@pytest.mark.parametrize("outcome", [ACK, Reject("rejected", "no", 1)], ids=["ack", "reject"])
def test_what_was_done_is_told_though_another_message_of_the_same_settle_was_claimed_again_before_it_was_read_back(
    outcome: Outcome,
) -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    first, second = scene.sent
    unknown = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=True)
    store = Meanwhile(unknown, partial(scene.do, "bob"), at=3)
    settlement = SettleRequest(taken.timer, {first: outcome, second: Release(scene.now, 0)})
    assert run(settle(scene.process("ann"), ROW, settlement), store).lost == [second]
    scene.store.require_lawful()


def test_a_message_that_is_still_there_shows_that_an_ack_was_not_done() -> None:
    """The lease ran out before the commit came; the next holder has acked one of the two messages and has the other."""
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    first, second = scene.sent

    def meanwhile() -> None:
        scene.clock.advance("31s")
        for again in scene.do("bob").claims:
            ids = {held.entry.id for held in again.held}
            scene.settle(
                again, {id_: ACK if id_ == first else Extend(scene.now + 2 * LEASE) for id_ in ids}, name="bob"
            )

    unknown = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,))
    store = Meanwhile(unknown, meanwhile, at=2)
    assert sorted(
        run(settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {first: ACK, second: ACK})), store).lost
    ) == [
        first,
        second,
    ]


def test_a_store_that_never_answers_a_commit_is_told_of_and_nothing_is_lost() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    store = Unanswered(scene.store, lambda _: None, times=1_000)
    with pytest.raises(OutcomeUnknown, match=r"after \d+ attempts it is unknown"):
        run(settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {scene.sent[0]: ACK})), store)
    assert store.commits < 10
    assert not scene.settle(taken, {scene.sent[0]: ACK}).lost


@pytest.mark.parametrize("outcome", OUTCOMES, ids=WORDS)
@pytest.mark.parametrize("broken_off", [True, False], ids=["interrupted", "read-back failed"])
def test_a_settle_whose_end_was_not_learned_is_found_done_when_it_is_tried_again(
    outcome: Outcome, *, broken_off: bool
) -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    first, second = scene.sent
    settlement = SettleRequest(taken.timer, {first: outcome})
    steps = settle(scene.process("ann"), ROW, settlement)
    request = next(steps)
    while not isinstance(request, Commit):
        request = steps.send(perform(request, scene.store))
    perform(request, scene.store)
    if broken_off:
        steps.close()
    else:
        steps.throw(OutcomeUnknown("no answer"))
        with pytest.raises(OutcomeUnknown):
            steps.throw(StoreUnavailable("away"))
    again = replace(settlement, outcomes={first: outcome, second: ACK})
    assert not run(settle(scene.process("ann"), ROW, again), scene.store).lost
    scene.store.require_lawful()
    assert second in scene.store.gone


def test_an_outcome_that_was_done_does_not_count_as_another_one() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    settlement = SettleRequest(taken.timer, {scene.sent[0]: ACK})
    steps = settle(scene.process("ann"), ROW, settlement)
    perform(next(steps), scene.store)
    steps.close()
    rejecting = replace(settlement, outcomes={scene.sent[0]: Reject("rejected", "no", 1)})
    assert run(settle(scene.process("ann"), ROW, rejecting), scene.store).lost == scene.sent


def test_a_longer_extension_is_made_although_a_shorter_one_of_unknown_outcome_was_carried_out() -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann").claims[0]
    shorter = SettleRequest(taken.timer, dict.fromkeys(scene.sent, Extend(scene.now + 2 * LEASE)))
    steps = settle(scene.process("ann"), ROW, shorter)
    perform(next(steps), scene.store)
    steps.close()
    longer = replace(shorter, outcomes=dict.fromkeys(scene.sent, Extend(scene.now + 5 * LEASE)))
    assert not run(settle(scene.process("ann"), ROW, longer), scene.store).lost
    scene.clock.advance("90s")
    assert not scene.do("bob").claims


class ClosedThen(Faulty):
    """Commits and sends have an unknown outcome, and then the store is closed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._done = False

    def perform(self, request: Request) -> object:
        if self._done:
            message = "the store was closed"
            raise Closed(message)
        if isinstance(request, Commit | Send):
            self._done = True
            raise OutcomeUnknown
        return super().perform(request)


def test_what_may_have_been_done_is_not_called_closed() -> None:
    """Whoever gets Closed takes it that nothing was done, and does it again elsewhere."""
    scene = Scene(messages=2)
    taken = scene.do("ann", want=1).claims[0]
    ann, again = scene.process("ann"), Batch(ROW, (message_put(0, first_at(scene.now), b"", sent=scene.now),))
    commands: list[Steps[object]] = [
        settle(ann, ROW, SettleRequest(taken.timer, {scene.sent[0]: ACK})),
        claim(ann, RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, 5)),
        delete(ann, MessageId(ROW, 0, scene.sent[0])),
        update(ROW, HEADER, lambda _: b"1"),
        send(ann, again),
    ]
    for steps in commands:
        with pytest.raises(OutcomeUnknown):
            run(steps, ClosedThen(scene.store))


def test_what_finds_the_store_closed_is_called_closed_and_not_unknown() -> None:
    """Nothing was done, so it may be done again elsewhere."""
    scene = Scene(messages=2)
    taken = scene.do("ann", want=1).claims[0]
    settlement = SettleRequest(taken.timer, {scene.sent[0]: ACK})
    with pytest.raises(Closed):
        run(settle(scene.process("ann"), ROW, settlement), ClosedAtACommit(scene.store))
    beside = claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, 5), settling=[settlement])
    with pytest.raises(Closed):
        run(beside, ClosedAtACommit(scene.store))
    assert not settlement.unanswered


@pytest.mark.parametrize("beside_a_claim", [False, True], ids=["alone", "beside a claim"])
def test_a_settle_that_turned_out_to_be_recorded_makes_no_later_error_unknown(*, beside_a_claim: bool) -> None:
    scene = Scene(messages=3)
    ann, taken = scene.process("ann"), scene.do("ann", want=2).claims[0]
    settlement = SettleRequest(taken.timer, {scene.sent[0]: ACK})
    silent = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=True)
    if beside_a_claim:
        run(claim(ann, RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, 5), settling=[settlement]), silent)
    else:
        with pytest.raises(StoreError):
            run(settle(ann, ROW, settlement), Failing(silent, StoreUnavailable("away"), of=(Read,), at=1))
        run(settle(ann, ROW, settlement), scene.store)
    assert not settlement.unanswered


def test_two_settles_of_one_commit_of_unknown_outcome_both_find_that_it_was_recorded() -> None:
    scene = Scene(messages=2)
    ann, taken = scene.process("ann"), scene.do("ann", want=2).claims[0]
    settlement = SettleRequest(taken.timer, dict.fromkeys(scene.sent, ACK))
    silent = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=True)
    with pytest.raises(StoreError):
        run(settle(ann, ROW, settlement), Failing(silent, StoreUnavailable("away"), of=(Read,), at=1))
    for message in scene.sent:
        alone = SettleRequest(taken.timer, {message: ACK}, settlement.unanswered)
        assert run(settle(ann, ROW, alone), scene.store).lost == []


def test_a_settle_that_was_recorded_is_found_although_an_earlier_one_of_part_of_it_leaves_the_same_traces() -> None:
    scene = Scene(messages=2)
    ann, taken = scene.process("ann"), scene.do("ann", want=2).claims[0]
    unanswered: list[SettlePlan] = []
    for messages, applied in ((scene.sent[:1], False), (scene.sent, True)):
        silent = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
        unreadable = Failing(silent, StoreUnavailable("away"), of=(Read,), at=1)
        with pytest.raises(StoreError):
            run(settle(ann, ROW, SettleRequest(taken.timer, dict.fromkeys(messages, ACK), unanswered)), unreadable)
    for message in scene.sent:
        assert run(settle(ann, ROW, SettleRequest(taken.timer, {message: ACK}, unanswered)), scene.store).lost == []


class ClosedAtACommit(Faulty):
    """Is closed before a commit is carried out."""

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit):
            message = "the store was closed"
            raise Closed(message)
        return super().perform(request)


def test_a_claim_whose_end_was_not_learned_settles_what_went_with_it() -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann", want=1).claims[0]
    settlement = SettleRequest(taken.timer, {taken.held[0].entry.id: ACK})
    snapshot = RowSnapshot(ROW, 1)
    steps = claim(scene.process("ann"), snapshot, ClaimRequest(1, LEASE, 5), settling=[settlement])
    request = next(steps)
    while not isinstance(request, Commit):
        request = steps.send(perform(request, scene.store))
    perform(request, scene.store)
    steps.close()
    assert not run(settle(scene.process("ann"), ROW, settlement), scene.store).lost


def test_an_ack_of_an_idempotent_message_that_was_cleared_instead_is_lost() -> None:
    """A clear leaves no removed mark, so the message may be sent again: the ack may not be reported as done."""
    stage = Stage()
    message = idempotent_message(stage.value("m0"), 0, first_at(stage.clock.now()))
    stage.run(send_idempotent(stage.ann, STAGE_ROW, [message]))
    [taken] = stage.claim(1)
    request = SettleRequest(taken.timer, {held.entry.id: acking(held) for held in taken.held})
    cleared = Unanswered(stage.store, lambda _: stage.run(clear(stage.cyd, STAGE_ROW, 1)))
    assert stage.run(settle(stage.ann, STAGE_ROW, request), cleared).lost == [message.id]
    assert stage.run(send_idempotent(stage.bob, STAGE_ROW, [message])) == 1


def test_an_ack_beside_a_claim_that_changed_nothing_is_lost_once_another_process_has_acked() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    scene.put(put_at(scene.now, 1))
    request = SettleRequest(taken.timer, {scene.sent[0]: ACK}, [])
    away = Failing(scene.store, StoreUnavailable("away"), of=(Commit,))
    with pytest.raises(StoreUnavailable):
        run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, 5, 1), settling=[request]), away)
    scene.clock.advance("1h")
    for again in scene.do("bob").claims:
        scene.acked(again)
    assert run(settle(scene.process("ann"), ROW, request), scene.store).lost == [scene.sent[0]]


def test_a_claim_of_unknown_outcome_reports_what_it_dead_lettered() -> None:
    stage = Stage()
    stage.put(b"\x63what is this", stage.clock.now())
    stage.send()

    def applied(request: Commit) -> None:
        stage.store.commit(request.batch, request.expects)
        stage.claim(1, stage.bob)

    claimed = stage.run(
        claim(stage.ann, RowSnapshot(STAGE_ROW, 1), ClaimRequest(1, LEASE, 5)), Unanswered(stage.store, applied)
    )
    assert len(stage.dead()) == claimed.dead == len(claimed.buried) == 1


def test_the_floor_stays_below_what_was_given_back_beside_a_claim_that_stores_its_cursors() -> None:
    scene = Scene(messages=1)
    ann, snapshot = scene.process("ann"), RowSnapshot(ROW, 1)
    taken = scene.do("ann", snapshot=snapshot).claims[0]
    unanswered: list[SettlePlan] = []
    silent = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=True)
    unreadable = Failing(silent, StoreUnavailable("away"), of=(Read,), at=1)
    extended = SettleRequest(taken.timer, {scene.sent[0]: Extend(scene.now + 60 * SECOND)}, unanswered)
    with pytest.raises(StoreError):
        run(settle(ann, ROW, extended), unreadable)
    scene.send(1)
    scene.do("bob", lease=90 * SECOND)
    snapshot.forget()
    scene.do("ann", snapshot=snapshot, want=0)
    snapshot.ids_scanned = WORTH_STORING
    due = scene.now + 45 * SECOND
    back = SettleRequest(taken.timer, {scene.sent[0]: Release(due, 1)}, unanswered)
    run(claim(ann, snapshot, ClaimRequest(1, LEASE, 5, 1), settling=[back]), scene.store)
    header = picture(scene.store).header
    assert header is not None
    assert header.floor <= due
    scene.clock.advance(11)
    assert scene.do("cyd").claims == []
