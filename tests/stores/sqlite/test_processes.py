"""Many processes and one file: they count together, die in the middle, fork."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from astyqueue import ids
from astyqueue.errors import StoreUnavailable
from astyqueue.store import Batch, Column, Name, Named, Put, Slice, Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine

ROW = "emails:0:0"
COUNTER = Name(0, 0, ids.LEAST, 0)
#: Seconds after which a process that has not ended counts as hanging.
PATIENCE = 100

#: The first lines of every program below; `store` is on the file whose URL the test passes.
BEGINNING = """
import os, sys, threading
from astyqueue import ids
from astyqueue.clock import SystemClock
from astyqueue.errors import Closed
from astyqueue.store import Batch, Committed, Expectation, Name, Named, Put, Slice
from astyqueue.stores import open_store

ROW, COUNTER = "emails:0:0", Name(0, 0, ids.LEAST, 0)

def name(order, state=1):
    return Name(2, 0, ids.first_at(order), state)

def there(store):
    return {column.name for column in store.read((Slice(ROW, 2),))[0]}

def waited(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def in_child(work):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)

store = open_store(sys.argv[1], clock=SystemClock())
"""

COUNT_TO_500 = """
known, applied = None, 0
while applied < 500:
    following = b"%d" % (int(known or b"0") + 1)
    outcome = store.commit(Batch(ROW, puts=(Put(COUNTER, following),)), (Expectation(COUNTER, known),))
    if outcome == Committed():
        known, applied = following, applied + 1
    else:
        known = outcome.present[COUNTER]
"""

STOP_BEFORE_THE_COMMIT = """
def stop(session):
    print("written, not committed", flush=True)
    sys.stdin.read()

store._make_durable = stop
store.send(Batch(ROW, puts=tuple(Put(name(order), bytes(2000)) for order in range(500))))
"""

SEND_WITHOUT_END = """
for number in range(100_000):
    store.send(Batch(ROW, puts=tuple(Put(name(number, state), bytes(500)) for state in range(10))))
    print(number, flush=True)
"""

A_DISK_THAT_FAILS = """
import resource
from astyqueue.errors import OutcomeUnknown

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

sent = 0
limit(400_000)
try:
    while True:
        store.commit(Batch(ROW, puts=(Put(name(sent), bytes(10_000)),)), ())
        sent += 1
except OutcomeUnknown as unknown:
    assert "read back" in str(unknown)
limit(-1)
assert sent and there(store) == {name(order) for order in range(sent)}
store.send(Batch(ROW, puts=(Put(name(sent), b""),)))
assert len(there(store)) == sent + 1
"""

FORK_AND_GO_ON = """
store.send(Batch(ROW, puts=(Put(name(0), b""),)))

def inherited():
    descriptors = "/proc/self/fd"
    every = [os.path.join(descriptors, each) for each in os.listdir(descriptors)] if os.path.exists(descriptors) else []
    return [os.readlink(each) for each in every if os.path.islink(each) and "mail.db" in os.readlink(each)]

def work():
    assert inherited() == [], inherited()
    assert there(store) == {name(0)}
    store.send(Batch(ROW, puts=(Put(name(1), b""),)))
    store.close()

assert waited(in_child(work)) == 0
store.send(Batch(ROW, puts=(Put(name(2), b""),)))
assert there(store) == {name(0), name(1), name(2)}
"""

FORK_WHILE_OTHERS_WRITE = """
ended = threading.Event()

def write(state):
    order = 1000
    while not ended.is_set():
        store.send(Batch(ROW, puts=(Put(name(order, state), b""),)))
        assert name(order, state) in there(store)
        order += 1

def work():
    for _ in range(5):
        assert name(0) in there(store)
    store.send(Batch(ROW, puts=(Put(name(os.getpid()), b""),)))

threads = [threading.Thread(target=write, args=(state,)) for state in (2, 3)]
store.send(Batch(ROW, puts=(Put(name(0), b""),)))
for thread in threads:
    thread.start()
children = []
for _ in range(10):
    children.append(in_child(work))
assert [waited(child) for child in children] == [0] * 10
ended.set()
for thread in threads:
    thread.join()
assert {name(child) for child in children} <= there(store)
"""

FORK_A_MEMORY_STORE = """
memory, shared = (open_store(url, clock=SystemClock()) for url in ("memory://", "memory://shared"))

def work():
    for copy in (memory, shared):
        try:
            copy.read((Slice(ROW, 2),))
        except Closed as closed:
            assert "fork" in str(closed)
        else:
            raise SystemExit("a copy was read")
    again = open_store("memory://shared", clock=SystemClock())
    assert there(again) == set()
    again.send(Batch(ROW, puts=(Put(name(1), b""),)))
    assert there(again) == {name(1)}

