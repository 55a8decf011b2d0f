"""The promises on concurrent use by many threads."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from astyqueue.errors import OutcomeUnknown
from astyqueue.store import Batch, Committed, Outcome, Put, Refused, Store
from astyqueue.testing.conformance.examples import COUNTER, LOCK, ROW, contents, having, name, put_all, value
from astyqueue.testing.timemachine import TimeMachine

THREADS = 8
TRIES = 25
#: The longest wait for other threads, in seconds.
PATIENCE = 60


def attempt(store: Store, batch: Batch, *, expected: bytes | None) -> Outcome | OutcomeUnknown:
    """The outcome of a commit that expects a value of the counter."""
    try:
        return store.commit(batch, having(COUNTER, expected))
    except OutcomeUnknown as unknown:
        return unknown


def count_up(store: Store, start: Barrier) -> Counter[type]:
    """Try `TRIES` times to increment the counter; the number of tries by outcome."""
    ended: Counter[type] = Counter()
    start.wait(PATIENCE)
    for _ in range(TRIES):
        known = value(store, COUNTER)
        outcome = attempt(store, Batch(ROW, puts=(Put(COUNTER, b"%d" % (int(known or b"0") + 1)),)), expected=known)
        ended[type(outcome)] += 1
    return ended


class SharingPromises:
    """No other commit is applied between the check of a commit's expectations and its changes."""

    def test_a_counter_raised_by_many_threads_counts_every_commit_that_was_applied(self, store: Store) -> None:
        start = Barrier(THREADS)
        with ThreadPoolExecutor(THREADS) as threads:
            ended = sum(
                (
                    future.result(PATIENCE)
                    for future in [threads.submit(count_up, store, start) for _ in range(THREADS)]
                ),
                Counter(),
            )
        assert ended.total() == THREADS * TRIES
        assert ended[Committed] <= int(value(store, COUNTER) or b"0") <= ended[Committed] + ended[OutcomeUnknown]
        assert ended[Committed] >= 1

    def test_of_many_that_want_what_is_free_one_gets_it(self, store: Store) -> None:
        start = Barrier(THREADS)

        def take(who: int) -> Outcome:
            start.wait(PATIENCE)
            return store.commit(Batch(ROW, puts=(Put(LOCK, b"%d" % who),)), having(LOCK, None))

        with ThreadPoolExecutor(THREADS) as threads:
            outcomes = list(threads.map(take, range(THREADS), timeout=PATIENCE))
        winner = b"%d" % outcomes.index(Committed())
        assert outcomes.count(Committed()) == 1
        assert outcomes.count(Refused({LOCK: winner})) == THREADS - 1
        assert contents(store) == {LOCK: winner}

    def test_what_many_threads_send_is_all_there(self, store: Store, clock: TimeMachine) -> None:
        mine = [tuple(name(order, tail=bytes(7) + bytes((who,))) for order in range(20)) for who in range(THREADS)]

        def send(who: int) -> None:
            for each in mine[who]:
                put_all(store, clock, (each,))

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(send, range(THREADS), timeout=PATIENCE))
        assert sorted(contents(store)) == sorted(sum(mine, ()))
