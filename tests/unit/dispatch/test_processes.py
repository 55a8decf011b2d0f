"""Handlers in processes of their own: killed when their time is over, and alone when they die."""

from __future__ import annotations

import functools
import os
import random
import resource
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue

import pytest

from astyqueue.dispatch.builder import DispatcherBuilder
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers.handler import Call
from astyqueue.dispatch.processes import child_main
from astyqueue.dispatch.processes.children import ChildSlot
from astyqueue.errors import BadSetting
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from tests.unit.dispatch import in_children
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.in_children import noted
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage
from tests.unit.dispatch.test_outcomes import reasons, timers
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines"]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A file for notes."""
    return tmp_path / "notes"


@pytest.fixture
def line(tmp_path: Path) -> Path:
    """A named pipe: who opens it waits for the other side, so that a test knows where a handler is."""
    os.mkfifo(tmp_path / "line")
    return tmp_path / "line"


def pid_from(line: Path) -> int:
    """The first number that a handler notes, waited for."""
    return int(line.read_text(encoding="utf-8").split()[0])


def when_gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], DEADLINE)
        assert ready, pid
    finally:
        os.close(descriptor)


def built(stage: Stage, call: Call, **options: object) -> DispatcherBuilder[Dispatcher]:
    return Dispatcher.builder().queue(stage.queue).handler(call, kind="process", **options)  # type: ignore[arg-type]  # as the test says


@pytest.mark.every_store
def test_a_child_gets_what_was_sent_and_its_parent_acks(stage: Stage, notes: Path) -> None:
    sent = stage.queue.send({"notes": str(notes)}, key="a-key", headers={"task": "note"})
    dispatcher = stage.begin(built(stage, in_children.noting, task="note").processes(1).build())
    assert stage.when_settled(1) == {"acked": 1}
    dispatcher.drain(None)
    [[pid, attempt, key, task, message, receipt]] = noted(notes)
    assert int(pid) != os.getpid()
    assert (attempt, key, task, message) == ("1", "a-key", "note", str(sent.id))
    assert receipt.startswith(f"{sent.id}/1/")
    when_gone(int(pid))


def test_a_child_decides_the_outcome_as_a_thread_does(stages: Stages, clock: TimeMachine, lines: Lines) -> None:
    stage = stages(clock, max_attempts=1)
    builder = built(stage, in_children.failing, task="fail")
    builder.handler(in_children.choosing, task="choose", kind="process", max_attempts=2)
    builder.handler(in_children.unfinished, task="unfinished", kind="process")
    stage.queue.send(1, headers={"task": "fail"})
    stage.queue.send(1, headers={"task": "unfinished"})
    for choice in ("retry", "reject", "snooze"):
        stage.queue.send({"choice": choice}, headers={"task": "choose"})
    moment = (clock.instant + timedelta(hours=2)).isoformat()
    stage.queue.send({"choice": "until", "moment": moment}, headers={"task": "choose"})
    dispatcher = stage.begin(builder.processes(1).build())
    stage.when_settled(6)
    dispatcher.drain(None)
    assert sorted(reason for _, reason, _ in reasons(stage)) == [
        "LookupError: no such address",
        "TypeError: the handler returned generator, so no work was done: await it, or iterate over it",
        "unwanted",
    ]
    assert sorted(timers(stage)) == [(3600, "BACKING_OFF", 1), (3600, "SNOOZED", 0), (7200, "SNOOZED", 0)]
    trace = next(str(line.exc_text) for line in lines.of("dead") if "LookupError" in line.getMessage())
    assert "in failing" in trace
    assert "astyqueue/dispatch" not in trace


def test_a_handler_in_a_child_settles_its_delivery_through_its_parent(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, lease="1m")
    stage.queue.send_many([{"call": call} for call in ("extend", "ack", "fail", "reject", "release")])
    builder = built(stage, in_children.settling, max_attempts=2)
    dispatcher = stage.begin(builder.max_messages(5).processes(1).build())
    stage.when(lambda: stage.heard.count("extended") == 1 and len(stage.heard.outcomes) >= 6)
    dispatcher.drain(None)
    got = Counter((body["call"], outcome) for body, outcome in stage.heard.outcomes)  # type: ignore[index]  # as sent
    assert got == {
        ("extend", "extended"): 1,
        ("extend", "acked"): 1,
        ("ack", "acked"): 1,
        ("fail", "released"): 1,
        ("reject", "rejected"): 1,
        ("release", "released"): 1,
    }
    assert timers(stage) == [(3600, "BACKING_OFF", 1)] or len(timers(stage)) == 2


def test_a_handler_that_keeps_the_interpreter_for_three_leases_is_not_run_twice(stages: Stages, notes: Path) -> None:
    stage = stages(lease="500ms")
    stage.queue.send({"notes": str(notes), "us": 900_000})
    stage.queue.send({"notes": str(notes), "us": 900_000}, lease="300ms")
    dispatcher = stage.begin(built(stage, in_children.holding_the_interpreter).processes(2).build())
    stage.when(lambda: stage.stats.acked == 2)
    dispatcher.drain(None)
    assert [attempt for _, attempt in noted(notes)] == ["1", "1"]
    assert stage.stats.lost == 0


