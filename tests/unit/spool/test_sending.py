"""Sends into a spool: what they accept and refuse, and what arrives."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from astyqueue import Hook, Message, MessageQueue, Vetoed, aio
from astyqueue.clock import SystemClock, instant
from astyqueue.errors import BadInput, BadSetting, Closed, LayoutDiffers, StoreUnavailable
from astyqueue.journal_errors import JournalFull
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.support.places import Place
from tests.unit.spool.conftest import Gate, Opening, bodies


@pytest.mark.every_store
def test_a_message_arrives_with_its_first_id_and_all_its_options(opened: Opening, plain: MessageQueue) -> None:
    queue, later = opened(), instant(SystemClock().now() + 7_200 * SECOND)
    sent = queue.send(
        {"to": "ada"}, key="k", priority=2, headers={"a": "b"}, expires="3h", lease="7s", max_attempts=3, at=later
    )
    assert queue.spool.drain("20s")
    [found] = plain.find("k")
    envelope = found.content.envelope
    assert envelope is not None
    assert (found.id, found.standing) == (sent.id, "delayed")
    assert (envelope.body, envelope.headers, envelope.attempts) == ({"to": "ada"}, {"a": "b"}, 3)
    assert envelope.lease == 7_000_000
    assert sent.id.priority == 2


@pytest.mark.every_store
def test_order_is_kept_over_an_outage(opened: Opening, plain: MessageQueue, store: Gate) -> None:
    queue = opened()
    for number in range(30):
        store.is_away = 10 <= number < 20
        queue.send(number)
    queue.send_many(range(30, 700))
    assert queue.spool.drain("20s")
    assert bodies(plain, 700) == list(range(700))


class _Distant(Gate):
    """A store for many concurrent calls, in which the first commit of messages waits for one of another row."""

    at_once = 64

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.both_commit = threading.Barrier(2)
        self.rows: set[str] = set()

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and len(request.batch.puts) > 100 and request.batch.row not in self.rows:
            self.rows.add(request.batch.row)
            self.both_commit.wait(20)
        return super().perform(request)


def test_rows_are_forwarded_at_the_same_time_to_a_store_that_is_for_it_and_each_in_order(
    place: Place, folder: Path
) -> None:
    behind = place.store(SystemClock())
    with MessageQueue.builder().store(behind).name("many").concurrency_shards(2).time_shards(1).build() as plain:
        builder = MessageQueue.builder().store(_Distant(behind)).name("many").spool(folder)
        with builder.build() as queue:
            sent = queue.send_many(range(900)).ids
            assert queue.spool.drain("20s")
        row_of = {number: id_.row for number, id_ in enumerate(sent) if id_}
        found = [int(str(body)) for body in bodies(plain, 900)]
        assert sorted(found) == list(range(900))
        for row in set(row_of.values()):
            numbers = [number for number in found if row_of[number] == row]
            assert numbers == sorted(numbers)


def test_a_send_makes_no_request_to_the_store(opened: Opening, store: Gate) -> None:
    queue = opened()
    store.is_away = True
    ids = [queue.send(number).id for number in range(5)] + queue.send_many(["a", "b"]).ids
    status = queue.spool.status()
    assert (status.messages, len(set(ids))) == (7, 7)
    assert status.oldest is not None
    assert instant(SystemClock().now()) - status.oldest < timedelta(seconds=30)
    assert queue.stats.spooled == 7
    store.is_away = False
    assert queue.spool.drain("20s")
    assert (queue.spool.status().messages, queue.stats.sent) == (0, 7)


@pytest.mark.parametrize(
    "options",
    [
        {"unique": "reject", "key": "k"},
        {"unique": "keep", "key": "k"},
        {"trigger": Every("1h"), "key": "k"},
    ],
)
def test_what_needs_an_answer_of_the_store_is_refused(options: dict[str, object], opened: Opening) -> None:
    queue = opened()
    with pytest.raises(BadInput, match=r"needs an answer of the store.*without a spool"):
        queue.send("hello", **options)  # type: ignore[arg-type]  # options of send
    assert queue.spool.status().messages == 0


def test_send_many_refuses_unique_keys_and_sends_none_of_its_thousand(opened: Opening) -> None:
    queue = opened()
    with pytest.raises(BadInput, match="unique='keep' needs an answer"):
        queue.send_many([Message(1), Message(2, key="k", unique="keep")])
    assert queue.stats.spooled == 0


def test_a_message_that_cannot_be_stored_is_refused_by_the_send(opened: Opening) -> None:
    queue = opened()
    for body, options in (("x" * 300_000, {}), ("x", {"key": ""}), ("x", {"priority": 9}), (object(), {})):
        with pytest.raises(BadInput):
            queue.send(body, **options)
    assert queue.stats.spooled == 0


def test_hooks_are_called_once_at_the_send(opened: Opening, store: Gate) -> None:
    seen: list[object] = []

    class Noting(Hook):
        def before_send(self, message: Message) -> None:
            if message.body == "no":
                reason = "not this one"
                raise Vetoed(reason)

        def after_send(self, message: Message, sent: MessageId) -> None:
            seen.append((message.body, sent))

    queue = opened(hook=Noting())
    store.is_away = True
    sent = queue.send("yes")
    report = queue.send_many(["a", "no", "b"])
    assert (report.vetoed, report.ids[1]) == ({1: "not this one"}, None)
    assert seen == [("yes", sent.id), ("a", report.ids[0]), ("b", report.ids[2])]
    store.is_away = False
    assert queue.spool.drain("20s")
    assert len(seen) == 3


def test_the_history_has_one_event_of_each_send(opened: Opening, plain: MessageQueue) -> None:
    plain.configure(history="all")
    queue = opened()
    ids = queue.send_many(range(3)).ids
    assert queue.spool.drain("20s")
    assert sorted(str(event.message) for event in plain.history(kinds=["sent"])) == sorted(map(str, ids))


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    opened: Opening, store: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened()
    store.is_away = True
    with caplog.at_level(logging.INFO, "astyqueue.spool"):
        queue.send("a")
        assert not queue.spool.drain("1s")
        status = queue.spool.status()
        assert status.failing_since is not None
        assert "the network is down" in status.last_error
        store.is_away = False
        assert queue.spool.drain("20s")
    begun, ended = [record.getMessage() for record in caplog.records if record.name == "astyqueue.spool"]
    assert begun.startswith("spool_cannot_forward queue=emails error=")
    assert ended.startswith("spool_forwards_again queue=emails")
    assert queue.spool.status().failing_since is None


def test_a_queue_is_built_while_its_store_is_away_once_the_folder_knows_it(tmp_path: Path) -> None:
    url, away = f"sqlite:///{tmp_path}/q.db", tmp_path / "away.db"

    def builder() -> QueueBuilder[MessageQueue]:
        return MessageQueue.builder().store(url).name("emails").spool(tmp_path / "spool")

    with builder().max_attempts(7).build() as queue:
        queue.send("first")
        assert queue.spool.drain("20s")
    (tmp_path / "q.db").rename(away)
    (tmp_path / "q.db").mkdir()
    with pytest.raises(StoreUnavailable):
        MessageQueue.builder().store(url).name("emails").build()
    with pytest.raises(StoreUnavailable):
        builder().name("others").build()
    with pytest.raises(LayoutDiffers, match="priorities is 1, not the requested 2"):
        builder().priorities(2).build()
    with builder().build() as queue:
        assert queue.settings.behaviour.max_attempts == 7
        queue.send("second")
        with pytest.raises(StoreUnavailable):
            queue.receive()
    (tmp_path / "q.db").rmdir()
    away.rename(tmp_path / "q.db")
    with builder().build() as queue:
        assert queue.spool.drain("20s")
        assert bodies(queue, 2) == ["first", "second"]


def test_the_spool_of_another_user_is_refused_and_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: Path) -> NoReturn:
        raise PermissionError

    monkeypatch.setattr(Path, "read_bytes", denied)
    builder = MessageQueue.builder().store("memory://").name("emails").spool(tmp_path)
    with pytest.raises(BadSetting, match=rf"{re.escape(str(tmp_path))}/queue-emails belongs to another user"):
        builder.build()


def test_a_bad_url_is_refused_at_once_although_nothing_is_opened(tmp_path: Path) -> None:
    with MessageQueue.builder().store("memory://").name("emails").spool(tmp_path).build():
        pass
    for url in ("nowhere://x", "not a url"):
        with pytest.raises(BadSetting):
            MessageQueue.builder().store(url).name("emails").spool(tmp_path).build()


@pytest.mark.parametrize(
    "options",
    [
        {"cap": "nothing"},
        {"cap": 100},
        {"when_full": "drop"},
        {"durability": "some"},
        {"batch_delay": "x"},
        {"drain": -1},
    ],
)
def test_wrong_options_are_refused_by_the_builder(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=next(iter(options))):
        MessageQueue.builder().spool(tmp_path, **options)  # type: ignore[arg-type]  # that is what it refuses


def test_a_full_spool_raises_if_it_shall(opened: Opening, store: Gate, plain: MessageQueue) -> None:
    queue = opened(cap="64KiB", when_full="raise")
    store.is_away = True
    sent = 0
    with pytest.raises(JournalFull):  # noqa: PT012 - which of the sends raises depends on the size of a page
        for sent in range(1_000):
            queue.send([sent, "x" * 1_000])
    store.is_away = False
    assert 30 < sent < 65
    assert queue.spool.drain("20s")
    assert [body[0] for body in bodies(plain, sent) if isinstance(body, list)] == list(range(sent))


def test_a_full_spool_drops_the_oldest_if_it_shall(opened: Opening, store: Gate, plain: MessageQueue) -> None:
    queue = opened(cap="64KiB", when_full="drop_oldest")
    store.is_away = True
    for number in range(200):
        queue.send([number, "x" * 1_000])
    status = queue.spool.status()
    assert status.dropped + status.messages == 200
    store.is_away = False
    assert queue.spool.drain("20s")
    numbers = [body[0] for body in bodies(plain, status.messages) if isinstance(body, list)]
    assert numbers[-status.messages :] == list(range(200 - status.messages, 200))
    assert status.messages > 20


def test_a_send_into_a_full_spool_waits_until_the_store_is_back(
    opened: Opening, store: Gate, plain: MessageQueue
) -> None:
    queue = opened(cap="64KiB")
    store.is_away = True
    sending = threading.Thread(target=lambda: [queue.send([number, "x" * 1_000]) for number in range(150)])
    sending.start()
    while queue.spool.status().bytes < 48 * 1_024:
        assert sending.is_alive()
    store.is_away = False
    sending.join(20)
    assert not sending.is_alive()
    assert queue.spool.drain("20s")
    assert [body[0] for body in bodies(plain, 150) if isinstance(body, list)] == list(range(150))


def test_a_closed_queue_takes_nothing(opened: Opening) -> None:
    queue = opened()
    queue.close()
    with pytest.raises(Closed):
        queue.send("late")


def test_a_queue_without_a_spool_says_so(plain: MessageQueue) -> None:
    with pytest.raises(BadInput, match="has no spool"):
        plain.spool.status()


def test_closing_does_not_wait_for_a_store_that_is_away_and_says_what_is_left(
    opened: Opening, store: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened(drain="1h")
    store.is_away = True
    queue.send("a")
    queue.close()
    assert "spool_closed_with_messages queue=emails messages=1" in caplog.text
    store.is_away = False
    assert opened().spool.drain("20s")


def test_closing_forwards_what_waits(opened: Opening, plain: MessageQueue) -> None:
    queue = opened()
    queue.send_many(range(1_200))
    queue.close()
    assert plain.counts().waiting == 1_200


def test_tasks_send_into_a_spool(store: Gate, plain: MessageQueue, folder: Path) -> None:
    async def send_all() -> None:
        queue = await aio.MessageQueue.builder().store(store).name("emails").spool(folder, durability="each").build()
        await asyncio.gather(*(queue.send(number) for number in range(20)))
        await queue.send_many(range(20, 30))
        assert await queue.spool.drain("20s")
        assert (await queue.spool.status()).messages == 0
        await queue.close()

    asyncio.run(send_all())
    assert sorted(bodies(plain, 30), key=str) == sorted(range(30), key=str)


def test_a_drain_during_a_try_that_fails_waits_for_no_pause_after_it(
    place: Place, clock: TimeMachine, folder: Path
) -> None:
    store, began = Gate(place.store(clock)), threading.Event()
    with MessageQueue.builder().store(store).name("emails").clock(clock).spool(folder, drain=0).build() as queue:

        def fail_once(_: bytes) -> Exception:
            store.refuses = lambda _: None
            began.set()
            clock.when_waiting(1)
            return StoreUnavailable()

        store.refuses = fail_once
        queue.send("a")
        assert began.wait(10)
        assert queue.spool.drain("20s")


@pytest.mark.every_store
def test_messages_are_delivered_once_after_days_in_which_their_rows_closed(
    place: Place, clock: TimeMachine, folder: Path
) -> None:
    store = Gate(place.store(clock))
    ring = MessageQueue.builder().store(store).name("emails").clock(clock).time_shards(4, every="1h")
    with ring.concurrency_shards(2).spool(folder, drain=0).build() as queue:
        store.is_away = True
        for _ in range(12):
            clock.advance("20m")
            queue.send_many(range(2))
        later = queue.send("later", delay="3d").id
        clock.advance("2d")
        store.is_away = False
        assert queue.spool.drain("20s")
        found: list[object] = []
        while received := queue.receive(24):
            found += [delivery.body for delivery in received]
            received.ack()
        assert sorted(map(str, found)) == ["0"] * 12 + ["1"] * 12
        clock.advance("1d")
        [last] = queue.receive(10)
        assert last.message_id == later


def test_a_backlog_takes_three_requests_for_200_messages_of_a_row_and_one_for_a_thousand(
    store: Gate, opened: Opening, plain: MessageQueue
) -> None:
    requests: list[Request] = []
    store.answers = requests.append
    with opened() as before:
        store.is_away = True
        before.send_many(range(2_000))
    requests.clear()
    store.is_away = False
    # The next process finds all of them: the first batch of the one that sent them may have fewer than a thousand.
    assert opened().spool.drain("20s")
    opening = 4  # the store's time, read, written and read again; the settings of the queue
    header = 1
    assert len([one for one in requests if not isinstance(one, Send)]) <= opening + header + 3 * 10 + 2
    assert bodies(plain, 2_000) == list(range(2_000))
