"""The page on errors has every error with its place in the tree, and calls are repeated as it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

from astyqueue import MessageQueue, errors, journal_errors
from astyqueue.clock import SystemClock
from astyqueue.errors import AstyqueueError, BadInput, LeaseLost, OutcomeUnknown, QueueFull, StoreUnavailable
from astyqueue.journal_errors import SpoolFull
from astyqueue.model.views import Standing
from astyqueue.protocol.steps import Commit, Read, Request
from astyqueue.store import Store
from astyqueue.testing.faults import Faulty
from tests.support.places import ONE_ROW, Place

PAGE: Final = (Path(__file__).parents[2] / "docs/reference/errors.md").read_text()
HEAD: Final = "| error | raised by | was anything changed? | what to do |"
INSTRUCTIONS: Final = {errors.Retry, errors.Reject, errors.Snooze}
#: A line of the tree: its branches, the name of a class, and a base of Python's own.
_LINE: Final = re.compile(r"^([│├└─ ]*)(\w+)(?: \((\w+)\))?$", re.MULTILINE)
_WIDTH: Final = len("├── ")


def public_classes() -> set[type[Exception]]:
    """Every exception class of the two modules that users may name."""
    found = [*vars(errors).items(), *vars(journal_errors).items()]
    return {
        one for name, one in found if isinstance(one, type) and issubclass(one, Exception) and not name.startswith("_")
    }


def class_of(name: str) -> type[Exception]:
    module = journal_errors if hasattr(journal_errors, name) else errors
    found = getattr(module, name)
    assert isinstance(found, type)
    assert issubclass(found, Exception)
    return found


def rows_below(head: str) -> list[str]:
    """The names in the first column of all tables with this head."""
    tables = re.findall(rf"^{re.escape(head)}\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [name for table in tables for name in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)]


def tree() -> Iterator[tuple[str, list[str]]]:
    """Each class of the tree, and its bases as the tree has them."""
    text = PAGE[PAGE.index("```text\nAstyqueueError\n") + len("```text\n") :]
    above: list[str] = []
    for branches, name, other in _LINE.findall(text[: text.index("```")]):
        depth = len(branches) // _WIDTH
        yield name, [*above[depth - 1 : depth], *([other] if other else [])]
        above[depth:] = [name]


def test_each_error_has_one_row_in_the_tables() -> None:
    names = rows_below(HEAD)
    assert {*map(class_of, names)} == public_classes() - INSTRUCTIONS
    assert len(names) == len({*names})


def test_the_instructions_are_no_errors_and_have_a_table_of_their_own() -> None:
    assert {*map(class_of, rows_below("| instruction | the message |"))} == INSTRUCTIONS
    assert not any(issubclass(one, AstyqueueError) for one in INSTRUCTIONS)


def test_the_tree_has_every_error_below_its_bases() -> None:
    drawn = dict(tree())
    assert {*map(class_of, drawn)} == public_classes() - INSTRUCTIONS
    bases = {name: [base.__name__ for base in class_of(name).__bases__] for name in drawn if name != "AstyqueueError"}
    assert {name: above for name, above in drawn.items() if above} == bases


def test_each_name_of_an_error_on_the_page_is_one() -> None:
    known = {one.__name__ for one in public_classes()} | {"TypeError", "ValueError", "LookupError"}
    named = {word for span in re.findall(r"`([^`\n]+)`", PAGE) for word in re.findall(r"^[A-Z]\w+$", span)}
    assert named - known <= {"App", "Exception", "Schedules"}  # names of other things


@pytest.mark.parametrize("name", rows_below(HEAD))
def test_each_attribute_in_the_row_of_an_error_is_one_that_it_sets(name: str) -> None:
    [row] = re.findall(rf"^\| `{name}` \| .+ \|$", PAGE.partition("## Which errors to repeat")[0], re.MULTILINE)
    made = class_of(name).__init__
    set_by_it = made.__code__.co_names if isinstance(made, FunctionType) else ()
    assert {*re.findall(r"`\.(\w+)`", row)} <= {*set_by_it}


class Unanswering(Faulty):
    """A store that fails with `error`. If that is OutcomeUnknown it carries changes out, and is away after a commit."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.error: errors.StoreError | None = None
        self._is_away = False

    def answer_again(self) -> None:
        self.error, self._is_away = None, False

    def perform(self, request: Request) -> object:
        if self.error is None or (isinstance(request, Read) and not self._is_away):
            return super().perform(request)
        if isinstance(request, Read):
            raise StoreUnavailable
        if isinstance(self.error, OutcomeUnknown):
            super().perform(request)
            self._is_away = isinstance(request, Commit) and request.batch.row.startswith("emails:")
        raise self.error


