"""What a dispatcher reports about itself in the store, how it follows commands, and how it notices that it stalled."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from astyqueue import MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.presence.stall_watch import Stall
from astyqueue.errors import StoreUnavailable
from astyqueue.ids import Nonce
from astyqueue.model.presence import HEARTBEAT, TASKS_NAMED, Presence, WorkerCommand, WorkerState
from astyqueue.protocol.coordination.presence import read_presences, request
from astyqueue.protocol.coordination.presence import report as protocol_report
from astyqueue.protocol.layout.rows import WORKERS
from astyqueue.protocol.steps import Read, Request, Send, run
from astyqueue.store import Store
from astyqueue.testing import Faulty, TimeMachine
from tests.support.places import Place
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage
from tests.unit.dispatch.test_stuck import Lines


class Noticing(Faulty):
    """A store of which tests see each request about workers, which fail while it is `broken`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.changed = threading.Condition()
        self.about_workers: list[Request] = []
        self.broken = False
        self._refused = threading.Semaphore(0)

    def when_refused(self) -> None:
        assert self._refused.acquire(timeout=DEADLINE)

    def perform(self, request: Request) -> object:
        named = isinstance(request, Send) and request.batch.row == WORKERS
        asked = isinstance(request, Read) and request.wanted[0].row == WORKERS
        if self.broken and (named or asked):
            self._refused.release()
            raise StoreUnavailable
        answer = super().perform(request)
        if named or asked:
            with self.changed:
                self.about_workers.append(request)
                self.changed.notify_all()
        return answer


def reported_and_looked(requests: list[Request]) -> bool:
    """Whether there is a whole heartbeat in them; the end of an earlier one may come first."""
    kinds = iter([type(one) for one in requests])
    return Send in kinds and Read in kinds


class Scene:
    """A stage whose clock a test moves, and the reports in its store."""

    def __init__(self, stage: Stage, store: Noticing, clock: TimeMachine) -> None:
        self.stage = stage
        self.store = store
        self.clock = clock

    def begin(self, handler: Callable[..., object], **options: int) -> Dispatcher:
        dispatcher = self.stage.start(handler, **options)
        self.when_begun()
        return dispatcher

    def when_begun(self) -> None:
        """Once the first heartbeat has both reported and looked for commands."""
        with self.store.changed:
            about = self.store.about_workers
            assert self.store.changed.wait_for(lambda: any(isinstance(one, Read) for one in about), DEADLINE), about

    def when(self, true: Callable[[list[Presence]], bool]) -> list[Presence]:
        """The reports once this is true of them."""
        with self.store.changed:
            assert self.store.changed.wait_for(lambda: true(self.reports()), DEADLINE), self.reports()
        return self.reports()

    def reports(self) -> list[Presence]:
        return run(read_presences(), self.store._store)  # noqa: SLF001 - its own requests are not to be seen

    def beat(self) -> Presence:
        """The report of the next heartbeat."""
        self.clock.when_waiting(3)  # those that claim, supervise and report: no heartbeat is under way
        before = len(self.store.about_workers)
        self.clock.advance("15s")
        with self.store.changed:
            assert self.store.changed.wait_for(lambda: reported_and_looked(self.store.about_workers[before:]), DEADLINE)
        [report] = self.reports()
        return report

    def command(self, command: WorkerCommand) -> None:
        [one] = self.reports()
        run(request(one.name, command, Nonce(threading.current_thread().name.encode() + command.encode())), self.store)


@pytest.fixture
def scene(stages: Stages, place: Place, clock: TimeMachine) -> Scene:
    store = Noticing(place.store(clock))
    return Scene(stages(clock, store, lease="1h"), store, clock)


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, log = Lines(), logging.getLogger("astyqueue.worker")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.setLevel(logging.NOTSET)
    log.removeHandler(handler)


@pytest.mark.stores("memory", "sqlite")
@pytest.mark.every_store
def test_a_dispatcher_reports_who_it_is_and_what_it_runs_and_takes_that_back_at_its_end(scene: Scene) -> None:
    gate = Gate()
    sent = scene.stage.queue.send("one", headers={"task": "mail.send"})
    dispatcher = scene.begin(gate, threads=3)
    gate.when_entered()
    began = scene.clock.now()
    report = scene.beat()
    assert (report.state, report.slots, report.busy) == (WorkerState.RUNNING, 3, 1)
    assert (report.queues, report.name) == (["emails"], dispatcher.presence.name)
    assert report.name.startswith(f"{report.host}:{report.pid}:")
    assert [(one.queue, one.task, one.id, one.since) for one in report.running] == [
        ("emails", "mail.send", str(sent.id), began)
    ]
    dispatcher.drain(wait=False)
    scene.when(lambda found: found[0].state == WorkerState.DRAINING)
    gate.open.set()
    dispatcher.drain()
    assert scene.reports() == []