for each in (memory, shared):
    each.send(Batch(ROW, puts=(Put(name(0), b""),)))
assert waited(in_child(work)) == 0
assert there(memory) == there(shared) == {name(0)}
"""


FORK_WHILE_A_MEMORY_STORE_IS_OPENED = """
import signal
from astyqueue.stores import memory

inside, go_on, rows = threading.Event(), threading.Event(), memory._Rows

def made_slowly():
    inside.set()
    go_on.wait()
    return rows()

def work():
    signal.alarm(20)
    open_store("memory://two", clock=SystemClock()).send(Batch(ROW, puts=(Put(name(0), b""),)))

memory._Rows = made_slowly
opening = threading.Thread(target=open_store, args=("memory://one",), kwargs={"clock": SystemClock()})
opening.start()
inside.wait()
memory._Rows = rows
assert waited(in_child(work)) == 0
go_on.set()
opening.join()
"""

FORK_WHILE_ANOTHER_PROCESS_WRITES = """
import sqlite3

path = sys.argv[1].removeprefix("sqlite:///").partition("?")[0]
other = sqlite3.connect(path, isolation_level=None)
other.execute("BEGIN IMMEDIATE")
failed = []

def send(order):
    try:
        store.send(Batch(ROW, puts=(Put(name(order), b""),)))
    except Exception as error:
        failed.append(error)

threads = [threading.Thread(target=send, args=(order,)) for order in range(4)]
for thread in threads:
    last = store._writers._last
    thread.start()
    while store._writers._last is last:
        pass
assert [waited(in_child(lambda: there(store))) for _ in range(3)] == [0] * 3
assert all(thread.is_alive() for thread in threads) and there(store) == set()
other.execute("COMMIT")
for thread in threads:
    thread.join()
assert not failed, failed
assert there(store) == {name(order) for order in range(4)}
"""

#: What the programs below share: a thread in a transaction, interrupts, a write that must not hang.
A_TRANSACTION = """
import faulthandler, signal
faulthandler.dump_traceback_later(60, exit=True)

inside, leave = threading.Event(), threading.Event()

def long():
    with store.transaction():
        inside.set()
        leave.wait()

def interrupted(*_):
    interrupts.append(1)
    raise KeyboardInterrupt

def writes():
    sent = threading.Thread(target=store.send, args=(Batch(ROW, puts=(Put(name(0), b""),)),), daemon=True)
    sent.start()
    sent.join(20)
    return not sent.is_alive() and name(0) in there(store)

interrupts = []
signal.signal(signal.SIGINT, interrupted)
"""

INTERRUPT_A_FORK_THAT_WAITS = """
writing = threading.Thread(target=long)
writing.start()
inside.wait()

def interrupt(turn=store._writers._last):
    while store._writers._last is turn:
        pass
    os.kill(os.getpid(), signal.SIGINT)
    while not interrupts:
        pass
    leave.set()

threading.Thread(target=interrupt).start()
reading, told = os.pipe()
parent = os.getpid()
reached = False
try:
    os.fork()
except KeyboardInterrupt:
    reached = True
if os.getpid() != parent:
    os.write(told, b"ok" if writes() else b"no")
    os._exit(0)
assert os.read(reading, 2) == b"ok"
assert reached, "the interrupt was dropped"
assert writes(), "a write hangs"
assert waited(in_child(lambda: there(store))) == 0
"""

INTERRUPT_A_FORK_ANYWHERE = """
import itertools

memory = open_store("memory://", clock=SystemClock())
there(store)
parent = os.getpid()

class Interrupting:
    def __init__(self, at):
        self.at, self.points = at, 0

    def count(self, _, event, __):
        if event in ("call", "c_return"):
            self.points += 1
            if self.points == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt

sys.unraisablehook = lambda _: None
for at in itertools.count(1):
    interrupting = Interrupting(at)
    try:
        sys.setprofile(interrupting.count)
        os.fork()
        sys.setprofile(None)
    except KeyboardInterrupt:
        pass
    sys.setprofile(None)
    if os.getpid() != parent:
        os._exit(0 if there(store) is not None else 1)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert writes(), at
    assert there(memory) == set(), at
    if interrupting.points < at:
        break
assert at > 10
"""

A_HOOK_THAT_FAILS = """
from astyqueue.stores.fork_hooks import call_at_forks

class Failing:
    def before_fork(self):
        raise ValueError("before")

    def after_fork(self, *, child):
        raise AssertionError("it was not prepared")

