"""A caller's own writes on SQLite take effect together with acks and sends, or not at all."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from astyqueue import Dispatcher, Hook, KeyTaken, LeaseLost, Message, MessageQueue, Vetoed, connect
from astyqueue.errors import AlreadySettled, BadInput, NoTransactions, StoreError
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.sqlite_transaction import Transaction
from astyqueue.testing import TimeMachine
from tests.support.places import Place

PATIENCE = 30


class Booking(Exception):
    pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def queue(file: Path, clock: TimeMachine) -> Iterator[MessageQueue]:
    builder = MessageQueue.builder().store(f"sqlite:///{file}").name("orders").lease("30s").clock(clock)
    with builder.build() as opened:
        with opened.transaction() as tx:
            tx.connection.execute("CREATE TABLE booked (what TEXT PRIMARY KEY) STRICT")
        yield opened


def book(connection: sqlite3.Connection, what: object) -> None:
    connection.execute("INSERT INTO booked VALUES (?)", (str(what),))


def booked(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        return [what for (what,) in connection.execute("SELECT what FROM booked ORDER BY what")]
    finally:
        connection.close()


def received(queue: MessageQueue, body: object = "apples") -> Delivery:
    queue.send(body)
    [delivery] = queue.receive()
    return delivery


def bodies(queue: MessageQueue) -> list[object]:
    return [found.body for found in queue.peek(100, "all")]


def test_own_writes_an_ack_and_a_send_take_effect_when_the_block_ends(queue: MessageQueue, file: Path) -> None:
    delivery = received(queue)
    with queue.transaction() as tx:
        book(tx.connection, delivery.body)
        tx.ack(delivery)
        sent = tx.send("a bill for apples", key="bill")
        assert booked(file) == []
        assert [found.body for found in connect(f"sqlite:///{file}").queue("orders").peek(9, "all")] == ["apples"]
    assert booked(file) == ["apples"]
    assert (delivery.settled, queue.stats.acked, queue.stats.sent) == ("acked", 1, 2)
    [bill] = queue.receive()
    assert (bill.message_id, bill.body) == (sent.id, "a bill for apples")


def test_an_error_that_leaves_the_block_undoes_all_of_it(queue: MessageQueue, file: Path) -> None:
    delivery = received(queue)

    def fail() -> None:
        with queue.transaction() as tx:
            book(tx.connection, delivery.body)
            tx.ack(delivery)
            tx.send_many(["a bill", "a parcel"])
            raise Booking

    with pytest.raises(Booking):
        fail()
    assert (booked(file), bodies(queue), delivery.settled) == ([], ["apples"], None)
    assert (queue.stats.acked, queue.stats.sent) == (0, 1)
    delivery.ack()
    assert bodies(queue) == []


def test_errors_of_own_statements_are_those_of_sqlite(queue: MessageQueue, file: Path) -> None:
    delivery = received(queue)

    def twice() -> None:
        with queue.transaction() as tx:
            tx.ack(delivery)
            book(tx.connection, "apples")
            book(tx.connection, "apples")

    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        twice()
    assert (booked(file), bodies(queue)) == ([], ["apples"])


def test_a_method_that_raised_has_changed_nothing_and_the_rest_can_be_committed(
    queue: MessageQueue, file: Path, clock: TimeMachine
) -> None:
    lost, held = received(queue, "lost"), received(queue, "held")
    queue.send("first", key="one", unique="reject")
    other = MessageQueue.builder().store(f"sqlite:///{file}").name("orders").clock(clock).build()
    held.extend("10m")
    clock.advance("31s")
    assert sorted(str(delivery.body) for _ in range(2) for delivery in other.receive(9)) == ["first", "lost"]
    with queue.transaction() as tx:
        book(tx.connection, "pears")
        with pytest.raises(LeaseLost):
            tx.ack(held, lost)
        with pytest.raises(KeyTaken):
            tx.send("second", key="one", unique="reject")
        tx.send("third")
    assert booked(file) == ["pears"]
    assert (held.settled, lost.settled) == (None, None)
    held.ack()
    assert sorted(map(str, bodies(queue))) == ["first", "lost", "third"]
    other.close()


def test_only_the_block_ends_the_transaction(queue: MessageQueue, file: Path) -> None:
    with queue.transaction() as tx:
        book(tx.connection, "apples")
        for end in (tx.connection.commit, tx.connection.rollback, lambda: tx.connection.executescript("SELECT 1")):
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                end()
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            tx.connection.execute("COMMIT")
        tx.send("a bill")
        assert booked(file) == []
    assert (booked(file), bodies(queue)) == (["apples"], ["a bill"])


def test_after_its_block_a_transaction_says_that_it_ended(queue: MessageQueue) -> None:
    with queue.transaction() as tx:
        tx.send("a bill")
    for use in (lambda: tx.send("another"), lambda: tx.connection):
        with pytest.raises(StoreError, match="the transaction ended with its block"):
            use()
    assert queue.counts().total == 1


def test_factories_of_the_caller_do_not_reach_the_queue(queue: MessageQueue) -> None:
    delivery = received(queue)
    with queue.transaction() as tx:
        tx.connection.row_factory = lambda _, values: {"values": values}
        tx.connection.text_factory = bytes
        tx.ack(delivery)
        tx.send("a bill", key="bill", unique="keep")
        assert tx.connection.execute("SELECT 'a'").fetchone() == {"values": (b"a",)}
    assert bodies(queue) == ["a bill"]


def test_other_changes_of_the_same_thread_are_refused_inside_the_block(queue: MessageQueue, file: Path) -> None:
    delivery = received(queue)
    with queue.transaction() as tx:
        for change in (lambda: queue.send("beside"), delivery.ack, queue.counts, lambda: queue.receive(wait="1s")):
            with pytest.raises(BadInput, match="use the methods of the transaction"):
                change()
        with pytest.raises(BadInput, match="has a transaction open"), queue.transaction():
            pass
        tx.ack(delivery)
    assert bodies(queue) == []
    assert booked(file) == []


def test_other_threads_write_after_it(queue: MessageQueue) -> None:
    with ThreadPoolExecutor() as pool:
        with queue.transaction() as tx:
            beside = pool.submit(queue.send, "beside")
            tx.send("inside")
            assert not beside.done()
        beside.result(PATIENCE)
    assert bodies(queue) == ["inside", "beside"] or bodies(queue) == ["beside", "inside"]


def test_a_consumer_that_waits_gets_a_message_after_the_commit(file: Path) -> None:
    with (
        MessageQueue.builder().store(f"sqlite:///{file}").name("orders").build() as queue,
        ThreadPoolExecutor() as pool,
    ):
        waiting = pool.submit(queue.receive, 1, "60s")
        with queue.transaction() as tx:
            tx.send("apples")
        assert [delivery.body for delivery in waiting.result(PATIENCE)] == ["apples"]


def test_messages_leased_together_are_settled_apart(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send_many(["a", "b", "c"])
    first, second, third = queue.receive(3)
    with queue.transaction() as tx:
        tx.ack(first)
    second.ack()
    third.extend("1h")
    with queue.transaction() as tx:
        tx.ack(third)
    clock.advance("2h")
    assert bodies(queue) == []
    assert not queue.receive()
    assert queue.stats.lost == 0
    assert "0 leased" in repr(queue)


def test_what_was_settled_cannot_be_settled_again(queue: MessageQueue) -> None:
    delivery = received(queue)
    with queue.transaction() as tx:
        tx.ack(delivery)
        with pytest.raises(AlreadySettled):
            tx.ack(delivery)
    with pytest.raises(AlreadySettled):
        delivery.ack()
    with queue.transaction() as tx, pytest.raises(AlreadySettled):
        tx.ack(delivery)


class Diary(Hook):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def before_send(self, message: Message) -> None:
        if message.body == "forbidden":
            reason = "not this one"
            raise Vetoed(reason)
        self.calls.append(f"before sending {message.body}")

    def after_send(self, message: Message, sent: MessageId) -> None:
        assert sent
        self.calls.append(f"sent {message.body}")

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self.calls.append(f"before {delivery.body} is {outcome}")

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self.calls.append(f"{delivery.body} {outcome}")


def test_hooks_are_asked_inside_and_called_after_the_commit(file: Path) -> None:
    diary = Diary()
    with MessageQueue.builder().store(f"sqlite:///{file}").name("orders").hook(diary).build() as queue:
        delivery = received(queue)
        diary.calls.clear()

        def transact(*, fails: bool) -> None:
            with queue.transaction() as tx:
                tx.ack(delivery)
                tx.send("a bill")
                with pytest.raises(Vetoed):
                    tx.send("forbidden")
                if fails:
                    raise Booking

        with pytest.raises(Booking):
            transact(fails=True)
        asked = ["before apples is acked", "before sending a bill"]
        assert diary.calls == asked
        transact(fails=False)
        assert diary.calls == [*asked, *asked, "apples acked", "sent a bill"]


def test_events_are_written_with_the_rest(file: Path, clock: TimeMachine) -> None:
    builder = MessageQueue.builder().store(f"sqlite:///{file}").name("orders").clock(clock)
    with builder.options(history="all").build() as queue:
        delivery = received(queue)

        def transact(*, fails: bool) -> None:
            with queue.transaction() as tx:
                tx.ack(delivery)
                tx.send("a bill")
                if fails:
                    raise Booking

        with pytest.raises(Booking):
            transact(fails=True)
        assert Kind.DONE not in [event.kind for event in queue.history()]
        transact(fails=False)
        clock.advance("1s")
        kinds = [event.kind for event in queue.history()]
        assert (kinds.count(Kind.SENT), kinds.count(Kind.DONE)) == (2, 1)


def test_a_message_that_is_sent_back_with_a_rising_priority_stays_one_message_and_overtakes_those_that_wait(
    file: Path, clock: TimeMachine
) -> None:
    with MessageQueue.builder().store(f"sqlite:///{file}").name("ranks").priorities(5).clock(clock).build() as queue:
        queue.send_many(["rises", "waits", "waits too"])
        for priority in range(1, 5):
            [delivery] = queue.receive()
            assert delivery.body == "rises"
            with queue.transaction() as tx:
                tx.ack(delivery)
                tx.send("rises", priority=priority)
            clock.advance("1ms")
        assert [one.body for one in queue.receive(10)] == ["rises", "waits", "waits too"]


def test_queues_of_one_connection_share_a_transaction(file: Path) -> None:
    with connect(f"sqlite:///{file}") as connection:
        orders, bills = connection.queue("orders"), connection.queue("bills")
        delivery = received(orders)
        with orders.transaction() as tx:
            tx.ack(delivery)
            tx.of(bills).send("a bill for apples")
        assert (bodies(orders), bodies(bills)) == ([], ["a bill for apples"])
        with pytest.raises(BadInput, match="of queue 'bills'"), bills.transaction() as tx:
            tx.ack(delivery)


def test_a_handler_commits_its_work_with_the_ack(queue: MessageQueue, file: Path) -> None:
    done = threading.Event()

    def handle(delivery: Delivery) -> None:
        with queue.transaction() as tx:
            book(tx.connection, delivery.body)
            tx.ack(delivery)
        if delivery.body == "last":
            done.set()

    queue.send_many(["apples", "pears", "last"])
    with Dispatcher.builder().queue(queue, threads=1).handler(handle).build():
        assert done.wait(PATIENCE)
    assert booked(file) == ["apples", "last", "pears"]
    assert (bodies(queue), queue.stats.lost, queue.stats.acked) == ([], 0, 3)


def fork(_: Transaction) -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def insert_or_roll_back(tx: Transaction) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        tx.connection.execute("INSERT OR ROLLBACK INTO booked VALUES ('apples')")


@pytest.mark.parametrize("roll_back", [fork, insert_or_roll_back])
def test_the_end_of_a_block_that_was_rolled_back_raises(
    queue: MessageQueue, file: Path, roll_back: Callable[[Transaction], None]
) -> None:
    def rolled_back() -> None:
        with queue.transaction() as tx:
            book(tx.connection, "apples")
            roll_back(tx)

    with pytest.raises(StoreError, match="rolled back"):
        rolled_back()
    assert booked(file) == []
    queue.send("afterwards")


@pytest.mark.parametrize("roll_back", [fork, insert_or_roll_back])
def test_nothing_is_stored_by_a_block_that_goes_on_after_a_rollback(
    queue: MessageQueue, file: Path, roll_back: Callable[[Transaction], None]
) -> None:
    delivery = received(queue)

    def goes_on() -> None:
        with queue.transaction() as tx:
            book(tx.connection, "apples")
            tx.send("a bill")
            roll_back(tx)
            further: tuple[Callable[[], object], ...] = (
                lambda: tx.ack(delivery),
                lambda: tx.send("a parcel"),
                lambda: tx.send_many(["two", "three"]),
                lambda: book(tx.connection, "pears"),
            )
            for act in further:
                with pytest.raises(StoreError, match="rolled back"):
                    act()

    with pytest.raises(StoreError, match="rolled back"):
        goes_on()
    assert (booked(file), bodies(queue), delivery.settled) == ([], ["apples"], None)
    assert (queue.stats.sent, queue.stats.acked) == (1, 0)
    delivery.ack()


@pytest.mark.every_store
@pytest.mark.stores("memory", "cassandra")
def test_a_store_without_transactions_names_the_way_out(builder: QueueBuilder[MessageQueue], place: Place) -> None:
    with (
        builder.build() as queue,
        pytest.raises(NoTransactions, match=r"store of queue 'emails' has no .* outbox.* docs/how-to/transactions\.md"),
        queue.transaction(),
    ):
        pass
    assert place.kind != "sqlite"


def transact_and_die(file: Path, statements: int) -> None:
    """Book and ack, and die by SIGKILL before that many statements of the transaction ran; at the end otherwise."""
    with MessageQueue.builder().store(f"sqlite:///{file}").name("orders").build() as queue:
        [delivery] = queue.receive()
        left = iter(range(statements))

        def count(_: str) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        with queue.transaction() as tx:
            tx.connection.set_trace_callback(count)
            book(tx.connection, delivery.body)
            tx.ack(delivery)
            tx.send("a bill")
    os._exit(0)


def test_a_process_killed_before_any_statement_leaves_all_or_nothing(
    queue: MessageQueue, file: Path, tmp_path: Path
) -> None:
    queue.close()
    outcomes: list[tuple[list[str], list[object]]] = []
    status, statements = signal.SIGKILL.value, 0
    while status:
        each = tmp_path / f"{statements}.db"
        with MessageQueue.builder().store(f"sqlite:///{each}").name("orders").build() as prepared:
            with prepared.transaction() as tx:
                tx.connection.execute("CREATE TABLE booked (what TEXT PRIMARY KEY) STRICT")
            prepared.send("apples")
        if (child := os.fork()) == 0:
            transact_and_die(each, statements)
        status = os.waitpid(child, 0)[1]
        statements += 1
        with MessageQueue.builder().store(f"sqlite:///{each}").name("orders").build() as after:
            outcomes.append((booked(each), bodies(after)))
    nothing: tuple[list[str], list[object]] = ([], ["apples"])
    assert outcomes[:-1] == [nothing] * (statements - 1)
    assert statements > 6
    assert outcomes[-1] == (["apples"], ["a bill"])
    assert file.exists()
