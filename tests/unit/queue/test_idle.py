"""Idle queues cost next to nothing, whatever their number, and what happens in them is noticed all the same."""

from __future__ import annotations

import gc
import random
from weakref import ref

import pytest

from astyqueue import connect
from astyqueue.model.message import Message
from astyqueue.model.settings import Layout
from astyqueue.protocol.admin.settings import open_queue
from astyqueue.protocol.layout.rows import activity_row
from astyqueue.protocol.steps import run
from astyqueue.queue.admin.deletion import drop
from astyqueue.queue.delivery.base_delivery import new_deliveries
from astyqueue.queue.row_sharing import idle_queues
from astyqueue.queue.row_sharing.idle_queues import IN_USE, QueueActivity
from astyqueue.queue.runtime import ReceiveRequest
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.queue.idle_processes import FOREVER, IDLE_LATENCY, ONE_ROW, RING, Lossy, Process, delay_of, sender
from tests.unit.queue.stepped_workers import MILLISECOND

#: What the documentation states.
TURN = 2 * SECOND


@pytest.fixture(autouse=True)
def _the_same_every_time() -> None:
    random.seed(1)


@pytest.fixture
def store(clock: TimeMachine) -> Lossy:
    return Lossy(MemoryStore(clock))


@pytest.mark.parametrize("layout", [ONE_ROW, RING], ids=["one row", "248 rows"])
@pytest.mark.parametrize("count", [1, 20])
def test_an_idle_process_makes_few_queries_whatever_the_number_of_its_queues(
    store: Lossy, clock: TimeMachine, layout: Layout, count: int
) -> None:
    process = Process(clock, store, [f"q{number}" for number in range(count)], layout)
    sender(store, clock, "q0", layout).send(5)
    process.become_idle()
    process.become_idle()
    process.slices()
    process.pass_time(120 * SECOND, 25 * MILLISECOND)
    assert process.slices() / 120 <= 15


@pytest.mark.full
def test_a_thousand_idle_queues_are_woken_no_more_often_than_one(store: Lossy, clock: TimeMachine) -> None:
    process = Process(clock, store, [f"q{number}" for number in range(1_000)])
    process.become_idle()
    process.slices()
    rested = {name: worker.rests for name, worker in process.queues.items()}
    process.pass_time(10 * SECOND, 25 * MILLISECOND)
    assert process.slices() / 10 <= 15
    woken = sum(worker.rests - rested[name] for name, worker in process.queues.items())
    assert woken <= 10 * (8 + 8), "the log is read eight times a second, and a queue has a turn every two seconds"