@pytest.fixture
def store(place: Place) -> Unanswering:
    return Unanswering(place.store(SystemClock()))


@pytest.fixture
def queue(store: Unanswering) -> Iterator[MessageQueue]:
    with MessageQueue.builder().store(store).name("emails").options(**ONE_ROW).build() as queue:
        yield queue


@pytest.mark.parametrize("error", [StoreUnavailable("away"), OutcomeUnknown("no answer")], ids=["away", "unanswered"])
def test_a_settle_that_failed_is_repeated_on_the_same_delivery(
    queue: MessageQueue, store: Unanswering, error: errors.StoreError
) -> None:
    queue.send("a")
    [delivery] = queue.receive()
    store.error = error
    with pytest.raises(type(error)):
        delivery.ack()
    store.answer_again()
    delivery.ack()
    assert queue.counts().total == 0
    with pytest.raises(errors.AlreadySettled):
        delivery.ack()


def test_a_settle_by_receipt_that_was_carried_out_raises_lease_lost_when_it_is_repeated(queue: MessageQueue) -> None:
    queue.send("a")
    [delivery] = queue.receive()
    queue.ack(delivery.receipt)
    with pytest.raises(LeaseLost):
        queue.ack(delivery.receipt)
    with pytest.raises(LeaseLost):
        delivery.ack()


def test_any_settle_of_a_message_that_is_delivered_at_most_once_raises(queue: MessageQueue) -> None:
    queue.send("a", lease=0)
    [delivery] = queue.receive()
    with pytest.raises(errors.AlreadySettled):
        delivery.ack()


@pytest.mark.parametrize(("key", "unique", "there"), [(None, None, 2), ("ada", "keep", 1)], ids=["plain", "unique"])
def test_a_send_of_unknown_outcome_that_is_repeated_is_there_twice_unless_it_keeps_a_unique_key(
    queue: MessageQueue, store: Unanswering, key: str | None, unique: str | None, there: int
) -> None:
    store.error = OutcomeUnknown("no answer")
    with pytest.raises(OutcomeUnknown):
        queue.send("a", key=key, unique=unique)
    store.answer_again()
    assert queue.send("a", key=key, unique=unique).new == (there == 2)
    assert queue.counts().total == there


def test_an_invalid_item_leaves_the_parts_of_a_thousand_before_it_sent(queue: MessageQueue) -> None:
    with pytest.raises(BadInput):
        queue.send_many([*range(999), object()])
    assert queue.counts().total == 0
    with pytest.raises(BadInput):
        queue.send_many([*range(1_999), object()])
    assert queue.counts().total == 1_000


def test_the_rest_after_a_full_queue_is_what_was_not_sent(queue: MessageQueue) -> None:
    queue.configure(max_messages=10)
    items = [*range(15)]
    with pytest.raises(QueueFull) as full:
        queue.send_many(items)
    queue.configure(max_messages=0)
    queue.send_many(items[full.value.sent :])
    assert sorted(str(one.body) for one in queue.peek(20)) == sorted(map(str, items))


def test_the_rest_after_a_full_spool_is_what_was_not_sent(store: Unanswering, tmp_path: Path) -> None:
    items = [f"{number} {'x' * 1_000}" for number in range(200)]
    builder = MessageQueue.builder().store(store).name("emails").options(**ONE_ROW)
    with builder.spool(tmp_path, cap="100KiB", when_full="raise", drain=0).build() as queue:
        store.error = StoreUnavailable("away")
        with pytest.raises(SpoolFull) as full:
            queue.send_many(items)
        rest = items[len(full.value.report.ids) :]
        assert 0 < len(rest) < len(items)
        store.answer_again()
        assert queue.spool.drain("10s")
        queue.send_many(rest[:1])
        assert queue.spool.drain("10s")
        assert {str(one.body) for one in queue.peek(300)} == {*items[: -len(rest)], rest[0]}


@pytest.mark.parametrize("instruction", [errors.Retry("1h"), errors.Reject("no"), errors.Snooze("1h")])
def test_an_instruction_in_the_block_of_a_receive_is_a_failed_attempt(
    queue: MessageQueue, instruction: Exception
) -> None:
    sent = queue.send("a")
    with pytest.raises(type(instruction)), queue.receive():
        raise instruction
    found = queue.get(sent.id)
    assert (found.standing, found.spent) == (Standing.BACKING_OFF, 1)
