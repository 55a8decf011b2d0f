"""A process that forks: its stores work on both sides, whatever other threads do and whenever it is interrupted."""

from __future__ import annotations

from contextlib import closing

import pytest

from astyqueue.store import Column, Slice, Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine
from tests.stores.sqlite.programs import Start, finish

ROW = "emails:0:0"

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
import faulthandler, signal, warnings
warnings.simplefilter("ignore")  # Python 3.13 drops an interrupt while it shows its warning of forks beside threads
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


def columns(store: Store) -> list[Column]:
    return store.read((Slice(ROW, 2),))[0]


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