@pytest.mark.parametrize("layout", [ONE_ROW, RING], ids=["one row", "248 rows"])
def test_a_message_into_any_idle_queue_begins_soon_and_the_next_ones_at_once(
    store: Lossy, clock: TimeMachine, layout: Layout
) -> None:
    process = Process(clock, store, ["letters", "mail", "faxes"], layout)
    process.become_idle()
    sending = sender(store, clock, layout=layout)
    for _ in range(2):
        assert delay_of(process, "mail", lambda: sending.send(1)) <= IDLE_LATENCY
        process.pass_time(30 * SECOND, SECOND // 40)
        assert delay_of(process, "mail", lambda: sending.send(1)) <= 25 * MILLISECOND
        process.become_idle()
    assert not process.queues["faxes"].got


@pytest.mark.parametrize("layout", [ONE_ROW, RING], ids=["one row", "248 rows"])
def test_a_delayed_message_comes_in_time_although_its_queue_became_idle_meanwhile(
    store: Lossy, clock: TimeMachine, layout: Layout
) -> None:
    process = Process(clock, store, ["letters", "mail"], layout)
    process.become_idle()
    due = clock.now() + 700 * SECOND
    sender(store, clock, layout=layout).send(1, delay=700)
    process.pass_time(680 * SECOND, SECOND // 4)
    assert process.mail.core.scheduler.activity.idle
    process.pass_time(21 * SECOND)
    assert [at - due <= 10 * MILLISECOND for at, _ in process.mail.got] == [True]


def test_the_lease_of_a_process_that_died_is_taken_over_by_an_idle_one(store: Lossy, clock: TimeMachine) -> None:
    process, other = Process(clock, store), Process(clock, store)
    process.mail.hands = 0
    other.mail.busy_for = 3_600 * SECOND
    sender(store, clock).send(1)
    process.pass_time(SECOND, each=other.work)
    [(_, delivery)] = other.mail.got
    other.mail.dead, process.mail.hands = True, 1
    process.become_idle()
    assert delivery.lease is not None
    until = delivery.lease.timer.due
    process.pass_time(60 * SECOND)
    assert [at - until <= SECOND for at, _ in process.mail.got] == [True]


@pytest.mark.parametrize("layout", [ONE_ROW, RING], ids=["one row", "248 rows"])
def test_a_message_without_a_notice_is_found_when_its_queue_has_its_turn(
    store: Lossy, clock: TimeMachine, layout: Layout
) -> None:
    """As when the notice is lost, or the sender is of a release that writes none."""
    process = Process(clock, store, ["letters", "mail", "faxes"], layout)
    process.become_idle()
    store.loses = True
    sending = sender(store, clock, layout=layout)
    assert delay_of(process, "mail", lambda: sending.send(1)) <= 3 * TURN + SECOND


@pytest.mark.parametrize("before_turn", [SECOND // 2, 3 * SECOND // 2])
def test_a_ring_that_another_one_has_overwritten_is_heard_when_its_queue_has_its_turn(
    store: Lossy, clock: TimeMachine, before_turn: int
) -> None:
    """The last ring names the row of a message that is due later, and no notice came."""
    layout = Layout(concurrency_shards=16)
    process = Process(clock, store, layout=layout)
    process.become_idle()
    process.pass_time(before_turn)
    store.loses = True
    sending = sender(store, clock, layout=layout)

    def send() -> None:
        sending.send(1)
        clock.advance("10ms")
        sending.send(1, delay=30)

    assert delay_of(process, "mail", send) <= TURN + SECOND // 2


def test_a_queue_without_credit_in_its_turn_looks_as_soon_as_it_has_some(store: Lossy, clock: TimeMachine) -> None:
    process = Process(clock, store)
    process.become_idle()
    store.loses, process.mail.hands = True, 0
    sender(store, clock).send(1)
    process.pass_time(TURN)
    process.mail.hands = 1
    process.mail.core.claimer.wake()
    process.work()
    assert len(process.mail.got) == 1


def test_a_process_that_starts_after_a_send_finds_the_message(store: Lossy, clock: TimeMachine) -> None:
    sender(store, clock).send(1)
    clock.advance("1h")
    process = Process(clock, store, ["letters", "mail"])
    process.pass_time(IDLE_LATENCY)
    assert len(process.mail.got) == 1


@pytest.mark.parametrize("joins", ["before the notice is read", "after it"])
def test_a_notice_read_for_other_queues_counts_for_one_that_is_consumed_a_little_later(
    store: Lossy, clock: TimeMachine, joins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_queues, "_TURN", FOREVER)
    process = Process(clock, store, ["letters"])
    process.become_idle()
    sending = sender(store, clock)
    if joins == "before the notice is read":
        process.consume("mail")
        process.mail.paced = True
        process.mail.work()  # its leader has begun, and does not go on before the notice was read
    paused = process.queues.pop("mail", None)
    sending.send(1, delay=3_600)
    process.pass_time(SECOND)
    if paused is None:
        process.consume("mail")
    else:
        process.queues["mail"] = paused
        paused.paced = False
    process.pass_time(SECOND)
    noticed = store.notices
    assert delay_of(process, "mail", lambda: sending.send(1)) <= IDLE_LATENCY
    assert store.notices == noticed


def test_a_process_that_began_a_moment_ago_finds_a_message_without_a_notice_in_the_first_turn_of_its_queue(
    store: Lossy, clock: TimeMachine
) -> None:
    process = Process(clock, store, ["letters", "faxes", "mail"], RING)
    process.pass_time(SECOND)
    store.loses = True
    sending = sender(store, clock, layout=RING)
    assert delay_of(process, "mail", lambda: sending.send(1)) <= 3 * TURN


def test_a_message_that_falls_due_soon_after_a_suspension_during_which_its_queue_became_idle_is_in_time(
    store: Lossy, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is due to be scanned when the process goes on, and that scan shows only what is due by then."""
    monkeypatch.setattr(idle_queues, "_TURN", FOREVER)
    process, sending = Process(clock, store, ["letters", "mail"]), sender(store, clock)
    sending.send(1)
    process.pass_time(9 * SECOND)
    due = clock.now() + 75 * SECOND
    sending.send(1, delay=75)
    clock.advance("70s")
    process.pass_time(6 * SECOND)
    assert [at - due <= 10 * MILLISECOND for at, _ in process.mail.got[1:]] == [True]


def test_a_queue_that_was_dropped_or_made_anew_is_noticed_within_ten_seconds(store: Lossy, clock: TimeMachine) -> None:
    run(open_queue("mail", layout={}, behaviour={}), store)
    process = Process(clock, store, ["letters", "mail"])
    process.become_idle()
    run(drop(sender(store, clock).core), store)
    process.pass_time(10 * SECOND + IDLE_LATENCY)
    assert process.mail.core.settings_sync.gone


@pytest.mark.parametrize("loses", [False, True])
def test_a_change_of_settings_is_followed_by_idle_processes(store: Lossy, clock: TimeMachine, *, loses: bool) -> None:
    run(open_queue("mail", layout={}, behaviour={}), store)
    process = Process(clock, store, ["letters", "mail"])
    process.become_idle()
    store.loses = loses
    other = sender(store, clock).core
    run(other.configure({"paused": True}), store)
    process.pass_time(10 * SECOND)
    assert process.mail.core.settings.behaviour.paused
    process.pass_time(70 * SECOND, SECOND // 8)
    run(other.send(Message("patience")), store)
    process.pass_time(10 * SECOND)
    assert not process.mail.got
    run(other.configure({"paused": False}), store)
    process.pass_time(10 * SECOND)
    assert len(process.mail.got) == 1


def test_a_consumer_that_does_not_wait_keeps_its_queue_in_use(store: Lossy, clock: TimeMachine) -> None:
    poller = sender(store, clock)
    for _ in range(100):
        assert run(poller.core.take(ReceiveRequest(1, 0, new_deliveries)), store) == []
        assert not poller.core.scheduler.activity.idle
        clock.advance("1s")


def test_a_paused_idle_queue_rests(store: Lossy, clock: TimeMachine) -> None:
    run(open_queue("mail", layout={}, behaviour={"paused": True}), store)
    process = Process(clock, store)
    process.pass_time(70 * SECOND, SECOND // 8)
    process.slices()
    process.pass_time(60 * SECOND, 25 * MILLISECOND)
    assert process.slices() / 60 <= 15


@pytest.mark.parametrize("first", range(0, 12_000, 2_000))
def test_a_message_without_a_notice_of_its_own_is_found_while_its_queue_becomes_idle(
    store: Lossy, clock: TimeMachine, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice stands for ten seconds: what is sent last in them must be found, without a turn, whatever the moment."""
    monkeypatch.setattr(idle_queues, "_TURN", FOREVER)
    process = Process(clock, store, ["letters", "mail"])
    process.become_idle()
    process.mail.send(1)
    process.pass_time(IN_USE - 11 * SECOND + first * MILLISECOND, 25 * MILLISECOND)
    sending = sender(store, clock)
    sending.send(1)
    process.pass_time(9_900 * MILLISECOND, 25 * MILLISECOND)
    noticed = store.notices
    assert delay_of(process, "mail", lambda: sending.send(1)) <= 25 * MILLISECOND
    assert store.notices == noticed


@pytest.mark.parametrize("layout", [ONE_ROW, Layout(concurrency_shards=2)], ids=["one row", "two shards"])
def test_a_message_sent_between_any_two_requests_of_a_process_that_becomes_idle_is_found(
    clock: TimeMachine, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_queues, "_TURN", FOREVER)
    for requests in range(12):
        store = Lossy(MemoryStore(clock))
        process = Process(clock, store, ["mail"], layout, paced=True)
        process.mail.send(1)
        process.pass_time(IN_USE - SECOND, SECOND // 8)
        while not process.mail.core.scheduler.activity.idle:
            process.pass_time(MILLISECOND, MILLISECOND)
        for _ in range(requests):
            process.work()
        sending = sender(store, clock, layout=layout)
        assert delay_of(process, "mail", lambda sending=sending: sending.send(1)) <= 2 * IDLE_LATENCY, requests  # type: ignore[misc]  # a bound default


def test_another_queue_reads_the_log_when_the_one_that_read_it_is_closed_or_busy(
    store: Lossy, clock: TimeMachine
) -> None:
    process = Process(clock, store, ["letters", "mail", "faxes"])
    process.become_idle()
    sender(store, clock, "letters").send(1)
    process.pass_time(SECOND)
    assert delay_of(process, "mail", lambda: sender(store, clock).send(1)) <= IDLE_LATENCY
    process.become_idle()
    process.queues.pop("letters").core.claimer.close("letters")
    process.watch.leave(process.queues["faxes"].core.scheduler.activity)
    assert delay_of(process, "mail", lambda: sender(store, clock).send(1)) <= IDLE_LATENCY


@pytest.mark.parametrize("layout", [ONE_ROW, RING], ids=["one row", "248 rows"])
def test_notices_cost_a_sender_one_write_in_ten_seconds(store: Lossy, clock: TimeMachine, layout: Layout) -> None:
    sending = sender(store, clock, layout=layout)
    for _ in range(1_000):
        sending.send(1)
        clock.advance("25ms")
    assert store.notices == 3


def test_a_message_released_by_another_process_is_noticed(store: Lossy, clock: TimeMachine) -> None:
    process, other = Process(clock, store), Process(clock, store)
    process.mail.hands = 0
    sender(store, clock).send(1)
    other.mail.busy_for = 3_600 * SECOND
    process.pass_time(80 * SECOND, SECOND // 40, each=other.work)
    [(_, delivery)] = other.mail.got
    assert process.mail.core.scheduler.activity.idle
    process.mail.hands, other.mail.hands = 1, 0
    other.mail.core.claimer.give_back(delivery)
    process.pass_time(SECOND, each=other.work)
    assert len(process.mail.got) == 1


def test_the_log_goes_on_in_another_row_every_ten_minutes(clock: TimeMachine) -> None:
    moment = clock.now() - clock.now() % (600 * SECOND)
    assert activity_row(moment) == activity_row(moment + 600 * SECOND - 1) != activity_row(moment + 600 * SECOND)


def test_queues_that_a_program_opens_for_each_request_and_does_not_close_are_forgotten(clock: TimeMachine) -> None:
    with connect("memory://", clock=clock) as connection:

        def handle_request() -> ref[QueueActivity]:
            queue = connection.queue("emails")
            queue.send(1)
            for delivery in queue.receive(1):
                delivery.ack()
            return ref(queue.core.scheduler.activity)

        requests = [handle_request() for _ in range(3)]
        gc.collect()
        assert [activity() for activity in requests] == [None] * 3
        assert connection.queue("emails").core.watch.lap == TURN


def test_a_process_in_which_no_consumer_waits_forgets_the_queues_that_it_opened_too(clock: TimeMachine) -> None:
    with connect("memory://", clock=clock) as connection:
        watch = connection.queue("emails").core.watch
        for _ in range(3):
            for number in range(25):
                list(connection.queue(f"emails-{number}").receive(1))
            gc.collect()
        list(connection.queue("emails").receive(1))
        assert len(watch._turns) < 50  # noqa: SLF001 - what grows
        assert len(watch._queues) < 50  # noqa: SLF001 - what grows