def test_a_heartbeat_is_one_write_and_one_read_whatever_the_number_of_queues(scene: Scene) -> None:
    builder = Dispatcher.builder()
    for name in range(20):
        builder.queue(scene.stage.queue.builder().store(scene.store).clock(scene.clock).name(f"q{name}").build())
        builder.handler(print, threads=1)
    scene.stage.begin(builder.build())
    scene.when_begun()
    before = len(scene.store.about_workers)
    assert len(scene.beat().queues) == 20
    scene.clock.when_waiting(3)
    kinds = [type(one) for one in scene.store.about_workers[before:]]
    assert kinds == [Send, Read]


@pytest.mark.stores("memory", "sqlite")  # Cassandra forgets by the clock of its nodes
def test_a_process_that_was_killed_is_stale_after_three_heartbeats_and_vanishes_after_twelve(scene: Scene) -> None:
    report = Presence("a:1:b", "a", 1, "0", scene.clock.now(), WorkerState.RUNNING, ["emails"], 1, 8, 0, [])
    run(protocol_report(report), scene.store)
    scene.clock.advance("46s")
    [found] = scene.reports()
    late = found.seen + 3 * HEARTBEAT
    assert (found.stale(late), found.stale(late + 1)) == (False, True)
    scene.clock.advance("3m")
    assert scene.reports() == []


def test_what_producers_chose_is_stored_printable_and_cut(scene: Scene) -> None:
    gate = Gate()
    scene.stage.queue.send_many(range(30), headers={"task": "\x1b[2J\u202e" + "x" * 500})
    scene.begin(gate, threads=30)
    gate.when_entered(30)
    report = scene.beat()
    assert (report.busy, len(report.running)) == (30, TASKS_NAMED)
    assert all(one.task.startswith("\\u001b[2J\\u202e") and len(one.task) == 100 for one in report.running)
    gate.open.set()


def test_commands_are_followed_once_with_the_next_heartbeat(scene: Scene, lines: Lines) -> None:
    done = threading.Event()
    dispatcher = scene.begin(lambda _: done.set())
    scene.command(WorkerCommand.QUIET)
    scene.beat()
    scene.when(lambda found: found[0].state == WorkerState.QUIET)
    scene.clock.when_waiting(3)  # a claim that had begun before is over
    scene.stage.queue.send("while quiet")
    for _ in range(3):
        scene.stage.look_around()
    assert not done.is_set()
    scene.command(WorkerCommand.RESUME)
    scene.beat()
    assert done.wait(DEADLINE)
    scene.beat()
    scene.command(WorkerCommand.STACKS)
    scene.beat()
    assert "astyqueue:handle:1" in str(lines.first("stacks").exc_text)
    scene.command(WorkerCommand.DRAIN)
    scene.clock.when_waiting(3)
    scene.clock.advance("15s")
    dispatcher.run()
    assert [vars(record)["facts"]["command"] for record in lines.of("command")] == [
        "quiet",
        "resume",
        "stacks",
        "drain",
    ]


def test_a_store_that_does_not_answer_is_asked_again_and_the_dispatcher_is_not_ready_meanwhile(scene: Scene) -> None:
    dispatcher = scene.begin(print)
    scene.when(lambda _: dispatcher.presence.ready)
    scene.store.broken = True
    for _ in range(4):
        scene.clock.when_waiting(3)
        scene.clock.advance("15s")
        scene.store.when_refused()
    assert (dispatcher.presence.ready, dispatcher.presence.live) == (False, True)
    scene.store.broken = False
    scene.beat()
    scene.when(lambda _: dispatcher.presence.ready)


def test_work_that_is_due_while_every_slot_is_frozen_is_a_stall_until_something_ends(
    scene: Scene, lines: Lines
) -> None:
    gate, stalls = Gate(), list[Stall]()
    scene.stage.queue.send_many(range(20))
    dispatcher = scene.stage.begin(
        Dispatcher.builder().queue(scene.stage.queue, threads=2, backlog=0).handler(gate).build()
    )
    dispatcher.presence.on_stall = stalls.append
    gate.when_entered(2)
    until_stalled(scene)
    assert not dispatcher.presence.live
    record = lines.first("stall")
    facts = vars(record)["facts"]
    assert (facts["queue"], facts["busy"], facts["held"]) == ("emails", "2 of 2", "0 of 2")
    assert "in __call__" in str(record.exc_text)
    assert len(stalls) == 1
    gate.open.set()
    scene.stage.when(lambda: scene.stage.stats.received == 20)
    for _ in range(5):
        scene.beat()
    lines.first("recovered")
    assert dispatcher.presence.live


