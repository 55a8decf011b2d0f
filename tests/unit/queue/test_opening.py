from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import astyqueue
from astyqueue import MessageQueue, Retry
from astyqueue.clock import Clock
from astyqueue.errors import BadInput, BadSetting, Closed, LayoutDiffers, NotFound
from astyqueue.model.settings import ROWS_AT_MOST, Layout, Settings
from astyqueue.protocol.admin.settings import SETTINGS, encode_settings
from astyqueue.protocol.layout.rows import Ring, settings_row
from astyqueue.protocol.steps import Client
from astyqueue.queue import runtime as core_module
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.runtime import new_client
from astyqueue.store import Batch, Named, Put, Store
from astyqueue.testing import TimeMachine
from tests.support.places import ONE_ROW, Place


def test_a_queue_that_exists_keeps_its_layout_and_says_what_differs(
    builder: QueueBuilder[MessageQueue], store: Store
) -> None:
    builder.time_shards(3, every="5s").concurrency_shards(2).build()
    with pytest.raises(LayoutDiffers, match="concurrency_shards"):
        MessageQueue.builder().store(store).name("emails").concurrency_shards(4).build()
    joined = MessageQueue.builder().store(store).name("emails").build()
    assert joined.settings.layout.concurrency_shards == 2


def test_stored_behaviour_stands_and_the_log_says_so(
    builder: QueueBuilder[MessageQueue], store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    builder.build()
    with caplog.at_level(logging.WARNING, logger="astyqueue.queue"):
        joined = MessageQueue.builder().store(store).name("emails").lease("7m").build()
    assert joined.settings.behaviour.lease_us == 30_000_000
    assert "requested_setting_ignored queue=emails setting=lease stored=30s requested=7m" in caplog.text
    assert 'remedy="astyqueue queues set emails lease=7m"' in caplog.text


def test_what_is_missing_or_unknown_is_said_plainly(builder: QueueBuilder[MessageQueue]) -> None:
    with pytest.raises(BadSetting, match="no store was named"):
        MessageQueue.builder().name("emails").build()
    with pytest.raises(BadSetting, match="has no name"):
        MessageQueue.builder().store("memory://").build()
    with pytest.raises(BadSetting, match="no setting 'leese'"):
        builder.options(leese="1m")
    with pytest.raises(BadInput, match="a:b"):
        builder.name("a:b").build()


@pytest.mark.every_store
def test_changed_behaviour_is_followed_by_others_within_ten_seconds(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    queue.configure(max_attempts=9)
    assert queue.settings.behaviour.max_attempts == 9
    clock.advance("10s")
    another.receive()
    assert another.settings.behaviour.max_attempts == 9


def test_a_paused_queue_delivers_nothing_and_takes_everything(queue: MessageQueue) -> None:
    queue.pause()
    queue.send("patience")
    assert len(queue.receive()) == 0
    queue.resume()
    assert queue.receive()[0].body == "patience"


def test_a_layout_cannot_be_changed_later(queue: MessageQueue) -> None:
    with pytest.raises(BadSetting, match="fixed when a queue is created"):
        queue.configure(priorities=3)


def test_an_unknown_setting_is_answered_with_those_that_can_be_changed(queue: MessageQueue) -> None:
    with pytest.raises(BadSetting, match="no setting 'leese'; did you mean 'lease'"):
        queue.configure(leese="5m")
    with pytest.raises(
        BadSetting,
        match=r"no setting 'colour'; it has backoff, backoff_cap, body_bytes, deduplication, expires, .*sort_order$",
    ):
        queue.configure(colour="blue")


def test_a_setting_that_is_no_duration_is_named(queue: MessageQueue, builder: QueueBuilder[MessageQueue]) -> None:
    with pytest.raises(BadSetting, match=r"^backoff: 'soon' is not a duration: give seconds"):
        queue.configure(backoff="soon")
    with pytest.raises(BadSetting, match=r"^every: 'soon' is not a duration: give seconds"):
        builder.name("letters").options(every="soon").build()


def test_a_closed_queue_says_so(queue: MessageQueue) -> None:
    queue.close()
    queue.close()
    with pytest.raises(Closed, match="was closed"):
        queue.send("too late")


@pytest.mark.every_store
def test_a_connection_opens_queues_and_lists_them(place: Place) -> None:
    with astyqueue.connect(place.url) as connection:
        connection.queue("emails", lease="5m").send("one")
        connection.queue("audit")
        assert connection.queues() == ["audit", "emails"]
        assert connection.queue("emails").receive()[0].body == "one"


@pytest.mark.stores("sqlite", "cassandra")
@pytest.mark.every_store
def test_a_queue_goes_on_in_a_child_process_and_its_ids_do_not_collide(place: Place) -> None:
    queue = MessageQueue.builder().store(place.url).name("emails").options(**ONE_ROW).build()
    queue.send("before")
    child = os.fork()
    if child == 0:
        queue.send_many(["child"] * 20)
        os._exit(0)
    queue.send_many(["parent"] * 20)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    bodies = [delivery.body for delivery in queue.receive(100)]
    assert sorted(map(str, bodies)) == ["before"] + ["child"] * 20 + ["parent"] * 20


def test_two_first_threads_of_a_child_process_have_one_core_which_renews_what_either_holds(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two cores one would be forgotten, with the leases that it is to renew."""
    both_make_one = threading.Barrier(2, timeout=10)

    def process_of_both(clock: Clock) -> Client:
        both_make_one.wait()
        return new_client(clock)

    monkeypatch.setattr(core_module, "new_client", process_of_both)
    queue.core.pid = -1  # as in a child of the process that opened it
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: queue.core, range(2))
    assert first is second is queue.core
    assert first.pid == os.getpid()


@pytest.mark.stores("sqlite", "cassandra")
@pytest.mark.every_store
def test_messages_survive_their_process(place: Place) -> None:
    url = place.url
    with MessageQueue.builder().store(url).name("emails").build() as queue:
        queue.send_many(range(10))
        queue.receive(3)[0].ack()
    with MessageQueue.builder().store(url).name("emails").build() as queue:
        assert queue.counts().waiting == 7
        assert queue.counts().in_flight == 2


def test_the_public_names_are_there() -> None:
    assert {name for name in astyqueue.__all__ if not hasattr(astyqueue, name)} == set()
    assert issubclass(Retry, Exception)


@pytest.mark.parametrize(("time_shards", "concurrency_shards"), [(10_000, 2), (19, 1_024)])
def test_a_queue_of_more_rows_than_a_process_can_look_after_is_not_created(
    builder: QueueBuilder[MessageQueue], store: Store, time_shards: int, concurrency_shards: int
) -> None:
    assert (time_shards + 1) * concurrency_shards > ROWS_AT_MOST
    with pytest.raises(BadSetting, match=r"make \d+ rows with the home rows, and a queue has 20000 at most"):
        builder.time_shards(time_shards, every="1s").concurrency_shards(concurrency_shards).build()
    assert store.read((Named(settings_row("emails"), (SETTINGS,)),)) == [[]]


def test_a_queue_that_has_more_rows_already_can_be_opened(store: Store, clock: TimeMachine) -> None:
    settings = Settings(name="emails", layout=Layout(time_shards=10_000, concurrency_shards=2, time_shard_us=1_000_000))
    store.send(Batch(settings_row("emails"), (Put(SETTINGS, encode_settings(settings)),)))
    assert MessageQueue.builder().store(store).name("emails").clock(clock).build().settings == settings


@pytest.mark.every_store
def test_a_queue_that_only_has_to_exist_is_opened_as_it_is_stored_and_never_created(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine
) -> None:
    connection = astyqueue.Connection(store, clock)
    with pytest.raises(NotFound, match="there is no queue 'emails'"):
        connection.existing_queue("emails")
    assert connection.queues() == []
    with builder.concurrency_shards(2).build() as created, connection.existing_queue("emails") as opened:
        assert opened.settings == created.settings
        with pytest.raises(LayoutDiffers, match="concurrency_shards"):
            connection.existing_queue("emails", concurrency_shards=4)
        created.drop()
        with pytest.raises(NotFound, match="there is no queue 'emails'"):
            connection.existing_queue("emails")
    assert connection.queues() == []


def test_a_queue_that_only_has_to_exist_is_looked_for_in_the_store_though_a_spool_knows_it(
    place: Place, tmp_path: Path
) -> None:
    with astyqueue.connect(place.url, spool=tmp_path) as connection:
        with connection.queue("emails") as queue:
            queue.drop()
        with pytest.raises(NotFound, match="there is no queue 'emails'"):
            connection.existing_queue("emails")
        with astyqueue.connect(place.url) as another:
            created = another.queue("emails", concurrency_shards=2)
            with connection.existing_queue("emails") as queue:
                assert queue.settings == created.settings
                queue.send("by the spool")
            assert [delivery.body for delivery in created.receive()] == ["by the spool"]


def test_a_queue_knows_its_rows_by_their_names() -> None:
    ring = Ring("emails", Layout(time_shards=30, concurrency_shards=8))
    assert all(map(ring.contains, ring.rows()))
    others = [
        "emails",
        "emails:0",
        "emails:30:0",
        "emails:0:8",
        "emails:home:8",
        "mails:0:0",
        "emails:00:0",
        "emails:-1:0",
        "emails:+1:0",
    ]
    odd = [
        "emails:0:0:0",
        "emails:home:home",
        "emails:settings:0",
        "emails::0",
        "emails:0:",
        "emails:\u0661:0",
        f"emails:{'9' * 9_000}:0",
        "",
    ]
    assert not any(map(ring.contains, others + odd))


def test_a_message_is_looked_up_by_its_id_without_going_through_all_rows(
    builder: QueueBuilder[MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_rows(ring: Ring) -> list[str]:
        raise AssertionError(ring)

    with builder.time_shards(100, every="1h").concurrency_shards(100).build() as queue:
        sent = queue.send("a")
        monkeypatch.setattr(Ring, "rows", all_rows)
        found = queue.get(sent.id)
        monkeypatch.undo()
    assert (found.id, found.body) == (sent.id, "a")
