"""What every flavour of the queue service does, by the same tests. Time passes by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from astyqueue.errors import BadInput, NotFound, QueueDoesNotExist, QueueNameExists, StoreFull
from astyqueue.protocol.steps import Request, Send
from astyqueue.queue_service import PulledMessage, QueueService
from astyqueue.store import Store
from astyqueue.testing.faults import Faulty
from tests.queue_service.conftest import Flavour, Memory

#: A visibility timeout, in seconds: next to it, the real time that passes during a test does not count.
LONG: Final = 1_000
RECEIPTS_OF_NONE: Final = ["", "nonsense", "orders:0:0/0/x/1", "ordérs"]


def pulled(service: QueueService, queue: str = "orders") -> PulledMessage:
    message = service.pull(queue)
    assert message is not None
    return message


def drained(service: QueueService, queue: str = "orders") -> list[str]:
    return [message.body for message in iter(lambda: service.pull(queue), None)]


def test_a_body_that_was_pushed_is_pulled(service: QueueService) -> None:
    service.create("orders")
    pushed = service.push("orders", "a book")
    message = pulled(service)
    assert (message.id, message.body, message.receive_count) == (pushed, "a book", 1)


def test_an_empty_queue_gives_none(service: QueueService) -> None:
    service.create("orders")
    assert service.pull("orders") is None


@pytest.mark.parametrize("count", [0, 1, 25])
def test_many_are_pushed_together_and_all_come(flavour: Flavour, count: int) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    bodies = [f"{number}" for number in range(count)]
    ids = service.push_many("orders", bodies)
    assert len(set(ids)) == count
    messages = list(iter(lambda: service.pull("orders"), None))
    assert sorted((message.id, message.body) for message in messages) == sorted(zip(ids, bodies, strict=True))
    if flavour.ordered:
        assert [message.body for message in messages] == bodies


@pytest.mark.parametrize("single", ["ab", b"ab", {"a": "book"}, 5])
def test_one_body_in_the_place_of_many_is_refused_and_not_pushed_in_parts(service: QueueService, single: Any) -> None:  # noqa: ANN401 - wrong types are the point
    service.create("orders")
    with pytest.raises(
        BadInput, match=r"one (str|bytes|dict|int).* was given: give a list of them, or push one by push"
    ):
        service.push_many("orders", single)
    assert service.pull("orders") is None


def test_a_queue_is_created_again_only_with_its_own_visibility_and_keeps_its_messages(service: QueueService) -> None:
    url = service.create("orders", 5)
    service.push("orders", "a book")
    assert service.create("orders", "5s") == url
    with pytest.raises(QueueNameExists, match=r"'orders' .* 5 s, not the requested 10 s") as refused:
        service.create("orders", 10)
    assert (refused.value.name, refused.value.stored, refused.value.requested) == ("orders", 5, 10)
    assert isinstance(refused.value, BadInput)
    assert drained(service) == ["a book"]


@pytest.mark.parametrize("verb", ["push", "pull", "delete", "change", "purge", "delete_queue"])
def test_an_unknown_queue_is_the_same_error_for_every_verb(service: QueueService, verb: str) -> None:
    service.create("other")
    service.push("other", "a book")
    receipt = pulled(service, "other").receipt
    calls: dict[str, Callable[[], object]] = {
        "push": lambda: service.push("orders", "a book"),
        "pull": lambda: service.pull("orders"),
        "delete": lambda: service.delete("orders", receipt),
        "change": lambda: service.change_visibility("orders", receipt, 5),
        "purge": lambda: service.purge("orders"),
        "delete_queue": lambda: service.delete_queue("orders"),
    }
    with pytest.raises(QueueDoesNotExist, match="no queue 'orders'") as unknown:
        calls[verb]()
    assert unknown.value.name == "orders"
    assert isinstance(unknown.value, NotFound)


def test_queues_are_listed_and_do_not_mix(service: QueueService) -> None:
    assert service.queues() == []
    for name in ("orders", "Letters", "a_b-1"):
        service.create(name)
    service.push("orders", "a book")
    assert service.pull("Letters") is None
    assert service.queues() == ["Letters", "a_b-1", "orders"]
    assert drained(service) == ["a book"]


def test_a_queue_that_was_deleted_is_gone_and_one_of_its_name_begins_empty(service: QueueService) -> None:
    service.create("orders", 5)
    service.push("orders", "a book")
    service.delete_queue("orders")
    assert service.queues() == []
    with pytest.raises(QueueDoesNotExist):
        service.pull("orders")
    service.create("orders", 10)
    assert service.pull("orders") is None
    service.push("orders", "a letter")
    assert drained(service) == ["a letter"]


@pytest.mark.parametrize("name", ["memory", "file"])
def test_what_is_pushed_at_the_moment_at_which_its_queue_was_deleted_is_visible_at_once(
    name: str, request: pytest.FixtureRequest
) -> None:
    service = request.getfixturevalue(name).open()
    for number in range(12):  # of an id drawn anew, half were behind those of the deleted queue
        service.create("orders")
        service.push("orders", str(number))
        assert drained(service) == [str(number)]
        service.delete_queue("orders")


def test_a_purge_removes_hidden_messages_too_and_no_later_ones(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    service.push_many("orders", ["a book", "a letter"])
    pulled(service)
    service.purge("orders")
    flavour.advance(LONG)
    assert service.pull("orders") is None
    service.push("orders", "a card")
    assert drained(service) == ["a card"]


def test_a_message_is_hidden_until_its_visibility_timeout_ends(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    service.push("orders", "a book")
    first = pulled(service)
    flavour.advance(LONG - LONG // 10)
    assert service.pull("orders") is None
    flavour.advance(LONG // 10)
    second = pulled(service)
    assert (second.id, second.body, second.receive_count) == (first.id, "a book", 2)
    assert second.receipt != first.receipt


def test_messages_that_are_visible_again_come_at_the_head(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    service.push_many("orders", ["1", "2", "3"])
    assert [pulled(service).body for _ in range(2)] == (["1", "2"] if flavour.ordered else [])
    flavour.advance(LONG)
    service.push("orders", "4")
    assert drained(service) == ["1", "2", "3", "4"]


def test_a_visibility_timeout_of_zero_hides_nothing_and_the_last_receipt_deletes(service: QueueService) -> None:
    service.create("orders", 0)
    service.push("orders", "a book")
    assert [pulled(service).receive_count for _ in range(3)] == [1, 2, 3]
    service.delete("orders", pulled(service).receipt)
    assert service.pull("orders") is None


def test_a_deleted_message_does_not_come_back_and_deleting_it_again_changes_nothing(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    service.push_many("orders", ["a book", "a letter"])
    message = pulled(service)
    for _ in range(2):
        service.delete("orders", message.receipt)
    flavour.advance(LONG)
    assert len(drained(service)) == 1


def test_a_message_whose_timeout_has_ended_is_deleted_by_its_last_receipt(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    service.push("orders", "a book")
    message = pulled(service)
    flavour.advance(2 * LONG)
    service.delete("orders", message.receipt)
    assert service.pull("orders") is None


def test_an_earlier_receipt_deletes_and_hides_nothing_and_raises_nothing(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    service.push("orders", "a book")
    earlier = pulled(service)
    flavour.advance(LONG)
    if flavour.fenced:
        assert not service.change_visibility("orders", earlier.receipt, LONG)
    last = pulled(service)
    if flavour.fenced:
        assert not service.change_visibility("orders", earlier.receipt, 0)
        assert service.pull("orders") is None
    service.delete("orders", earlier.receipt)
    flavour.advance(LONG)
    assert drained(service) == (["a book"] if flavour.fenced else [])
    service.delete("orders", last.receipt)


def test_only_the_message_of_the_receipt_is_deleted_whatever_others_contain(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    service.push("orders", "a book")
    message = pulled(service)
    service.push("orders", f"about {message.receipt}")
    service.delete("orders", message.receipt)
    flavour.advance(LONG)
    assert drained(service) == [f"about {message.receipt}"]


@pytest.mark.parametrize("receipt", RECEIPTS_OF_NONE)
def test_what_cannot_be_a_receipt_is_refused_and_deletes_nothing(service: QueueService, receipt: str) -> None:
    service.create("orders", 0)
    service.push("orders", "a book")
    pulled(service)
    with pytest.raises(BadInput, match="is not a receipt of this queue"):
        service.delete("orders", receipt)
    with pytest.raises(BadInput, match="is not a receipt of this queue"):
        service.change_visibility("orders", receipt, 5)
    assert pulled(service).body == "a book"


@pytest.mark.parametrize(
    ("part", "other"),
    [("row", "orders:99:99"), ("row", "orders:x:0"), ("row", "orders"), ("priority", "256"), ("number", "0")],
)
def test_a_receipt_with_a_wrong_part_is_refused_and_later_pulls_work(memory: Memory, part: str, other: str) -> None:
    service = memory.open()
    service.create("orders", LONG)
    service.push_many("orders", ["a book", "a card"])
    written = pulled(service).receipt
    parts = dict(zip(("row", "priority", "id", "number"), written.split("/"), strict=True))
    damaged = "/".join((parts | {part: other}).values())
    with pytest.raises(BadInput, match="is not a receipt of this queue"):
        service.delete("orders", damaged)
    with pytest.raises(BadInput, match="is not a receipt of this queue"):
        service.change_visibility("orders", damaged, 5)
    assert pulled(service).body == "a card"


def test_a_receipt_of_another_queue_is_refused(service: QueueService) -> None:
    for name in ("orders", "other"):
        service.create(name)
        service.push(name, "a book")
    receipt = pulled(service, "other").receipt
    with pytest.raises(BadInput, match="is not a receipt of this queue"):
        service.delete("orders", receipt)
    assert drained(service) == ["a book"]


def test_a_visibility_that_is_changed_ends_sooner_or_later(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", LONG)
    service.push_many("orders", ["1", "2", "3"])
    sooner, later, _ = (pulled(service) for _ in range(3))
    assert service.change_visibility("orders", sooner.receipt, 0)
    assert drained(service) == [sooner.body]
    assert service.change_visibility("orders", later.receipt, 3 * LONG)
    flavour.advance(LONG)
    assert later.body not in drained(service)
    flavour.advance(2 * LONG)
    assert later.body in drained(service)


@pytest.mark.parametrize("name", ["memory", "file"])
def test_a_message_that_is_visible_again_is_not_hidden_by_its_last_receipt_and_the_caller_sees_that(
    name: str, request: pytest.FixtureRequest
) -> None:
    flavour: Flavour = request.getfixturevalue(name)
    service = flavour.open()
    service.create("orders", LONG)
    service.push_many("orders", ["1", "2", "3"])
    ended, ended_early, gone = (pulled(service) for _ in range(3))
    service.delete("orders", gone.receipt)
    assert service.change_visibility("orders", ended_early.receipt, 0)
    assert not service.change_visibility("orders", ended_early.receipt, LONG)
    flavour.advance(LONG)
    assert not service.change_visibility("orders", ended.receipt, LONG)
    assert not service.change_visibility("orders", gone.receipt, LONG)
    assert sorted(drained(service)) == sorted([ended.body, ended_early.body])


def test_a_message_that_was_made_visible_is_deleted_by_its_last_receipt(service: QueueService) -> None:
    service.create("orders")
    service.push("orders", "a book")
    message = pulled(service)
    service.change_visibility("orders", message.receipt, 0)
    service.delete("orders", message.receipt)
    assert service.pull("orders") is None


BODIES: Final = [
    "line\nline\r\n\ttab",
    " ",
    '"',
    "\\",
    "a:b|c\N{SNOWMAN}\N{PILE OF POO}",
    "0",
    "null",
    "{}",
    "x" * 262_144,
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_body_comes_back_as_it_was(service: QueueService, body: str) -> None:
    service.create("orders")
    service.push("orders", body)
    assert pulled(service).body == body


def test_many_large_bodies_are_pushed_together(service: QueueService) -> None:
    service.create("orders")
    bodies = [str(number) * 100_000 for number in range(8)]
    service.push_many("orders", bodies)
    assert sorted(drained(service)) == bodies


@pytest.mark.parametrize("body", [None, b"a book", 1, "", "\0", "a\x01b", "\x7f\uffff", "\ud800", "x" * 262_145])
def test_a_body_that_sqs_does_not_take_is_refused_by_every_flavour(service: QueueService, body: str) -> None:
    service.create("orders")
    with pytest.raises(BadInput, match="body"):
        service.push("orders", body)
    with pytest.raises(BadInput, match="body"):
        service.push_many("orders", ["a book", body])
    assert service.pull("orders") is None


class FullAt(Faulty):
    """Has no space left for the message of this body."""

    def __init__(self, store: Store, body: str) -> None:
        super().__init__(store)
        self._body = body.encode()

    def perform(self, request: Request) -> object:
        if isinstance(request, Send) and any(
            self._body in put.value for batch in request.batches for put in batch.puts
        ):
            message = "disk full"
            raise StoreFull(message)
        return super().perform(request)


@pytest.mark.parametrize(
    ("full_at", "told"),
    [(7, "disk full"), (1_500, "disk full. The first 1000 of 2500 messages were pushed before that")],
)
def test_an_error_says_how_many_messages_were_pushed_before_it(memory: Memory, full_at: int, told: str) -> None:
    service = memory.open()
    service.create("orders")
    store = service._store  # type: ignore[attr-defined]  # noqa: SLF001 - the store that runs out of space
    service._store = FullAt(store, f"body {full_at} ")  # type: ignore[attr-defined]  # noqa: SLF001 - the same
    with pytest.raises(StoreFull) as raised:
        service.push_many("orders", [f"body {number} " for number in range(2_500)])
    assert str(raised.value) == told


def test_a_body_that_is_refused_is_not_in_the_error(memory: Memory) -> None:
    service = memory.open()
    service.create("orders")
    with pytest.raises(BadInput, match="number 2 is of the type dict") as refused:
        service.push_many("orders", ["a book", {"password": "hunter2"}])  # type: ignore[list-item]  # what is refused
    assert "hunter2" not in str(refused.value)
    with pytest.raises(BadInput, match="at position 7") as refused:
        service.push("orders", "hunter2\ud800")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a/b", "../a", "é", "x" * 81, "a:b", None, 1])
def test_a_name_that_sqs_does_not_take_is_refused_by_every_flavour(service: QueueService, name: str) -> None:
    for call in (lambda: service.create(name), lambda: service.push(name, "x"), lambda: service.pull(name)):
        with pytest.raises(BadInput, match="not a valid queue name"):
            call()


@pytest.mark.parametrize("visibility", [-1, 0.5, "500ms", 43_201, None, "soon"])
def test_a_visibility_timeout_that_sqs_does_not_take_is_refused_by_every_flavour(
    service: QueueService, visibility: int
) -> None:
    with pytest.raises(BadInput):
        service.create("orders", visibility)
    assert service.queues() == []


def test_the_longest_name_and_visibility_timeout_are_taken(service: QueueService) -> None:
    name = "x" * 80
    assert name in service.create(name, "12h")
    service.push(name, "a book")
    assert pulled(service, name).body == "a book"


@pytest.mark.parametrize("wait", [-1, 0.5, 21])
def test_a_wait_that_sqs_does_not_take_is_refused_by_every_flavour(service: QueueService, wait: float) -> None:
    service.create("orders")
    with pytest.raises(BadInput):
        service.pull("orders", wait=wait)
