"""What the store refuses for ever, and what cannot be read: set aside, while the rest goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import BadInput, NotFound
from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.observe import ObservedEvent, SpoolForwarded, SpoolRefused
from astyqueue.protocol.admin.settings import SETTINGS
from astyqueue.protocol.steps import Read
from astyqueue.spool import RefusedMessage, SpooledMessage
from astyqueue.store import Column
from tests.support.places import ONE_ROW
from tests.unit.journal.conftest import until_true
from tests.unit.spool.conftest import Gate, Opening, bodies


def refused(folder: Path, number: int = 1) -> list[RefusedMessage]:
    with ReadOnlyJournal.open(folder / "queue-emails" / str(number), codec=BYTES, prefix="refused") as journal:
        return [RefusedMessage.parse(record.value) for record in journal.read()]


@pytest.mark.parametrize("error", [BadInput("batch too large"), RuntimeError("a bug of the driver")])
def test_a_message_that_the_store_refuses_is_set_aside_and_the_rest_goes_on(
    error: Exception, opened: Opening, store: Gate, plain: MessageQueue, folder: Path
) -> None:
    queue = opened()
    store.refuses = lambda value: error if b'"poison"' in value else None
    sent = queue.send_many(["a", "poison", "b", *range(600), "poison", "c"])
    assert queue.spool.drain("30s")
    status = queue.spool.status()
    assert (status.messages, status.refused) == (0, 2)
    assert str(error) in status.last_refusal
    assert status.last_error == ""
    assert bodies(plain, 603) == ["a", "b", *range(600), "c"]
    aside = refused(folder)
    assert [SpooledMessage.parse(one.message).id for one in aside] == [sent.ids[1], sent.ids[-2]]
    assert {SpooledMessage.parse(one.message).envelope.body for one in aside} == {"poison"}
    assert all(str(error) in one.reason for one in aside)


def test_refused_messages_that_were_all_reclaimed_are_counted_no_more(
    opened: Opening, store: Gate, folder: Path
) -> None:
    queue = opened()
    store.refuses = lambda value: BadInput("no") if b'"poison"' in value else None
    queue.send_many(["poison", "poison"])
    assert queue.spool.drain("30s")
    assert queue.spool.status().refused == 2
    queue.close()
    place = folder / "queue-emails" / "1"
    with Journal.open(place, codec=BYTES, prefix="refused", retain="0s") as aside:
        aside.reclaim(last_page=True)
    again = opened()
    assert again.spool.status().refused == 0
    again.send("poison")
    assert again.spool.drain("30s")
    assert again.spool.status().refused == 1


def dropped(store: Gate) -> None:
    """Drop the queue behind the gate, so that the forwarder reaches the store only afterwards."""
    with MessageQueue.builder().store(store.behind).name("emails").build() as queue:
        queue.drop()


def test_messages_of_a_dropped_queue_are_set_aside(opened: Opening, store: Gate) -> None:
    queue = opened()
    queue.send("before")
    assert queue.spool.drain("20s")
    store.is_away = True
    queue.send_many(range(3))
    dropped(store)
    store.is_away = False
    assert queue.spool.drain("20s")
    status = queue.spool.status()
    assert (status.messages, status.refused) == (0, 3)
    assert "queue 'emails' was dropped" in status.last_refusal


def test_messages_of_a_queue_that_was_recreated_with_another_layout_are_set_aside_and_sends_say_so(
    opened: Opening, store: Gate, folder: Path
) -> None:
    queue = opened()
    store.is_away = True
    queue.send("old")
    dropped(store)
    with MessageQueue.builder().store(store.behind).name("emails").options(**ONE_ROW | {"priorities": 5}).build():
        store.is_away = False
        assert queue.spool.drain("20s")
    assert queue.spool.status().refused == 1
    assert queue.spool.status().last_refusal.endswith("recreated with another layout")
    with pytest.raises(NotFound, match="recreated with another layout: restart this process"):
        queue.send("new")
    assert refused(folder)[0].reason.startswith("NotFound")
    with MessageQueue.builder().store(store).name("emails").spool(folder).build() as again:
        assert again.settings.layout.priorities == 5
        again.send("new", priority=4)
        assert again.spool.drain("20s")
        assert bodies(again, 1) == ["new"]


def test_settings_that_cannot_be_read_refuse_no_message(opened: Opening, store: Gate, plain: MessageQueue) -> None:
    queue = opened()
    column = Column(SETTINGS, b"\xff of a newer release", 0)
    store.answers = lambda request: (
        [[column]] if isinstance(request, Read) and "settings" in request.wanted[0].row else None
    )
    queue.send("a")
    assert queue.spool.drain("20s")
    assert queue.spool.status().refused == 0
    store.answers = lambda _: None
    assert bodies(plain, 1) == ["a"]


def test_a_record_that_is_no_message_is_set_aside(opened: Opening, plain: MessageQueue, folder: Path) -> None:
    opened().close()
    with Journal.open(folder / "queue-emails" / "1", codec=BYTES) as journal:
        journal.append(b"\xff not a message")
    queue = opened()
    queue.send("a")
    assert queue.spool.drain("20s")
    assert queue.spool.status().refused == 1
    assert "it is not a spooled message" in refused(folder)[0].reason
    assert bodies(plain, 1) == ["a"]


def test_a_refusal_after_an_outage_is_no_outage(opened: Opening, store: Gate, caplog: pytest.LogCaptureFixture) -> None:
    queue = opened()
    store.refuses = lambda value: BadInput("no") if b'"poison"' in value else None
    with caplog.at_level(logging.WARNING, "astyqueue.spool"):
        queue.send("poison")
        assert queue.spool.drain("20s")
    [line] = caplog.records
    assert line.getMessage().startswith("spool_message_set_aside queue=emails")
    assert queue.spool.status().failing_since is None


def test_observers_get_what_was_forwarded_and_what_was_set_aside(
    store: Gate, plain: MessageQueue, folder: Path
) -> None:
    events: list[ObservedEvent] = []

    class Noting:
        def observe(self, event: ObservedEvent) -> None:
            events.append(event)

    store.refuses = lambda value: BadInput("no") if b'"poison"' in value else None
    builder = MessageQueue.builder().store(store).name(plain.name).spool(folder).observer(Noting())
    with builder.build() as queue:
        ids = queue.send_many(["a", "poison", "b"]).ids
        assert queue.spool.drain("20s")
    forwarded = [one for event in events if isinstance(event, SpoolForwarded) for one in event.messages]
    assert forwarded == [ids[0], ids[2]]
    assert [event for event in events if isinstance(event, SpoolRefused)] == [
        SpoolRefused("emails", ids[1], "BadInput: no")
    ]


def test_the_debug_log_has_what_was_forwarded(opened: Opening, store: Gate, caplog: pytest.LogCaptureFixture) -> None:
    store.refuses = lambda value: BadInput("no") if b'"poison"' in value else None
    with caplog.at_level(logging.DEBUG, "astyqueue.spool"):
        queue = opened()
        queue.send("a")
        assert queue.spool.drain("20s")
        queue.send("poison")
        assert queue.spool.drain("20s")
    lines = [one.getMessage() for one in caplog.records if one.name == "astyqueue.spool"]
    assert any(line.startswith("forwarded queue=emails messages=emails:0:0/0/") for line in lines)
    assert any(line.startswith("set_aside queue=emails message=emails:0:0/0/") for line in lines)


def refusing_poison(value: bytes) -> Exception | None:
    return BadInput("no") if b"poison" in value else None


def test_a_message_is_set_aside_beside_one_that_a_process_without_a_cap_set_aside(
    opened: Opening, store: Gate, plain: MessageQueue, folder: Path
) -> None:
    store.refuses = refusing_poison
    first = opened(cap="16MiB", drain=0)
    store.is_away = True
    first.send("poison 1")
    first.close()
    store.is_away = False
    with opened(cap=None, drain=0) as drain:
        assert drain.spool.drain("20s")
    again = opened(cap="16MiB", drain=0)
    again.send_many(["poison 2", "fine"])
    assert again.spool.drain("20s")
    assert len(refused(folder)) == 2
    assert bodies(plain, 1) == ["fine"]


def test_a_message_is_set_aside_although_the_cap_is_less_than_two_stored_pages(
    opened: Opening, store: Gate, folder: Path
) -> None:
    store.refuses = refusing_poison
    queue = opened(cap="16KiB", drain=0)
    with Journal.open(folder / "queue-emails" / "1", codec=BYTES, prefix="refused", page_size="16KiB") as earlier:
        earlier.append(RefusedMessage("no", 1, b"{}").pack())
    queue.send("poison")
    assert queue.spool.drain("20s")
    assert len(refused(folder)) == 2


def test_a_message_is_set_aside_that_is_larger_than_the_cap_in_its_refused_form(
    opened: Opening, store: Gate, plain: MessageQueue, folder: Path
) -> None:
    store.refuses = refusing_poison
    queue = opened(cap="16KiB", drain=0)
    queue.send("poison")
    quotes = ["poison", *["a"] * 2_900]
    queue.send(quotes)
    queue.send("fine")
    assert queue.spool.drain("20s")
    assert [SpooledMessage.parse(one.message).envelope.body for one in refused(folder)] == ["poison", quotes]
    assert len(refused(folder)[1].pack()) > 16 << 10
    assert bodies(plain, 1) == ["fine"]


def test_a_message_waits_while_another_process_has_the_journal_of_refused_ones_open(
    opened: Opening, store: Gate, folder: Path
) -> None:
    queue = opened(drain=0)
    store.refuses = refusing_poison
    with Journal.open(folder / "queue-emails" / "1", codec=BYTES, prefix="refused"):
        queue.send("poison")
        until_true(lambda: "JournalInUse" in queue.spool.status().last_error)
        assert not queue.spool.drain("200ms")
    assert queue.spool.drain("20s")
    assert queue.spool.status().refused == 1


def test_a_reason_with_half_a_surrogate_pair_can_be_stored() -> None:
    assert RefusedMessage.parse(RefusedMessage("of \udcff", 1, b"{}").pack()).reason == "of \\udcff"