def test_a_child_past_its_timeout_is_killed_with_all_it_started_and_another_takes_its_place(
    stages: Stages, clock: TimeMachine, line: Path, lines: Lines
) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    stage.queue.send({"notes": str(line)}, headers={"task": "slow"})
    builder = built(stage, in_children.never_ending, task="slow", timeout="5s")
    builder.handler(in_children.noting, task="quick", kind="process")
    dispatcher = stage.begin(builder.processes(1).build())
    pid, _, other = map(int, line.read_text(encoding="utf-8").split())
    clock.advance("5s")
    when_gone(pid)
    when_gone(other)
    stage.when_settled(1)
    assert reasons(stage) == [("failed", "TimeoutError: no outcome within 5s", 1)]
    stage.queue.send({"notes": str(line)}, headers={"task": "quick"})
    assert pid_from(line) != pid
    stage.when_settled(2)
    dispatcher.drain(None)
    assert [lines.of(event) for event in ("ended_after_timeout", "stuck", "child_died")] == [[], [], []]


@pytest.mark.parametrize(
    ("dies", "told"), [("exit", "exited with 3"), ("SIGKILL", "killed by SIGKILL"), ("SIGSEGV", "killed by SIGSEGV")]
)
def test_a_child_that_dies_costs_an_attempt_of_its_message_only(
    stages: Stages, tmp_path: Path, lines: Lines, dies: str, told: str
) -> None:
    stage = stages(backoff=0)
    neighbour, go = tmp_path / "neighbour", tmp_path / "go"
    os.mkfifo(neighbour)
    os.mkfifo(go)
    stage.queue.send({"notes": str(neighbour), "go": str(go)}, headers={"task": "held"})
    builder = built(stage, in_children.held, task="held").handler(in_children.dying, task="die", kind="process")
    dispatcher = stage.begin(builder.processes(2).build())
    pid = pid_from(neighbour)
    stage.queue.send({"notes": str(tmp_path / "notes"), "dies": dies}, headers={"task": "die"})
    stage.when(lambda: stage.stats.acked == 1)
    go.write_text("go", encoding="utf-8")
    dispatcher.drain(None)
    assert stage.stats.acked == 2
    assert [attempt for _, attempt in noted(tmp_path / "notes")] == ["1", "2"]
    assert told in lines.first("retry").getMessage()
    assert told in lines.first("child_died").getMessage()
    when_gone(pid)


