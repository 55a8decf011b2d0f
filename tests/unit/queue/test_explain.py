"""What a queue shows of a message and of itself, on every store."""

from __future__ import annotations

import contextlib

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import BadInput
from astyqueue.findings import Finding, Severity
from astyqueue.model.envelope import MessageId
from astyqueue.model.health import findings_of
from astyqueue.model.views import Standing
from astyqueue.protocol.admin.health import read_health
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.runtime import new_client
from astyqueue.store import Store
from astyqueue.testing import Recording, TimeMachine


def examined(queue: MessageQueue) -> dict[str, Finding]:
    """What the doctor says of a queue, by subject."""
    found = findings_of(queue.run(read_health(new_client(queue.clock), queue.settings)))
    return {finding.subject: finding for finding in found}


@pytest.mark.every_store
def test_a_message_is_explained_from_its_sending_to_its_ack(queue: MessageQueue) -> None:
    sent = queue.send("hello").id
    assert queue.explain(sent).why.endswith(
        "Nothing was ever claimed from its row: start a worker or a consumer on this queue"
    )
    with queue.receive() as [delivery]:
        held = queue.explain(str(sent))
        assert (held.standing, held.holder) == (Standing.IN_FLIGHT, queue.core.process.name)
        assert held.until is not None
        delivery.release("1h")
    assert queue.explain(sent).why.startswith("it was put off until ")
    queue.delete(sent)
    gone = queue.explain(sent)
    assert (gone.standing, "acked or deleted" in gone.why) == (None, True)


def test_a_failure_a_delay_and_a_dead_letter_are_explained(queue: MessageQueue) -> None:
    failed, rejected = queue.send("fails").id, queue.send("is rejected").id
    delayed = queue.send("later", delay="1h").id
    for delivery in queue.receive(2):
        delivery.release("1h") if delivery.message_id == failed else delivery.reject("no such address")
    found = {id_: queue.explain(id_) for id_ in (failed, rejected, delayed)}
    assert [each.standing for each in found.values()] == [Standing.SNOOZED, Standing.DEAD, Standing.DELAYED]
    assert "its consumer rejected it: no such address" in found[rejected].why
    assert [event.what for event in found[rejected].life] == [
        "sent",
        "due for the first time",
        "became a dead letter, after 1 attempt: no such address",
    ]


def test_a_dead_letter_that_was_redriven_and_died_again_has_both_deaths(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    sent = queue.send("is rejected").id
    queue.receive()[0].reject("no such address")
    clock.advance("1s")
    queue.redrive()
    clock.advance("1s")
    queue.receive()[0].reject("no such town")
    told = [event.what for event in queue.explain(sent).life]
    assert [what for what in told if what.startswith(("became", "redriven"))] == [
        "became a dead letter: no such address",
        "redriven by an operator or a program",
        "became a dead letter, after 1 attempt: no such town",
    ]


def test_what_the_history_keeps_is_reported_with_it(queue: MessageQueue) -> None:
    queue.configure(history="all")
    sent = queue.send("hello").id
    with contextlib.suppress(ZeroDivisionError), queue.receive() as [_]:
        1 / 0  # noqa: B018 - raised while the message is leased
    told = [event.what for event in queue.explain(sent).life]
    assert told[1:] == [
        "sent",
        "due for the first time",
        f"claimed by {queue.core.process.name}",
        "attempt 1 failed: ZeroDivisionError: division by zero",
        "put back for another attempt",
    ]
    queue.delete(sent)
    gone = queue.explain(sent)
    assert gone.why.startswith("it is no longer in the queue; its last known event: deleted, or replaced by another")
    assert gone.life[0].what == "sent"


def test_an_explanation_costs_three_round_trips_and_one_more_for_a_history(
    builder: QueueBuilder[MessageQueue], store: Store
) -> None:
    recorded = Recording(store)
    with builder.store(recorded).build() as queue:
        trips = []
        for history in ("none", "all"):
            queue.configure(history=history)
            sent, before = queue.send("hello").id, len(recorded.requests)
            queue.explain(sent)
            trips.append(len(recorded.requests) - before)
    assert trips == [3, 4]


def test_an_id_of_nothing_is_explained(queue: MessageQueue) -> None:
    never = MessageId(queue.core.ring.rows()[0], 0, queue.core.process.id_at(queue.clock.now()))
    assert "it was never sent here" in queue.explain(never).why


def test_a_paused_queue_and_its_dead_letters_are_found(queue: MessageQueue) -> None:
    assert {finding.severity for finding in examined(queue).values()} == {Severity.OK}
    queue.send("is rejected")
    queue.receive()[0].reject("no such address")
    queue.pause()
    found = examined(queue)
    assert found[f"queue {queue.name}"].fact == "is paused"
    dead = found[f"dead letters of queue {queue.name}"]
    assert (dead.severity, dead.fact) == (Severity.WARNING, "1 (1 rejected), 1 of them within 1h")
    assert "(1 time) because of: no such address" in dead.reason


def test_a_message_that_failed_once_and_was_done_then_does_not_read_as_lost(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    sent = queue.send("hello").id
    with contextlib.suppress(ZeroDivisionError), queue.receive() as [_]:
        1 / 0  # noqa: B018 - raised while the message is leased
    clock.advance("10m")
    with queue.receive() as [_]:
        pass
    assert queue.explain(sent).why.startswith(
        "it was done, or deleted: the queue does not record which (history=failures). "
        "The last event before that: put back for another attempt, "
    )


def test_of_a_message_that_left_no_event_the_reason_is_reported(queue: MessageQueue) -> None:
    queue.configure(history="none")
    sent = queue.send("hello").id
    with queue.receive() as [_]:
        pass
    assert queue.explain(sent).why.endswith("or never sent; the queue does not record which (history=none)")


def test_a_message_of_another_queue_is_refused(queue: MessageQueue) -> None:
    with pytest.raises(BadInput, match="is not of queue 'emails'"):
        queue.explain("mail:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21")