def test_slots_that_are_all_busy_with_tasks_within_their_timeout_are_no_stall(scene: Scene, lines: Lines) -> None:
    """Others wait for longer than the watch does. Once the timeout is over, the threads are held: that is a stall."""
    gate = Gate()
    scene.stage.queue.send_many(range(20))
    builder = Dispatcher.builder().queue(scene.stage.queue, threads=2, backlog=0).handler(gate, timeout="30m")
    dispatcher = scene.stage.begin(builder.build())
    gate.when_entered(2)
    for _ in range(100):
        scene.beat()
    assert (dispatcher.presence.stall, dispatcher.presence.live, lines.of("stall")) == (None, True, [])
    until_stalled(scene, beats=80)
    gate.open.set()


def test_a_queue_at_its_limit_with_tasks_within_their_timeout_is_no_stall(scene: Scene) -> None:
    gate = Gate()
    scene.stage.queue.send_many(range(20))
    builder = Dispatcher.builder().threads(8).queue(scene.stage.queue, limit=1).handler(gate, timeout="30m")
    dispatcher = scene.stage.begin(builder.build())
    gate.when_entered()
    for _ in range(60):
        scene.beat()
    assert dispatcher.presence.stall is None
    gate.open.set()


def test_a_worker_that_has_begun_all_it_may_with_tasks_within_their_timeout_is_no_stall(scene: Scene) -> None:
    gate = Gate()
    scene.stage.queue.send_many(range(20))
    builder = Dispatcher.builder().threads(8).queue(scene.stage.queue).handler(gate, timeout="30m")
    dispatcher = scene.stage.begin(builder.max_messages(1).build())
    gate.when_entered()
    for _ in range(60):
        scene.beat()
    assert dispatcher.presence.stall is None
    gate.open.set()


def test_tasks_behind_those_of_a_full_kind_within_their_timeout_are_no_stall(scene: Scene) -> None:
    """More wait for the full kind than may: nothing is claimed, and those behind wait as well."""
    entered, may_end, plain = threading.Semaphore(0), threading.Event(), list[object]()

    async def waiting(_: object) -> None:
        entered.release()
        await asyncio.to_thread(may_end.wait, DEADLINE)

    scene.stage.queue.send_many(range(12), headers={"task": "awaited"})
    builder = Dispatcher.builder().threads(2).coroutines(2).queue(scene.stage.queue, backlog=1)
    builder.handler(waiting, task="awaited", timeout="30m").handler(plain.append, task="plain")
    dispatcher = scene.stage.begin(builder.build())
    scene.when_begun()
    for _ in range(2):
        assert entered.acquire(timeout=DEADLINE)
    scene.beat()
    scene.stage.queue.send("behind", headers={"task": "plain"})
    for _ in range(60):
        scene.beat()
    assert (dispatcher.presence.stall, plain) == (None, [])
    may_end.set()


def test_a_report_counts_what_runs_and_what_can_by_kind(scene: Scene) -> None:
    gate, entered, may_end = Gate(), threading.Semaphore(0), threading.Event()

    async def waiting(_: object) -> None:
        entered.release()
        await asyncio.to_thread(may_end.wait, DEADLINE)

    scene.stage.queue.send("thread", headers={"task": "plain"})
    for _ in range(3):
        scene.stage.queue.send("coroutine", headers={"task": "awaited"})
    builder = Dispatcher.builder().threads(2).coroutines(10).queue(scene.stage.queue)
    scene.stage.begin(builder.handler(gate, task="plain").handler(waiting, task="awaited").build())
    scene.when(bool)
    gate.when_entered()
    for _ in range(3):
        assert entered.acquire(timeout=DEADLINE)
    report = scene.beat()
    assert report.kinds == {"thread": (1, 2), "asyncio": (3, 10)}
    assert (report.busy, report.slots, report.load) == (4, 12, "thread 1/2, asyncio 3/10")
    assert report.as_json(scene.clock.now())["kinds"] == {
        "thread": {"busy": 1, "slots": 2},
        "asyncio": {"busy": 3, "slots": 10},
    }
    gate.open.set()
    may_end.set()