def test_no_child_is_killed_by_the_signals_that_its_parent_gets(stage: Stage, tmp_path: Path, line: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    stage.queue.send({"notes": str(line), "go": str(go)})
    dispatcher = stage.begin(built(stage, in_children.held).processes(1).build())
    pid = pid_from(line)
    assert os.getpgid(pid) == pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    go.write_text("go", encoding="utf-8")
    dispatcher.drain(None)
    assert stage.heard.count("acked") == 1


def test_a_stop_kills_children_that_still_work_and_releases_their_messages(stage: Stage, line: Path) -> None:
    stage.queue.send({"notes": str(line)})
    dispatcher = stage.begin(built(stage, in_children.waiting).processes(1).build())
    pid = pid_from(line)
    dispatcher.stop()
    when_gone(pid)
    assert [outcome for _, outcome in stage.heard.outcomes] == ["released"]


@pytest.mark.parametrize(
    ("options", "pids"),
    [({"max_tasks_per_child": 2}, 2), ({"max_rss": 1}, 3), ({"max_rss": 1 << 40, "max_tasks_per_child": 100}, 1)],
)
def test_children_are_replaced_when_they_have_done_enough_or_take_too_much_memory(
    stage: Stage, notes: Path, options: dict[str, int], pids: int
) -> None:
    stage.queue.send_many([{"notes": str(notes)}] * 3)
    dispatcher = stage.begin(built(stage, in_children.noting).processes(1, **options).build())  # type: ignore[arg-type]  # as the test says
    for count in (1, 2, 3):  # a start takes seconds on a busy machine
        stage.when_settled(count)
    dispatcher.drain(None)
    assert len({pid for pid, *_ in noted(notes)}) == pids


def test_log_lines_of_a_child_reach_the_handlers_of_its_parent(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.queue.send(1)
    dispatcher = stage.begin(built(stage, in_children.logging_lines).processes(1).build())
    stage.when_settled(1)
    dispatcher.drain(None)
    [record] = [record for record in caplog.records if record.name == "shop"]
    assert (record.getMessage(), record.levelname, record.funcName) == ("from a child", "WARNING", "logging_lines")
    assert record.process != os.getpid()


@pytest.mark.full
def test_children_killed_at_random_moments_lose_nothing_and_each_kill_costs_one_attempt_at_most(
    stages: Stages, notes: Path
) -> None:
    count, kills, chance = 300, 12, random.Random(15)
    stage = stages(backoff=0, max_attempts=50)
    stage.queue.send_many([{"notes": str(notes), "number": number} for number in range(count)])
    dispatcher = stage.begin(built(stage, in_children.noting).processes(2).build())
    for kill in range(1, kills + 1):
        stage.when(lambda: stage.stats.acked >= kill * count // (kills + 2) + chance.randrange(5))  # noqa: B023 - called here
        pids = [int(pid) for pid, *_ in noted(notes)[-2:]]
        with_children = chance.choice(pids)
        try:
            os.kill(with_children, signal.SIGKILL)
        except ProcessLookupError:
            continue
    stage.when(lambda: stage.stats.acked == count)
    dispatcher.drain(None)
    assert stage.queue.counts().total == 0
    attempts = Counter(attempt for _, attempt, *_ in noted(notes))
    assert attempts["1"] >= count - kills
    assert sum(number for attempt, number in attempts.items() if attempt != "1") <= kills
    assert stage.stats.lost == 0


def test_a_handler_whose_middleware_was_waiting_at_a_stop_is_not_begun_in_a_child(
    stage: Stage, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, over = Gate(), threading.Event()

    def waiting(delivery: Delivery, call_next: Call) -> object:
        try:
            gate(delivery)
            return call_next(delivery)
        finally:
            over.set()

    dispatcher = built(stage, in_children.noting).middleware(waiting).processes(1).build()
    pools = dispatcher._plan.pools  # noqa: SLF001 - no public call is between the release of the message and the end
    close = pools.close

    def close_late() -> None:
        gate.open.set()
        assert over.wait(DEADLINE)
        close()

    monkeypatch.setattr(pools, "close", close_late)
    stage.queue.send({"notes": str(notes)})
    stage.begin(dispatcher)
    gate.when_entered()
    dispatcher.stop()
    assert over.is_set()
    assert noted(notes) == []


def test_a_child_that_becomes_idle_while_all_are_ended_ends_too(stage: Stage, notes: Path) -> None:
    dispatcher = built(stage, in_children.noting).processes(1).build()
    children = dispatcher._plan.pools._children  # noqa: SLF001 - closed at a moment of its own
    assert children is not None
    closing = threading.Thread(target=children.close, daemon=True)

    class Idle(SimpleQueue[ChildSlot]):
        def put(self, item: ChildSlot, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002 - as in the class
            if not closing.ident:
                closing.start()
                closing.join(0.05)
            super().put(item, block, timeout)

    slots, children._idle = children._idle, Idle()  # noqa: SLF001 - as above
    SimpleQueue.put(children._idle, slots.get())  # noqa: SLF001 - as above
    stage.queue.send({"notes": str(notes)})
    stage.begin(dispatcher)
    stage.when_settled(1)
    closing.join(DEADLINE)
    when_gone(int(noted(notes)[0][0]))


PARENT = """
import sys
from astyqueue import Dispatcher, connect
from tests.unit.dispatch.in_children import never_ending

queue = connect("memory://").queue("emails")
queue.send({"notes": sys.argv[1]})
Dispatcher.builder().queue(queue).handler(never_ending, kind="process").processes(1).build().run()
"""


def test_no_child_outlives_its_parent_whatever_its_handler_does(line: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(line)]) as parent:
        pid, _, other = map(int, line.read_text(encoding="utf-8").split())
        parent.kill()
    when_gone(pid)
    os.kill(other, signal.SIGKILL)  # what its handler started has no parent that could end it


def outer() -> Call:
    def inner(_: Delivery) -> None:
        """Nothing."""

    return inner


class Handling:
    def method(self, _: Delivery) -> None:
        """Nothing."""


def replaced(_: Delivery) -> None:
    """The function that the next one hides."""


first = replaced


def replaced(_: Delivery) -> None:  # type: ignore[no-redef]
    """The function under this name."""


def deleted(_: Delivery) -> None:
    """The function of no name."""


nameless = deleted
del deleted


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda _: None, "imports it by name"),
        (outer(), "imports it by name"),
        (Handling().method, "imports it by name"),
        (functools.partial(in_children.noting), "imports it by name"),
        (first, "give the function of that name"),
        (nameless, "resolves to None in a child process"),
    ],
)
def test_a_function_that_no_other_process_could_import_is_refused(still: Stage, call: Call, told: str) -> None:
    with pytest.raises(BadSetting, match=told):
        built(still, call)


def test_a_handler_of_a_program_that_cannot_be_imported_is_refused() -> None:
    code = (
        "from astyqueue import Dispatcher, connect\n"
        "def handle(delivery): pass\n"
        "Dispatcher.builder().queue(connect('memory://').queue('q')).handler(handle, kind='process')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "put it into a module" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize(("system", "unit"), [("linux", 1024), ("darwin", 1)])
def test_where_a_system_reports_only_the_most_memory_that_there_was_it_is_read_in_the_unit_of_that_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: str, unit: int
) -> None:
    monkeypatch.setattr(child_main, "_STATM", str(tmp_path / "there is no such file"))
    monkeypatch.setattr(sys, "platform", system)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    assert child_main.resident_bytes() == pytest.approx(most, rel=0.1)
