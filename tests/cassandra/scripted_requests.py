"""Short scenarios on one row: simulated and real servers must give the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, Protocol

from astyqueue import ids
from astyqueue.errors import StoreError
from astyqueue.store import Batch, Expectation, Name, Named, Put, Slice, Store
from astyqueue.units import SECOND

ROW: Final = "scripted row"
HEADER: Final = Name(0, 0, ids.LEAST, 0)
MESSAGE: Final = Name(2, 0, ids.first_at(0), 1)
HOUR: Final = 3_600 * SECOND


class Bench(Protocol):
    """Servers, simulated or real."""

    @property
    def store(self) -> Store:
        """The way to them."""
        ...

    def now(self) -> int:
        """Their time, more or less."""
        ...

    def losing(self, what: Literal["question", "answer"], change: Callable[[Store], object]) -> None:
        """Make a change, of which the question or the answer is lost on the way."""
        ...

    def clear_graves(self) -> None:
        """Let all tombstones grow older than they are kept, and purge them."""
        ...


#: A scenario: yields the answers of the store.
Story = Callable[[Bench], Iterator[object]]


def message(number: int) -> Name:
    return MESSAGE._replace(id=ids.first_at(number))


def shown(bench: Bench, *names: Name, exact: bool = False) -> list[bytes]:
    [columns] = bench.store.read((Named(ROW, names or (HEADER, MESSAGE)),), exact=exact)
    return [column.value for column in columns]


def written(bench: Bench, name: Name) -> int:
    [[column]] = bench.store.read((Named(ROW, (name,)),), exact=True)
    return column.written


def put(bench: Bench, value: bytes, stamp: int | None = None, *, ttl: int | None = None) -> None:
    bench.store.send(Batch(ROW, (Put(MESSAGE, value, stamp, ttl),)))


def raised(
    bench: Bench, *puts: Put, deletes: tuple[Name, ...] = (), before: bytes | None = None, after: bytes = b"1"
) -> object:
    """A commit as claims make them: on the header, and with it."""
    return bench.store.commit(Batch(ROW, (Put(HEADER, after), *puts), deletes), (Expectation(HEADER, before),))


def told(change: Callable[[], object]) -> object:
    """The answer, or the kind of error."""
    try:
        return change()
    except StoreError as error:
        return type(error).__name__


def of_two_plain_writes_with_one_stamp_the_greater_value_stands(bench: Bench) -> Iterator[object]:
    stamp = bench.now()
    for value in (b"b", b"c", b"a"):
        put(bench, value, stamp)
        yield shown(bench)


def of_a_commit_and_a_plain_write_with_its_stamp_the_greater_value_stands(bench: Bench) -> Iterator[object]:
    yield raised(bench, Put(MESSAGE, b"m"))
    stamp = written(bench, MESSAGE)
    for value in (b"a", b"z"):
        put(bench, value, stamp)
        yield shown(bench)


def a_commit_deletes_a_microsecond_before_it_puts_and_at_one_stamp_a_delete_beats_a_put(
    bench: Bench,
) -> Iterator[object]:
    put(bench, b"sent", bench.now() - HOUR)
    yield raised(bench, deletes=(MESSAGE,))
    stamp = written(bench, HEADER)
    for later in (-2, -1, 0):
        put(bench, b"again", stamp + later)
        yield shown(bench)


def at_one_stamp_what_expires_beats_what_lasts(bench: Bench) -> Iterator[object]:
    stamp = bench.now()
    put(bench, b"a", stamp, ttl=1_000)
    put(bench, b"z", stamp)
    yield shown(bench)


def of_one_commit_all_columns_have_one_stamp_and_the_next_is_later(bench: Bench) -> Iterator[object]:
    yield raised(bench, Put(MESSAGE, b"m"))
    first = written(bench, HEADER)
    yield written(bench, MESSAGE) == first
    yield raised(bench, before=b"1", after=b"2")
    yield written(bench, HEADER) > first


def a_refusal_shows_what_was_expected_as_it_is_and_changes_nothing(bench: Bench) -> Iterator[object]:
    yield raised(bench, Put(MESSAGE, b"m"))
    expects = (
        Expectation(HEADER, b"0"),
        Expectation(MESSAGE, b"m"),
        Expectation(message(7), None),
        Expectation(message(8), b"x"),
    )
    yield bench.store.commit(Batch(ROW, (Put(HEADER, b"2"), Put(message(7), b"7")), (MESSAGE,)), expects)
    yield shown(bench, HEADER, MESSAGE, message(7), message(8), exact=True)


def a_delete_of_what_is_not_there_is_a_change_like_others(bench: Bench) -> Iterator[object]:
    yield raised(bench, deletes=(MESSAGE,))
    put(bench, b"late", written(bench, HEADER) - 1)
    yield shown(bench)
    yield bench.store.commit(Batch(ROW, (Put(MESSAGE, b"new"),)), (Expectation(MESSAGE, None),))
    yield shown(bench)


def a_plain_write_with_an_older_stamp_does_not_bring_back_what_was_deleted(bench: Bench) -> Iterator[object]:
    stamp = bench.now() - HOUR
    put(bench, b"sent", stamp)
    yield shown(bench)
    yield raised(bench, deletes=(MESSAGE,))
    yield shown(bench)
    put(bench, b"sent", stamp)
    yield shown(bench)


def a_write_from_a_clock_ahead_outlives_commits(bench: Bench) -> Iterator[object]:
    put(bench, b"ahead", bench.now() + HOUR)
    yield raised(bench, deletes=(MESSAGE,))
    yield shown(bench)
    yield bench.store.commit(Batch(ROW, (Put(MESSAGE, b"new"),)), (Expectation(MESSAGE, b"ahead"),))
    yield shown(bench, exact=True)
    yield bench.store.commit(Batch(ROW, (Put(MESSAGE, b"newer"),)), (Expectation(MESSAGE, b"new"),))


def what_expired_is_absent_for_reads_and_for_commits(bench: Bench) -> Iterator[object]:
    put(bench, b"short", ttl=1)
    yield shown(bench)
    while shown(bench):
        bench.now()
    yield bench.store.commit(Batch(ROW, (Put(MESSAGE, b"new"),)), (Expectation(MESSAGE, b"short"),))
    yield bench.store.commit(Batch(ROW, (Put(MESSAGE, b"new"),)), (Expectation(MESSAGE, None),))
    yield shown(bench)


def a_commit_whose_answer_is_lost_was_made_and_an_exact_read_shows_it(bench: Bench) -> Iterator[object]:
    yield told(
        lambda: bench.losing(
            "answer", lambda store: store.commit(Batch(ROW, (Put(HEADER, b"1"),)), (Expectation(HEADER, None),))
        )
    )
    yield shown(bench, exact=True)
    yield raised(bench)
    yield raised(bench, before=b"1", after=b"2")


def a_commit_that_is_lost_on_its_way_is_as_unknown_and_was_not_made(bench: Bench) -> Iterator[object]:
    yield told(
        lambda: bench.losing(
            "question", lambda store: store.commit(Batch(ROW, (Put(HEADER, b"1"),)), (Expectation(HEADER, None),))
        )
    )
    yield shown(bench, exact=True)
    yield raised(bench)


def a_send_whose_answer_is_lost_may_be_repeated_unchanged(bench: Bench) -> Iterator[object]:
    sent = Batch(ROW, (Put(MESSAGE, b"sent", bench.now() - HOUR),))
    yield told(lambda: bench.losing("answer", lambda store: store.send(sent)))
    yield shown(bench, exact=True)
    bench.store.send(sent)
    yield raised(bench, deletes=(MESSAGE,))
    bench.store.send(sent)
    yield shown(bench)


def a_grave_that_was_cleared_lets_a_late_write_bring_back_the_dead(bench: Bench) -> Iterator[object]:
    sent = Batch(ROW, (Put(MESSAGE, b"sent", bench.now() - HOUR),))
    bench.store.send(sent)
    yield raised(bench, deletes=(MESSAGE,))
    bench.store.send(sent)
    yield shown(bench)
    bench.clear_graves()
    yield shown(bench)
    bench.store.send(sent)
    yield shown(bench)


def a_slice_read_in_pages_shows_each_page_as_of_its_own_moment(bench: Bench) -> Iterator[object]:
    stamp = bench.now() - HOUR
    bench.store.send(Batch(ROW, tuple(Put(message(number), b"%d" % number, stamp) for number in (10, 20, 30, 40, 50))))
    after, beyond = ids.LEAST, False
    for turn, (deleted, inserted) in enumerate([(20, 15), (30, 35), (50, 60)]):
        [page] = bench.store.read((Slice(ROW, 2, 0, after=after, beyond=beyond, limit=2),))
        yield [column.value for column in page]
        after, beyond = page[-1].name.id, True
        header = b"%d" % turn if turn else None
        yield raised(
            bench,
            Put(message(inserted), b"%d" % inserted),
            deletes=(message(deleted),),
            before=header,
            after=b"%d" % (turn + 1),
        )
    [rest] = bench.store.read((Slice(ROW, 2, 0, after=after, beyond=True),))
    yield [column.value for column in rest]
    [everything] = bench.store.read((Slice(ROW, 2, values=False),))
    yield [ids.moment(column.name.id) for column in everything]


STORIES: Final[tuple[Story, ...]] = (
    of_two_plain_writes_with_one_stamp_the_greater_value_stands,
    of_a_commit_and_a_plain_write_with_its_stamp_the_greater_value_stands,
    a_commit_deletes_a_microsecond_before_it_puts_and_at_one_stamp_a_delete_beats_a_put,
    at_one_stamp_what_expires_beats_what_lasts,
    of_one_commit_all_columns_have_one_stamp_and_the_next_is_later,
    a_refusal_shows_what_was_expected_as_it_is_and_changes_nothing,
    a_delete_of_what_is_not_there_is_a_change_like_others,
    a_plain_write_with_an_older_stamp_does_not_bring_back_what_was_deleted,
    a_write_from_a_clock_ahead_outlives_commits,
    what_expired_is_absent_for_reads_and_for_commits,
    a_commit_whose_answer_is_lost_was_made_and_an_exact_read_shows_it,
    a_commit_that_is_lost_on_its_way_is_as_unknown_and_was_not_made,
    a_send_whose_answer_is_lost_may_be_repeated_unchanged,
    a_grave_that_was_cleared_lets_a_late_write_bring_back_the_dead,
    a_slice_read_in_pages_shows_each_page_as_of_its_own_moment,
)