def test_an_idle_worker_has_not_stalled_nor_has_one_whose_queue_is_paused(scene: Scene, lines: Lines) -> None:
    dispatcher = scene.begin(print)
    scene.stage.queue.configure(paused=True)
    scene.stage.queue.send("waits")
    for _ in range(12):
        scene.beat()
        scene.clock.advance("60s")
    assert dispatcher.presence.stall is None
    assert lines.of("stall") == []


def until_stalled(scene: Scene, beats: int = 40) -> None:
    """Let time pass until the report says so; handlers keep their leases."""
    for _ in range(beats):
        if scene.beat().state == WorkerState.STALLED:
            return
    raise AssertionError(scene.reports())


def test_a_dispatcher_is_live_before_it_starts(scene: Scene) -> None:
    scene.clock.advance("3h")
    dispatcher = Dispatcher.builder().queue(scene.stage.queue).handler(print).build()
    scene.clock.advance("3h")
    assert (dispatcher.presence.live, dispatcher.presence.ready) == (True, False)


def test_a_dispatcher_may_end_while_its_presence_starts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    presence = Dispatcher.builder().queue(scene.stage.queue).handler(Gate()).build().presence

    class EndedBefore(threading.Thread):
        def start(self) -> None:
            presence.end()
            super().start()

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", EndedBefore)
        thread = presence.start()
    thread.join(DEADLINE)
    assert not thread.is_alive()


def test_quiet_and_resume_at_one_time_leave_the_claims_as_the_last_of_them_says(
    still: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = Dispatcher.builder().queue(still.queue).handler(print).build()
    presence, quota = dispatcher.presence, dispatcher._plan.quota  # noqa: SLF001 - what the claims ask
    hold, holding, resuming = presence._workload.hold, threading.Event(), threading.Event()  # noqa: SLF001 - as above

    def hold_late(held: bool) -> None:  # noqa: FBT001 - as in the class
        if held:
            holding.set()
            resuming.wait(0.05)
        hold(held)

    def resume() -> None:
        presence.resume()
        resuming.set()

    monkeypatch.setattr(presence._workload, "hold", hold_late)  # noqa: SLF001 - as above
    threads = [threading.Thread(target=call, daemon=True) for call in (presence.quiet, resume)]
    threads[0].start()
    assert holding.wait(DEADLINE)
    threads[1].start()
    for thread in threads:
        thread.join(DEADLINE)
    assert (presence.state.value, quota.held) == ("running", False)


@pytest.mark.parametrize("beats", [0, 1])
def test_a_dispatcher_is_listed_no_longer_in_a_store_whose_only_queue_it_left(
    scene: Scene, lines: Lines, place: Place, beats: int
) -> None:
    other = Noticing(place.store(scene.clock))
    queue = MessageQueue.builder().store(other).clock(scene.clock).name("other").build()
    builder = Dispatcher.builder().queue(scene.stage.queue).handler(print).queue(queue).handler(print)
    dispatcher = scene.stage.begin(builder.build())
    scene.when_begun()
    with other.changed:
        assert other.changed.wait_for(lambda: run(read_presences(), other._store), DEADLINE)  # noqa: SLF001 - as above
    dispatcher.remove_queue(queue)
    lines.first("left")
    for _ in range(beats):
        scene.beat()
    if not beats:
        dispatcher.drain(None)
    assert run(read_presences(), other._store) == []  # noqa: SLF001 - as above


@pytest.mark.parametrize("broken", [0, 1], ids=["the first", "the second"])
def test_a_store_that_does_not_answer_hides_no_worker_in_another_and_no_command_there(
    scene: Scene, lines: Lines, place: Place, broken: int
) -> None:
    stores = [scene.store, Noticing(place.store(scene.clock))]
    queue = MessageQueue.builder().store(stores[1]).clock(scene.clock).name("other").build()
    builder = Dispatcher.builder().queue(scene.stage.queue).handler(print).queue(queue).handler(print)
    dispatcher = scene.stage.begin(builder.build())
    scene.when_begun()
    other = Scene(scene.stage, stores[1], scene.clock)
    other.when_begun()
    answers = [other, scene][broken]
    scene.clock.when_waiting(3)
    stores[broken].broken = True
    answers.command(WorkerCommand.QUIET)
    scene.clock.advance("15s")
    answers.when(lambda found: found[0].state == WorkerState.QUIET and found[0].seen >= scene.clock.now())
    scene.clock.when_waiting(3)
    scene.clock.advance("15s")
    answers.when(lambda found: found[0].seen >= scene.clock.now())
    dispatcher.drain(None)
    assert answers.reports() == []
    assert [vars(record)["facts"]["command"] for record in lines.of("command")] == ["quiet"]
