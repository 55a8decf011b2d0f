"""Why a message has not run yet: each reason there is, in words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from astyqueue.model import explanation
from astyqueue.model.envelope import Envelope, MessageId, encode
from astyqueue.model.explanation import Explanation, LifeEvent
from astyqueue.model.settings import Behaviour, Layout
from astyqueue.model.views import Standing
from astyqueue.protocol.admin.dead_letters import redrive
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.admin.explain import message_facts
from astyqueue.protocol.layout.columns import HEADER, State
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.settling.outcomes import ACK, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Request
from astyqueue.store import Batch, Put, Store
from astyqueue.testing import Faulty
from astyqueue.units import SECOND
from tests.unit.protocol.stage import LEASE, ROW, Meddling, Stage

RING = Ring("mail", Layout())


@pytest.fixture
def stage() -> Stage:
    return Stage()


def explained(stage: Stage, message: MessageId, **behaviour: object) -> Explanation:
    reading = message_facts(stage.bob, RING, message, Behaviour.model_validate(behaviour))
    return explanation.explained(stage.run(reading))


def why(stage: Stage, message: MessageId, **behaviour: object) -> str:
    return explained(stage, message, **behaviour).why


def released(stage: Stage, state: State, *, spent: int = 1, after: int = 30) -> MessageId:
    """A message that was released so that it is due `after` seconds later."""
    sent = stage.send("welcome")
    [taken] = stage.claim(1)
    stage.settle(taken, Release(stage.clock.now() + after * SECOND, spent, state))
    return sent


def sent_with(stage: Stage, *, sent: int = 0, expires: int | None = None) -> MessageId:
    """A message due now, from a sender whose clock is `sent` seconds ahead."""
    now = stage.clock.now()
    envelope = Envelope(now + sent * SECOND, 0, None, None, expires, None, None, None)
    return stage.put(encode(envelope, b"1"), now)


def test_a_delay_is_reported_with_its_end(stage: Stage) -> None:
    found = explained(stage, stage.send(delay=90))
    assert (found.standing, found.until) == (Standing.DELAYED, stage.clock.now() + 90 * SECOND)
    assert found.why == "it was sent to be due 2026-01-01T00:01:30Z (in 1m30s), and is not delivered before"


def test_a_message_that_waits_in_a_row_that_nobody_took_from_asks_for_a_worker(stage: Stage) -> None:
    found = explained(stage, stage.send())
    assert (found.standing, found.until) == (Standing.WAITING, None)
    assert found.why.endswith("Nothing was ever claimed from its row: start a worker or a consumer on this queue")


def test_a_message_that_waits_says_who_changed_its_row_last_and_when(stage: Stage) -> None:
    stage.send()
    [taken] = stage.claim(1)
    stage.settle(taken, ACK)
    waiting = stage.send()
    assert why(stage, waiting).endswith("It waits its turn: its row was last changed 2026-01-01T00:00:00Z (now) by ann")
    stage.clock.advance(600)
    assert (
        "No worker seems to be running on this queue: its row was last changed 2026-01-01T00:00:00Z (10m ago)"
        in why(stage, waiting)
    )


def test_a_leased_message_says_by_whom_for_which_attempt_and_until_when(stage: Stage) -> None:
    sent = stage.send()
    stage.claim(1)
    found = explained(stage, sent)
    assert (found.standing, found.holder, found.until) == (Standing.IN_FLIGHT, "ann", stage.clock.now() + LEASE)
    assert found.why.startswith("ann has it leased, for attempt 1 of 5, until 2026-01-01T00:01:00Z (in 1m)")


def test_a_lease_that_ran_out_is_reported_with_its_holder(stage: Stage) -> None:
    sent = stage.send()
    stage.claim(1)
    stage.clock.set(stage.clock.now() + LEASE + 5 * SECOND)
    found = explained(stage, sent)
    assert (found.standing, found.holder, found.until) == (Standing.WAITING, "ann", None)
    assert found.why.startswith(
        "the lease of ann ran out 2026-01-01T00:01:00Z (5s ago) without an outcome. No worker seems"
    )


def test_a_blocked_message_names_the_one_of_its_group_that_it_waits_behind(stage: Stage) -> None:
    first, second, third = (stage.send(group="customer-7") for _ in range(3))
    [taken] = stage.claim(3)
    behind = f"it waits behind {first} of its group 'customer-7'"
    found = explained(stage, third)
    assert (found.standing, found.until) == (Standing.BLOCKED, None)
    assert found.why == f"{behind}, which is leased by ann until 2026-01-01T00:01:00Z (in 1m)"
    stage.settle(taken, Release(stage.clock.now() + 30 * SECOND, 1))
    assert why(stage, third) == f"{behind}, which rests until 2026-01-01T00:00:30Z (in 30s)"
    stage.clock.advance(30)
    assert why(stage, third) == f"{behind}, which may be handed out again since 2026-01-01T00:00:30Z (now)"
    stage.run(delete(stage.bob, first))
    assert why(stage, third) == f"it waits behind {second} of its group 'customer-7', which comes before it"
    assert explained(stage, second).standing == Standing.WAITING


def test_a_message_behind_a_parked_or_an_expired_one_says_so(stage: Stage) -> None:
    first, second = (stage.send(group="a") for _ in range(2))
    [taken] = stage.claim(2)
    stage.clock.advance(61)
    assert "whose lease ran out 2026-01-01T00:01:00Z (1s ago) and which is handed out again before it" in why(
        stage, second
    )
    [taken] = stage.claim(2)
    stage.settle(taken, Release(stage.clock.now() + 90 * SECOND, 0, State.PARKED), first)
    assert why(stage, second).endswith(
        "which is parked: the worker that had it does not know its task. Start one that does"
    )


@pytest.mark.parametrize(
    ("state", "standing", "told"),
    [
        (
            State.BACKING_OFF,
            Standing.BACKING_OFF,
            "attempt 1 of 5 failed, and it rests until 2026-01-01T00:00:30Z (in 30s)",
        ),
        (
            State.SNOOZED,
            Standing.SNOOZED,
            "it was put off until 2026-01-01T00:00:30Z (in 30s), without using an attempt",
        ),
        (
            State.PARKED,
            Standing.PARKED,
            "the worker that had it does not know its task 'welcome'; it is offered again 2026",
        ),
    ],
)
def test_what_was_released_says_after_what_and_until_when(
    stage: Stage, state: State, standing: Standing, told: str
) -> None:
    found = explained(stage, released(stage, state))
    assert (found.standing, found.until) == (standing, stage.clock.now() + 30 * SECOND)
    assert found.why.startswith(told)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (State.BACKING_OFF, "its rest after attempt 1 of 5 ended 2026-01-01T00:00:30Z (now). It waits its turn"),
        (
            State.SNOOZED,
            "any consumer may take it since 2026-01-01T00:00:30Z (now), given back, put off or redriven before. It w",
        ),
        (State.PARKED, "the worker that had it does not know its task 'welcome', and it is offered again since 2026"),
    ],
)
def test_what_may_be_taken_again_says_what_was_before(stage: Stage, state: State, told: str) -> None:
    sent = released(stage, state)
    stage.clock.advance(30)
    found = explained(stage, sent)
    assert (found.standing, found.until, found.holder) == (Standing.WAITING, None, "")
    assert found.why.startswith(told)


def test_what_its_holder_gave_back_early_rests_on_its_own_mark(stage: Stage) -> None:
    first, _ = stage.send_many(2)
    [taken] = stage.claim(2)
    outcomes = {first.id: Release(stage.clock.now() + SECOND, 2)}
    meddler = Meddling(stage.store, [partial(stage.run, delete(stage.bob, stage.send()))])
    stage.run(settle(stage.ann, ROW, SettleRequest(taken.timer, outcomes)), meddler)
    found = explained(stage, first)
    assert (found.standing, found.spent, found.holder) == (Standing.BACKING_OFF, 2, "")
    assert found.why.startswith("attempt 2 of 5 failed, and it rests until 2026-01-01T00:00:01Z")


class Interrupted(Faulty):
    """`meddle` is called before request number `at`."""

    def __init__(self, store: Store, at: int, meddle: Callable[[], object]) -> None:
        super().__init__(store)
        self._left = at
        self._meddle = meddle

    def perform(self, request: Request) -> object:
        self._left -= 1
        if self._left == 0:
            self._meddle()
        return super().perform(request)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_message_that_is_settled_while_it_is_read_is_not_taken_for_one_that_waits(stage: Stage, at: int) -> None:
    sent = stage.send()
    [taken] = stage.claim(1)
    store = Interrupted(stage.store, at, partial(stage.settle, taken, ACK))
    facts = stage.run(message_facts(stage.bob, RING, sent, Behaviour()), store)
    assert explanation.explained(facts).standing is None


def test_a_dead_letter_says_why_and_since_when(stage: Stage) -> None:
    [dead] = stage.bury("a", reason="no such address")
    found = explained(stage, dead)
    assert found.standing is Standing.DEAD
    assert found.why.startswith(
        "it is a dead letter since 2026-01-01T00:00:00Z (now), because its consumer rejected it: no such address"
    )
    assert found.life[-1].what == "became a dead letter, after 1 attempt: no such address"
    stage.run(redrive(stage.ann, [dead]))
    assert explained(stage, dead).standing is Standing.WAITING


def test_what_is_due_is_kept_by_a_pause_before_all_else(stage: Stage) -> None:
    resting = released(stage, State.BACKING_OFF)
    assert "the queue is paused" in why(stage, stage.send(), paused=True)
    assert why(stage, resting, paused=True).endswith("before the next. The queue is paused meanwhile")


def test_what_the_next_scan_will_bury_says_so(stage: Stage) -> None:
    used_up = released(stage, State.BACKING_OFF, spent=5, after=1)
    expired = sent_with(stage, expires=stage.clock.now() + SECOND)
    unreadable = stage.put(b"\x63what is this", stage.clock.now())
    stage.clock.advance(5)
    assert "But it expired 2026-01-01T00:00:01Z (4s ago); the next claim that reads it makes it a dead letter" in why(
        stage, expired
    )
    assert "But its message cannot be read: format byte 63" in why(stage, unreadable)
    assert "But its attempts are used up (5 of 5)" in why(stage, used_up)


def test_a_sender_far_ahead_of_time_is_reported(stage: Stage) -> None:
    sent = sent_with(stage, sent=7200)
    assert "But its sender's clock showed 2026-01-01T02:00:00Z (in 2h)" in why(stage, sent)
    assert stage.claim(1) == []
    hidden = "it is hidden until 2026-01-01T01:10:00Z (in 1h10m): its sender's clock showed 2026-01-01T02:00:00Z"
    assert hidden in why(stage, sent)


def test_a_row_that_cannot_be_read_stops_its_messages(stage: Stage) -> None:
    sent = stage.send()
    stage.store.send(Batch(ROW, (Put(HEADER, b"\x63"),)))
    assert f"But nothing is claimed from its row: row {ROW}: its header cannot be read" in why(stage, sent)


def test_what_is_gone_says_what_can_be_said_of_it(stage: Stage) -> None:
    never = MessageId(ROW, 0, stage.bob.id_at(stage.clock.now()))
    assert "it was never sent here" in why(stage, never)
    done, later = stage.send(), stage.send(delay=90)
    [taken] = stage.claim(1)
    stage.settle(taken, ACK)
    stage.run(delete(stage.ann, later))
    assert explained(stage, done).standing is None
    assert "it was acked or deleted, or never sent" in why(stage, done)
    assert why(stage, later).startswith(
        "it was deleted, or never sent: it would not have been due before 2026-01-01T00:01:30Z (in 1m30s)"
    )


def test_its_life_is_reported_in_the_order_of_time(stage: Stage) -> None:
    now = stage.clock.now()
    sent = stage.send(delay=20, expires=now + 90 * SECOND)
    stage.clock.advance(20)
    [taken] = stage.claim(1)
    stage.settle(taken, Release(stage.clock.now() + SECOND, 1))
    assert explained(stage, sent).life == (
        LifeEvent(None, "1 of 5 attempts used up; the logs of its consumers have their errors"),
        LifeEvent(now, "sent"),
        LifeEvent(now + 20 * SECOND, "due for the first time"),
        LifeEvent(now + 90 * SECOND, "expires unless it was handed out"),
    )


def test_programs_are_told_the_same(stage: Stage) -> None:
    told = explained(stage, stage.send(delay=90)).as_json()
    assert (told["standing"], told["until"], told["allowed"]) == ("delayed", "2026-01-01T00:01:30.000000Z", 5)
    assert told["life"] == [
        {"at": "2026-01-01T00:00:00.000000Z", "what": "sent"},
        {"at": "2026-01-01T00:01:30.000000Z", "what": "due for the first time"},
    ]
