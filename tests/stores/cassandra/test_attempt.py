"""When a request is begun anew.

A stand-in for the driver's session answers as nodes do that are cut off from each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout, WriteType
from cassandra.protocol import OverloadedErrorMessage

from astyqueue.clock import SystemClock
from astyqueue.stores.cassandra.connection.cluster import SilentNodesLast
from astyqueue.stores.cassandra.connection.errors import RequestKind
from astyqueue.stores.cassandra.requests.attempt import Attempt, carried_out
from astyqueue.stores.cassandra.requests.speculation import Speculation

TOO_FEW = Unavailable("too few", consistency=ConsistencyLevel.LOCAL_QUORUM, required_replicas=2, alive_replicas=1)
TOO_FEW_TO_AGREE = Unavailable(
    "too few", consistency=ConsistencyLevel.LOCAL_SERIAL, required_replicas=2, alive_replicas=1
)
READ, SEND, COMMIT = RequestKind
IN_VAIN = WriteTimeout("in vain", write_type=WriteType.CAS)


@dataclass
class Asked:
    """A request that was sent to these nodes, and its answer."""

    attempted_hosts: Sequence[str]
    answer: object
    coordinator_host: str | None = None

    def result(self) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Session:
    """Answers one request after the other."""

    answers: list[Asked]
    is_shutdown: bool = False
    begun: list[object] = field(default_factory=list)
    pages: list[object] = field(default_factory=list)

    def execute_async(self, statement: object, *, paging_state: object, **_: object) -> Asked:
        self.begun.append(statement)
        self.pages.append(paging_state)
        return self.answers.pop(0)


def attempted(
    *answers: Asked,
    kind: RequestKind = SEND,
    choosing: SilentNodesLast | None = None,
    speculation: Speculation | None = None,
) -> tuple[Session, Attempt]:
    session = Session(list(answers))
    profile = SimpleNamespace(load_balancing_policy=choosing)
    return session, Attempt(session, "a change", profile, kind=kind, speculation=speculation)


@pytest.fixture
def wary() -> SilentNodesLast:
    """Chooses between two nodes, and prefers the first."""
    return SilentNodesLast(SimpleNamespace(make_query_plan=lambda *_: iter(["first", "second"])), SystemClock())


def test_another_node_is_asked_when_one_knows_too_few_others_alive() -> None:
    session, attempt = attempted(Asked(["cut off"], TOO_FEW), Asked(["with the majority"], "done"))
    assert carried_out(attempt.result()) == "done"
    assert attempt.nodes == 1
    assert session.begun == ["a change"] * 2


def test_a_commit_is_sent_again_only_if_too_few_were_alive_to_agree_on_it() -> None:
    """If too few were alive to write what was agreed on, it would be refused the second time, though it is applied."""
    session, attempt = attempted(
        Asked(["cut off"], TOO_FEW_TO_AGREE), Asked(["with the majority"], "done"), kind=COMMIT
    )
    assert carried_out(attempt.result()) == "done"
    session, attempt = attempted(Asked(["one is down"], TOO_FEW), Asked(["another"], "refused"), kind=COMMIT)
    with pytest.raises(Unavailable):
        carried_out(attempt.result())
    assert len(session.begun) == 1


def test_when_a_node_says_so_again_too_few_are_alive() -> None:
    _, attempt = attempted(Asked(["first"], TOO_FEW), Asked(["second"], TOO_FEW), Asked(["first"], TOO_FEW))
    with pytest.raises(Unavailable):
        carried_out(attempt.result())


def test_what_was_sent_to_several_nodes_is_not_begun_anew_for_one_of_them_may_do_it() -> None:
    session, attempt = attempted(Asked(["slow", "cut off"], TOO_FEW))
    with pytest.raises(Unavailable):
        carried_out(attempt.result())
    assert attempt.nodes == 2
    assert len(session.begun) == 1


@pytest.mark.parametrize(
    "error", [TOO_FEW, IN_VAIN, OperationTimedOut(), OverloadedErrorMessage(0x1001, "overloaded", None)]
)
def test_a_node_that_waited_for_others_in_vain_is_asked_last_from_then_on(
    wary: SilentNodesLast, error: Exception
) -> None:
    _, attempt = attempted(*[Asked(["first"], error, "first")] * 2, choosing=wary)
    with pytest.raises(type(error)):
        carried_out(attempt.result())
    assert list(wary.make_query_plan()) == ["second", "first"]


def test_of_several_that_were_asked_only_the_one_that_waited_in_vain_is_asked_last(wary: SilentNodesLast) -> None:
    _, attempt = attempted(Asked(["second", "first"], IN_VAIN, "first"), choosing=wary)
    with pytest.raises(WriteTimeout):
        carried_out(attempt.result())
    assert list(wary.make_query_plan()) == ["second", "first"]


def test_what_only_reads_is_asked_once_more_when_a_node_waited_for_others_in_vain() -> None:
    _, attempt = attempted(Asked(["cut off"], ReadTimeout("in vain")), Asked(["with the majority"], "read"), kind=READ)
    assert carried_out(attempt.result()) == "read"


def test_a_node_that_is_late_time_and_again_while_others_are_not_is_asked_last(wary: SilentNodesLast) -> None:
    speculation = Speculation(SystemClock())
    for _ in range(5):
        assert next(wary.make_query_plan()) == "first"
        _, attempt = attempted(Asked(["first", "second"], "done", "second"), choosing=wary, speculation=speculation)
        carried_out(attempt.result())
        if speculation.counters.requests == 4:
            break
    assert list(wary.make_query_plan()) == ["second", "first"]
    assert speculation.counters == (4, 0)


def test_a_page_is_a_request_of_its_own_so_a_late_answer_to_the_page_before_is_not_taken_for_it() -> None:
    first, second, last = (SimpleNamespace(paging_state=state) for state in (b"2", b"3", None))
    session, attempt = attempted(
        Asked(["slow", "fast"], first),
        Asked(["fast"], OperationTimedOut()),
        Asked(["fast"], second),
        kind=READ,
    )
    assert carried_out(attempt.result()) == first
    page = attempt.next_page(first)
    assert page is not None
    assert carried_out(page.result()) == second
    assert session.pages == [None, b"2", b"2"]
    assert page.next_page(last) is None