shown = []
sys.unraisablehook = lambda one: shown.append(one.exc_value)
failing = Failing()
call_at_forks(failing)
there(store)
assert waited(in_child(lambda: there(store))) == 0
assert [str(error) for one in shown for error in one.exceptions] == ["before"]
assert writes()
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'mail.db'}?synchronous=normal"


Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    """Starts processes that run a program text; none of them outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def run(text: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, "-c", BEGINNING + text, url], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with process:
            process.kill()


def finish(process: subprocess.Popen[str]) -> None:
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told


def columns(store: Store) -> list[Column]:
    return store.read((Slice(ROW, 2),))[0]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_four_processes_that_open_a_new_file_at_once_count_to_two_thousand(
    start: Start, url: str, clock: TimeMachine
) -> None:
    for process in [start(COUNT_TO_500) for _ in range(4)]:
        finish(process)
    with closing(open_store(url, clock=clock)) as store:
        assert store.read((Named(ROW, (COUNTER,)),))[0][0].value == b"2000"


def test_a_writer_killed_before_its_commit_leaves_nothing_and_lets_the_next_one_write(
    start: Start, url: str, clock: TimeMachine
) -> None:
    hanging = start(STOP_BEFORE_THE_COMMIT)
    assert "not committed" in line(hanging)
    with closing(open_store(f"{url}&busy_timeout=0.1", clock=clock)) as store:
        with pytest.raises(StoreUnavailable, match=r"Another process held its lock for too long.*[?]busy_timeout"):
            store.send(Batch(ROW, puts=(Put(COUNTER, b""),)))
        assert columns(store) == []
        hanging.kill()
        hanging.wait(PATIENCE)
        assert columns(store) == []
        store.send(Batch(ROW, puts=(Put(Name(2, 0, ids.LEAST, 0), b""),)))
        assert len(columns(store)) == 1


def test_a_writer_killed_at_any_moment_leaves_whole_batches_and_all_that_returned(
    start: Start, url: str, clock: TimeMachine
) -> None:
    for _ in range(5):
        writer = start(SEND_WITHOUT_END)
        returned = max(int(line(writer)) for _ in range(40))
        writer.kill()
        writer.wait(PATIENCE)
        with closing(open_store(url, clock=clock)) as store:
            orders = [ids.moment(column.name.id) for column in columns(store)]
        assert set(range(returned + 1)) <= set(orders)
        assert all(orders.count(order) == 10 for order in set(orders))


def test_an_error_of_the_disk_during_a_commit_leaves_its_outcome_unknown_and_work_goes_on(start: Start) -> None:
    finish(start(A_DISK_THAT_FAILS))


@pytest.mark.parametrize("text", [FORK_AND_GO_ON, FORK_WHILE_OTHERS_WRITE], ids=["at rest", "while others write"])
def test_a_store_works_on_both_sides_of_a_fork(start: Start, url: str, clock: TimeMachine, text: str) -> None:
    finish(start(text))
    with closing(open_store(url, clock=clock)) as store:
        assert len(columns(store)) >= 3


def test_a_fork_does_not_wait_for_another_process_that_writes_for_long(start: Start) -> None:
    finish(start(FORK_WHILE_ANOTHER_PROCESS_WRITES))


def test_an_interrupt_of_a_fork_that_waits_is_raised_after_it_and_both_sides_go_on(start: Start) -> None:
    finish(start(A_TRANSACTION + INTERRUPT_A_FORK_THAT_WAITS))


def test_a_fork_that_is_interrupted_wherever_it_can_be_keeps_no_thread_from_writing(start: Start) -> None:
    finish(start(A_TRANSACTION + INTERRUPT_A_FORK_ANYWHERE))


def test_a_fork_hook_that_fails_is_shown_and_keeps_no_store_from_working_on_both_sides(start: Start) -> None:
    finish(start(A_TRANSACTION + A_HOOK_THAT_FAILS))


def test_a_fork_while_a_memory_store_is_opened_locks_nobody_out(start: Start) -> None:
    finish(start(FORK_WHILE_A_MEMORY_STORE_IS_OPENED))


def test_a_memory_store_ends_where_its_process_was_copied(start: Start) -> None:
    finish(start(FORK_A_MEMORY_STORE))


def test_multiprocessing_by_fork_shares_the_file(start: Start, url: str, clock: TimeMachine) -> None:
    text = """
from multiprocessing import get_context

def work(order):
    store.send(Batch(ROW, puts=(Put(name(order), b""),)))
    return len(there(store))

there(store)
with get_context("fork").Pool(3) as pool:
    assert all(pool.map(work, range(30)))
assert len(there(store)) == 30
"""
    finish(start(text))
    with closing(open_store(url, clock=clock)) as store:
        assert len(columns(store)) == 30
