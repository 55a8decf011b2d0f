"""Observers get each request to the store, and what claims, settles and firings did, once each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import pytest

from astyqueue import LeaseLost, MessageQueue, aio, connect
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.observe import (
    Claimed,
    ClaimRefused,
    LeaseExpired,
    LeaseRenewed,
    ObservedEvent,
    Observers,
    OccurrenceFired,
    OutcomeLost,
    OutcomeReadBack,
    RequestDone,
    RowTakenOver,
    Settled,
)
from astyqueue.observe import events as all_events
from astyqueue.protocol.layout.rows import activity_row
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.health_check import examine
from astyqueue.queue_service import FileQueueService
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.unit.queue.test_renewal import receive, renew

E = TypeVar("E")
LOST_ANSWER: Final = OutcomeUnknown("no answer")


class Noted:
    """Keeps all events."""

    def __init__(self) -> None:
        self.events: list[ObservedEvent] = []

    def observe(self, event: ObservedEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


class Raising:
    """Raises at each event."""

    def observe(self, event: ObservedEvent) -> None:
        problem = f"cannot stand {type(event).__name__}"
        raise ValueError(problem)


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def observed(builder: QueueBuilder[MessageQueue], noted: Noted) -> Iterator[MessageQueue]:
    with builder.observer(noted).build() as queue:
        noted.events.clear()
        yield queue


def test_a_request_is_observed_with_its_rows_its_columns_and_its_outcome(observed: MessageQueue, noted: Noted) -> None:
    sent = [observed.send("a").id]
    inserted, noticed = noted.events
    assert inserted == RequestDone("emails", "send", (sent[0].row,), 1, "done", 0)
    assert noticed == RequestDone("emails", "send", (activity_row(observed.clock.now()),), 1, "done", 0)
    noted.events.clear()
    assert len(observed.peek()) == 1
    assert {event.kind for event in noted.of(RequestDone)} == {"read"}
    assert max(event.columns for event in noted.of(RequestDone)) >= 1
    assert noted.of(RequestDone) == noted.events


def test_the_requests_that_open_a_queue_are_observed(builder: QueueBuilder[MessageQueue], noted: Noted) -> None:
    with builder.observer(noted).build():
        assert "committed" in [event.outcome for event in noted.of(RequestDone)]


def test_requests_take_as_long_as_the_clock_says(clock: TimeMachine, noted: Noted) -> None:
    class Slow(Faulty):
        def perform(self, request: Request) -> object:
            clock.advance("3s")
            return super().perform(request)

    with MessageQueue.builder().store(Slow(MemoryStore(clock))).name("q").clock(clock).observer(noted).build() as queue:
        noted.events.clear()
        queue.send("x")
    assert next(event.took for event in noted.of(RequestDone)) == 3 * SECOND


@pytest.mark.every_store
def test_a_claim_and_the_outcomes_of_its_deliveries_are_observed_once(observed: MessageQueue, noted: Noted) -> None:
    ids = [observed.send(body).id for body in "abc"]
    first, second, third = observed.receive(3)
    assert [(event.row, sorted(event.messages)) for event in noted.of(Claimed)] == [(ids[0].row, sorted(ids))]
    first.ack()
    second.release("1h")
    third.extend("5m")
    third.reject("no")
    settled = [(event.outcome, event.messages) for event in noted.of(Settled)]
    assert settled == [
        ("acked", (first.message_id,)),
        ("released", (second.message_id,)),
        ("extended", (third.message_id,)),
        ("rejected", (third.message_id,)),
    ]
    assert [event.queue for event in noted.of(Settled)] == ["emails"] * 4
    assert not noted.of(OutcomeLost) + noted.of(ClaimRefused) + noted.of(RowTakenOver)


def test_messages_of_one_commit_are_in_one_event(observed: MessageQueue, noted: Noted) -> None:
    observed.send_many(["a", "b"])
    observed.receive(2).ack()
    assert [(event.outcome, len(event.messages)) for event in noted.of(Settled)] == [("acked", 2)]


def test_a_message_at_most_once_is_claimed_without_a_lease(observed: MessageQueue, noted: Noted) -> None:
    sent = observed.send("x", lease=0)
    observed.receive()
    assert noted.of(Claimed) == [Claimed(sent.id.row, (sent.id,), None)]


def test_a_lease_that_expired_and_an_outcome_that_came_too_late_are_observed(
    observed: MessageQueue, another: MessageQueue, clock: TimeMachine, noted: Noted
) -> None:
    sent = observed.send("x").id
    [lost] = another.receive()
    clock.advance("31s")
    [again] = observed.receive()
    assert noted.of(LeaseExpired) == [LeaseExpired(sent.row, sent, another.core.process.name, 1)]
    clock.advance("31s")
    another.receive()
    with pytest.raises(LeaseLost):
        again.ack()
    assert noted.of(OutcomeLost) == [OutcomeLost(sent.row, sent)]
    assert not noted.of(Settled)
    del lost


def test_a_renewal_is_one_event_for_all_messages_of_the_lease(
    observed: MessageQueue, clock: TimeMachine, noted: Noted
) -> None:
    ids = [observed.send(body).id for body in "abc"]
    deliveries = receive(observed, 3)
    deliveries[0].ack()
    clock.advance("15s")
    renew(observed)
    [renewed] = noted.of(LeaseRenewed)
    assert sorted(renewed.messages) == sorted(set(ids) - {deliveries[0].message_id})
    assert renewed.until == clock.now() + 30 * SECOND
    assert [event.outcome for event in noted.of(Settled)] == ["acked"]


def test_a_row_that_another_process_owned_is_taken_over(clock: TimeMachine, noted: Noted) -> None:
    store = MemoryStore(clock)

    def opened(*observers: Noted) -> MessageQueue:
        builder = MessageQueue.builder().store(store).name("emails").clock(clock).concurrency_shards(2)
        return builder.observer(*observers).build()

    with opened() as owner, opened(noted) as other:
        row = owner.send("a", key="k").id.row
        owner.receive(10).ack()
        clock.advance("1s")
        other.send("b", key="k")
        assert len(other.receive(10)) == 1
        assert noted.of(RowTakenOver) == [RowTakenOver(row, owner.core.process.name)]
        clock.advance("1s")
        other.send("c", key="k")
        assert len(other.receive(10)) == 1
    assert len(noted.of(RowTakenOver)) == 1


def test_a_refused_claim_is_observed(clock: TimeMachine, noted: Noted) -> None:
    class Overtaken(Faulty):
        """Another process claims just before the first claim."""

        rival: MessageQueue | None = None

        def perform(self, request: Request) -> object:
            if isinstance(request, Commit) and self.rival is not None:
                rival, self.rival = self.rival, None
                assert len(rival.receive()) == 1
            return super().perform(request)

    store = Overtaken(MemoryStore(clock))
    with (
        MessageQueue.builder().store(store).name("q").clock(clock).build() as rival,
        MessageQueue.builder().store(store).name("q").clock(clock).observer(noted).build() as queue,
    ):
        row = queue.send("a").id.row
        queue.send("b")
        store.rival = rival
        noted.events.clear()
        assert len(queue.receive()) == 1
    assert noted.of(ClaimRefused) == [ClaimRefused(row, 1)]
    assert [event.outcome for event in noted.of(RequestDone) if event.kind == "commit"][:2] == ["refused", "committed"]
    assert len(noted.of(Claimed)) == 1


def test_an_occurrence_that_is_fired_is_observed(observed: MessageQueue, clock: TimeMachine, noted: Noted) -> None:
    observed.send("tick", trigger=Every("1h"), key="hourly")
    clock.advance("1h")
    observed.receive(10).ack()
    clock.advance("1h")
    deliveries = observed.receive(10)
    fired = noted.of(OccurrenceFired)
    assert fired
    assert len(set(fired)) == len(fired) == observed.stats.fired
    assert {event.schedule for event in fired} == {"hourly"}
    assert {delivery.message_id for delivery in deliveries} <= {event.message for event in fired}


def one_fault(clock: TimeMachine, noted: Noted, *, applied: bool) -> tuple[Failing, MessageQueue]:
    """A queue whose first commit after this call has no answer."""
    inner = MemoryStore(clock)
    MessageQueue.builder().store(inner).name("q").clock(clock).build().close()
    store = Failing(inner, LOST_ANSWER, of=(Commit,), applied=applied)
    return store, MessageQueue.builder().store(store).name("q").clock(clock).observer(noted).build()


@pytest.mark.parametrize("applied", [True, False])
def test_a_claim_whose_outcome_was_unknown_is_read_back(clock: TimeMachine, noted: Noted, *, applied: bool) -> None:
    _, queue = one_fault(clock, noted, applied=applied)
    with queue:
        row = queue.send("x").id.row
        assert len(queue.receive()) == 1
    assert noted.of(OutcomeReadBack) == [OutcomeReadBack(row, "claim", applied)]
    assert len(noted.of(Claimed)) == 1
    [unknown] = [event for event in noted.of(RequestDone) if event.outcome == "unknown"]
    assert unknown.error is LOST_ANSWER


@pytest.mark.parametrize("applied", [True, False])
def test_a_settle_whose_outcome_was_unknown_is_read_back(clock: TimeMachine, noted: Noted, *, applied: bool) -> None:
    inner = MemoryStore(clock)
    store = Failing(inner, LOST_ANSWER, at=2, of=(Commit,), applied=applied)
    MessageQueue.builder().store(inner).name("q").clock(clock).build().close()
    with MessageQueue.builder().store(store).name("q").clock(clock).observer(noted).build() as queue:
        row = queue.send("x").id.row
        queue.receive().ack()
    assert noted.of(OutcomeReadBack) == [OutcomeReadBack(row, "settle", applied)]
    assert [event.outcome for event in noted.of(Settled)] == ["acked"]


@pytest.mark.parametrize("applied", [True, False])
def test_a_command_whose_outcome_was_unknown_is_read_back(clock: TimeMachine, noted: Noted, *, applied: bool) -> None:
    _, queue = one_fault(clock, noted, applied=applied)
    with queue:
        sent = queue.send("x").id
        assert queue.delete(sent)
    assert noted.of(OutcomeReadBack) == [OutcomeReadBack(sent.row, "change", applied)]


@pytest.mark.parametrize("applied", [True, False])
def test_a_unique_send_whose_outcome_was_unknown_is_read_back(
    clock: TimeMachine, noted: Noted, *, applied: bool
) -> None:
    _, queue = one_fault(clock, noted, applied=applied)
    with queue:
        sent = queue.send("x", key="k", unique="reject").id
    assert noted.of(OutcomeReadBack) == [OutcomeReadBack(sent.row, "send", applied)]


@pytest.mark.parametrize("applied", [True, False])
def test_a_change_of_settings_whose_outcome_was_unknown_is_read_back(
    clock: TimeMachine, noted: Noted, *, applied: bool
) -> None:
    _, queue = one_fault(clock, noted, applied=applied)
    with queue:
        queue.configure(max_attempts=7)
    assert noted.of(OutcomeReadBack) == [OutcomeReadBack("q:settings", "change", applied)]


@pytest.mark.parametrize("applied", [True, False])
def test_a_permit_whose_outcome_was_unknown_is_read_back(clock: TimeMachine, noted: Noted, *, applied: bool) -> None:
    inner = MemoryStore(clock)
    MessageQueue.builder().store(inner).name("q").clock(clock).options(max_active_processes=1).build().close()
    store = Failing(inner, LOST_ANSWER, of=(Commit,), applied=applied)
    with MessageQueue.builder().store(store).name("q").clock(clock).observer(noted).build() as queue:
        queue.send("x")
        assert len(queue.receive()) == 0
        clock.advance("1s")
        assert len(queue.receive()) == 1
    assert noted.of(OutcomeReadBack)[:1] == [OutcomeReadBack("q:permits", "change", applied)]


@pytest.mark.parametrize("applied", [True, False])
def test_a_firing_whose_outcome_was_unknown_is_read_back(clock: TimeMachine, noted: Noted, *, applied: bool) -> None:
    inner = MemoryStore(clock)
    with MessageQueue.builder().store(inner).name("q").clock(clock).build() as queue:
        queue.send("x", trigger=Every("1h", delay="1h"), key="hourly")
        queue.receive()
    clock.advance("1h")
    store = Failing(inner, LOST_ANSWER, of=(Commit,), applied=applied)
    with MessageQueue.builder().store(store).name("q").clock(clock).observer(noted).build() as queue:
        [delivery] = queue.receive(10)
    assert noted.of(OutcomeReadBack) == [OutcomeReadBack(delivery.message_id.row, "fire", applied)]


def test_requests_of_services_and_health_checks_are_in_the_debug_log(
    tmp_path: Path, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "astyqueue.requests")
    with FileQueueService(tmp_path, clock=clock) as service:
        assert service.queues() == []
        assert "rows=:queues" in caplog.text
    caplog.clear()
    examine(f"sqlite:///{tmp_path}/queues.db", clock=clock)
    assert "rows=:queues" in caplog.text


def test_a_failed_request_is_observed_with_its_error(clock: TimeMachine, noted: Noted) -> None:
    error = StoreUnavailable("gone")
    queue = MessageQueue.builder().store(Failing(MemoryStore(clock), error, of=(Send,))).name("q").clock(clock)
    with queue.observer(noted).build() as opened, pytest.raises(StoreUnavailable):
        opened.send("x")
    assert [event.error for event in noted.of(RequestDone) if event.outcome == "failed"] == [error]


def test_tasks_of_an_event_loop_are_observed_alike(clock: TimeMachine) -> None:
    async def in_tasks(noted: Noted) -> None:
        builder = aio.MessageQueue.builder().store(MemoryStore(clock)).name("emails").clock(clock).observer(noted)
        async with await builder.build() as queue:
            await queue.send("x")
            async with await queue.receive():
                pass

    def in_threads(noted: Noted) -> None:
        builder = MessageQueue.builder().store(MemoryStore(clock)).name("emails").clock(clock).observer(noted)
        with builder.build() as queue:
            queue.send("x")
            with queue.receive():
                pass

    first, second = Noted(), Noted()
    asyncio.run(in_tasks(first))
    in_threads(second)
    assert [type(event) for event in first.events] == [type(event) for event in second.events]
    assert [event.kind for event in first.of(RequestDone)] == [event.kind for event in second.of(RequestDone)]
    assert first.of(Claimed)
    assert first.of(Settled)


def test_the_errors_of_tasks_are_observed(clock: TimeMachine, noted: Noted) -> None:
    async def scene() -> None:
        store = Failing(MemoryStore(clock), LOST_ANSWER, at=9, applied=True)
        async with (
            await aio.MessageQueue.builder().store(store).name("q").clock(clock).observer(noted).build() as queue
        ):
            for _ in range(9):
                await queue.send("x")

    asyncio.run(scene())
    assert [event.outcome for event in noted.of(RequestDone) if event.error] == ["unknown"]


def test_a_connection_has_its_queues_observed(clock: TimeMachine, noted: Noted) -> None:
    with connect("memory://", clock=clock, observers=[noted]) as connection:
        connection.queue("emails").send("x")
        assert {event.queue for event in noted.of(RequestDone)} == {"emails"}
        noted.events.clear()
        assert connection.queues() == ["emails"]
        assert [event.kind for event in noted.of(RequestDone)] == ["read"]


def test_an_observer_that_raises_changes_nothing_and_is_logged_once_a_minute(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, caplog: pytest.LogCaptureFixture, noted: Noted
) -> None:
    def logged() -> list[str]:  # the driver of Cassandra logs what befalls other nodes
        return [record.getMessage() for record in caplog.records if record.name.startswith("astyqueue")]

    with builder.observer(Raising(), noted).build() as queue:
        for _ in range(3):
            queue.send("x")
            queue.receive().ack()
        assert queue.stats.acked == 3
        assert logged() == ["observer_failed observer=Raising"]
        clock.advance("61s")
        queue.send("x")
    assert len(logged()) == 2
    assert len(noted.of(Settled)) == 3


def test_without_an_observer_no_event_is_made(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    kinds = [
        kind for kind in vars(all_events).values() if isinstance(kind, type) and kind.__module__ == all_events.__name__
    ]
    assert len(kinds) == 13
    for kind in kinds:
        monkeypatch.setattr(kind, "__init__", _noting(made, vars(kind)["__init__"]))
    monkeypatch.setattr(Observers, "notify", lambda *_: made.append("notified"))
    with builder.build() as queue:
        queue.send_many(["a", "b"])
        first, second = queue.receive(2)
        first.extend("5m")
        first.ack()
        clock.advance("1h")
        queue.send("tick", trigger=Every("1h"), key="hourly")
        queue.receive(10).ack()
    assert made == []
    Claimed("q:0:0", (), None)
    assert made == ["Claimed"]
    del second


def _noting(made: list[str], initialise: Callable[..., None]) -> Callable[..., None]:
    def noting(self: object, *args: object) -> None:
        made.append(type(self).__name__)
        initialise(self, *args)

    return noting
