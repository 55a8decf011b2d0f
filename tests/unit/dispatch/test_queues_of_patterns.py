"""What a dispatcher does to the queues that its patterns find: it creates none, and closes those that have left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from astyqueue import MessageQueue
from astyqueue.dispatch.builder import DispatcherBuilder
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.queue_patterns import PatternWatch
from astyqueue.errors import Closed, StoreUnavailable
from astyqueue.queue.connection import Connection, connect
from astyqueue.spool.folder import SpoolFolder
from astyqueue.stores.memory import MemoryStore
from astyqueue.tasks import App
from tests.support.places import Place
from tests.unit.dispatch.stage import DEADLINE, Crew, Stage
from tests.unit.dispatch.test_joining_queues import Leaves, leaves
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["leaves", "lines"]


class Dropping(Connection):
    """A connection whose queue "mail.two" is dropped by another process right after each listing."""

    def queues(self) -> list[str]:
        names = super().queues()
        if "mail.two" in names:
            Connection(self.store, self.clock).existing_queue("mail.two").drop()
        return names


def watch_of(dispatcher: Dispatcher) -> PatternWatch:
    """What looks for the queues, to look now instead of five seconds later."""
    watch = dispatcher._served._watch  # noqa: SLF001 - see above
    assert watch is not None
    return watch


def patterns(connection: Connection, **options: object) -> DispatcherBuilder[Dispatcher]:
    return Dispatcher.builder().queues("mail.*", connection, **options).handler(print)  # type: ignore[arg-type]  # as the test says


def spool_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "astyqueue-spool:mail.one"]


def test_a_queue_that_is_dropped_after_it_was_listed_is_neither_served_nor_created_again(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("mail.one", "mail.two"):
        crew.queue(name)
    dispatcher = crew.begin(patterns(Dropping(crew.store, crew.clock)))
    assert [queue.name for queue in dispatcher.queues] == ["mail.one"]
    assert Connection(crew.store, crew.clock).queues() == ["mail.one"]
    assert "queue_not_joined" not in caplog.text


def test_the_worker_of_an_app_does_not_create_a_queue_again_that_is_dropped_after_it_was_listed(
    place: Place,
) -> None:
    with App(place.url) as app, connect(place.url) as another:
        app.task(queue="mail.one")(print)
        app.queue("mail.two", max_attempts=9)
        another.queue("mail.one")
        another.queue("mail.two")
        connection = app.core.connected()
        connection.__class__ = Dropping
        with app.worker(["mail.*"]) as dispatcher:
            assert [queue.name for queue in dispatcher.queues] == ["mail.one"]
        assert another.queues() == ["mail.one"]


def test_a_queue_whose_limit_cannot_be_found_is_not_opened(stage: Stage, place: Place, tmp_path: Path) -> None:
    def limit(_: str) -> int:
        raise LookupError

    with connect(place.url) as another, connect(place.url, spool=tmp_path) as connection:
        another.queue("mail.one")
        dispatcher = stage.begin(patterns(connection, limit=limit).build())
        for _ in range(3):
            watch_of(dispatcher).look()
        assert (dispatcher.queues, spool_threads()) == ([], [])


def test_a_queue_that_another_thread_closed_while_it_was_opened_joins_with_the_next_look(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    class Closing(Connection):
        closes = True

        def existing_queue(self, name: str, **settings: object) -> MessageQueue:
            queue = super().existing_queue(name, **settings)
            if self.closes:
                self.closes = False
                queue.close()
            queue.core.fire_nothing()
            return queue

    dispatcher = crew.begin(patterns(Closing(crew.store, crew.clock)))
    crew.queue("mail.one")
    watch_of(dispatcher).look()
    assert "queue_not_joined queue=mail.one" in caplog.text
    watch_of(dispatcher).look()
    assert [queue.name for queue in dispatcher.queues] == ["mail.one"]


def test_a_queue_that_has_left_is_closed_with_its_spool_and_may_join_again(
    stage: Stage, leaves: Leaves, place: Place, tmp_path: Path
) -> None:
    with connect(place.url) as another, connect(place.url, spool=tmp_path) as connection:
        another.queue("mail.one")
        dispatcher = stage.begin(patterns(connection).build())
        watch = watch_of(dispatcher)
        for _ in range(3):
            assert spool_threads() == ["astyqueue-spool:mail.one"]
            another.existing_queue("mail.one").drop()
            watch.look()
            leaves.when_left()
            watch.look()
            assert (dispatcher.queues, spool_threads()) == ([], [])
            another.queue("mail.one")
            watch.look()
        assert [queue.name for queue in dispatcher.queues] == ["mail.one"]
        assert len(SpoolFolder(tmp_path, "mail.one").numbers()) == 1


def test_queues_that_were_found_are_closed_with_their_spools_when_the_dispatcher_ends(
    stage: Stage, place: Place, tmp_path: Path
) -> None:
    with connect(place.url) as another, connect(place.url, spool=tmp_path) as connection:
        another.queue("mail.one")
        named = connection.queue("other")
        for _ in range(2):
            dispatcher = stage.begin(patterns(connection).queue(named).handler(print).build())
            [found] = [queue for queue in dispatcher.queues if queue.name == "mail.one"]
            assert spool_threads() == ["astyqueue-spool:mail.one"]
            dispatcher.drain(None)
            assert spool_threads() == []
            with pytest.raises(Closed):
                found.send("late")
            named.send("open")
        assert len(SpoolFolder(tmp_path, "mail.one").numbers()) == 1


@pytest.mark.parametrize("wait", [True, False])
def test_queues_that_were_found_are_closed_when_a_dispatcher_ends_that_was_never_started(
    crew: Crew, *, wait: bool
) -> None:
    crew.queue("mail.one")
    dispatcher = patterns(Connection(crew.store, crew.clock)).build()
    [found] = dispatcher.queues
    for _ in range(2):
        dispatcher.drain(None, wait=wait)
    for thread in dispatcher.threads:
        thread.join(DEADLINE)
    with pytest.raises(Closed):
        found.send("late")


def test_a_drain_that_is_only_requested_closes_no_queue_in_its_own_thread(crew: Crew) -> None:
    """It may come from a signal handler, in a thread that has a lock which closing a queue needs."""
    closing = list[str]()

    class Noting(Connection):
        def release(self, queue: MessageQueue) -> None:
            closing.append(threading.current_thread().name)
            super().release(queue)

    crew.queue("mail.one")
    dispatcher = patterns(Noting(crew.store, crew.clock)).build()
    dispatcher.stop(wait=False)
    for thread in dispatcher.threads:
        thread.join(DEADLINE)
    assert closing == ["astyqueue:close"]


def test_a_queue_that_is_found_while_the_dispatcher_ends_is_closed(crew: Crew) -> None:
    found, ended = list[MessageQueue](), threading.Event()

    class Ending(Connection):
        def existing_queue(self, name: str, **settings: object) -> MessageQueue:
            dispatcher.drain(None, wait=False)
            assert ended.wait(DEADLINE)
            found.append(super().existing_queue(name, **settings))
            return found[-1]

    dispatcher = crew.begin(patterns(Ending(crew.store, crew.clock)))
    dispatcher.when_finished(ended.set)
    watching = next(thread for thread in dispatcher.threads if thread.name == "astyqueue:queues")
    crew.queue("mail.one")
    crew.clock.when_waiting(3)  # those that supervise, report and look for queues
    crew.clock.advance("5s")
    watching.join(DEADLINE)
    with pytest.raises(Closed):
        found[0].send("late")


def test_a_queue_that_another_thread_adds_by_name_meanwhile_is_served_once_and_the_other_object_closed(
    crew: Crew,
) -> None:
    found: list[MessageQueue] = []

    class Adding(Connection):
        def existing_queue(self, name: str, **settings: object) -> MessageQueue:
            dispatcher.add_queue(self.queue(name), print)
            found.append(super().existing_queue(name, **settings))
            return found[-1]

    dispatcher = crew.begin(patterns(Adding(crew.store, crew.clock)))
    crew.queue("mail.one")
    for _ in range(2):
        watch_of(dispatcher).look()
    assert [queue.name for queue in dispatcher.queues] == ["mail.one"]
    with pytest.raises(Closed):
        found[0].send("late")


def test_a_store_whose_queues_cannot_be_listed_hides_those_of_no_other(crew: Crew, lines: Lines) -> None:
    class Unlisted(Connection):
        listed = threading.Semaphore(1)

        def queues(self) -> list[str]:
            if self.listed.acquire(blocking=False):
                return super().queues()
            message = "the store is broken on purpose"
            raise StoreUnavailable(message)

    broken, other = Unlisted(MemoryStore(crew.clock), crew.clock), Crew(crew.clock)
    broken.queue("mail.kept")
    builder = patterns(broken).queues("mail.*", Connection(other.store, crew.clock)).handler(print)
    dispatcher = crew.begin(builder)
    other.queue("mail.one")
    crew.clock.when_waiting(4)  # those that claim, supervise, report and look for queues
    crew.clock.advance("5s")
    lines.first("joined")
    assert [queue.name for queue in dispatcher.queues] == ["mail.kept", "mail.one"]
    assert "store=MemoryStore" in lines.first("queue_listing_failed").getMessage()


def test_a_connection_that_was_closed_hides_the_queues_of_no_other(crew: Crew, lines: Lines) -> None:
    closed, other = Connection(MemoryStore(crew.clock), crew.clock), Connection(crew.store, crew.clock)
    dispatcher = crew.begin(patterns(closed).queues("mail.*", other).handler(print))
    closed.close()
    crew.queue("mail.one")
    crew.clock.when_waiting(3)  # those that supervise, report and look for queues
    crew.clock.advance("5s")
    lines.first("joined")
    assert [queue.name for queue in dispatcher.queues] == ["mail.one"]
    assert lines.of("queue_listing_failed") == []


def test_a_queue_that_cannot_be_closed_keeps_no_other_open(crew: Crew, lines: Lines) -> None:
    class Unclosed(Connection):
        def release(self, queue: MessageQueue) -> None:
            if queue.name == "mail.one":
                message = "the store is broken on purpose"
                raise StoreUnavailable(message)
            super().release(queue)

    for name in ("mail.one", "mail.two"):
        crew.queue(name)
    dispatcher = crew.begin(patterns(Unclosed(crew.store, crew.clock)))
    [two] = [queue for queue in dispatcher.queues if queue.name == "mail.two"]
    dispatcher.drain(None)
    assert vars(lines.first("queue_not_closed"))["facts"]["queue"] == "mail.one"
    with pytest.raises(Closed):
        two.send("late")
