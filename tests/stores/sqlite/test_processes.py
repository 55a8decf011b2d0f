"""Many processes and one file: they count together, and die in the middle."""

from __future__ import annotations

import subprocess
from contextlib import closing

import pytest

from astyqueue import ids
from astyqueue.errors import StoreUnavailable
from astyqueue.store import Batch, Column, Name, Named, Put, Slice, Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine
from tests.stores.sqlite.programs import PATIENCE, Start, finish

ROW = "emails:0:0"
COUNTER = Name(0, 0, ids.LEAST, 0)
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
