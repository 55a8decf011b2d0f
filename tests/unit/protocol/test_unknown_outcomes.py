"""Settles of which only the store knows whether they were done: what callers get, at once and on a retry."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Commit, perform, run
from astyqueue.testing import Failing
from tests.unit.protocol.checked_store import ROW, Meanwhile
from tests.unit.protocol.stage import Unanswered
from tests.unit.protocol.test_settle import OUTCOMES, WORDS
from tests.unit.protocol.worlds import LEASE, Scene


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
