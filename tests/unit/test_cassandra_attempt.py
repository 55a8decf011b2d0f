"""When a request is begun anew: a stand-in for the driver's session answers as nodes do that are cut off from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from cassandra import ConsistencyLevel, Unavailable

from astyqueue.stores.cassandra.attempt import Attempt

TOO_FEW = Unavailable("too few", consistency=ConsistencyLevel.LOCAL_QUORUM, required_replicas=2, alive_replicas=1)


@dataclass
class Asked:
    """A request that was sent to these nodes, and what came of it."""

    attempted_hosts: Sequence[str]
    answer: object

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

    def execute_async(self, statement: object, **_: object) -> Asked:
        self.begun.append(statement)
        return self.answers.pop(0)


def attempted(*answers: Asked) -> tuple[Session, Attempt]:
    session = Session(list(answers))
    return session, Attempt(session, "a change", SimpleNamespace(load_balancing_policy=None))


def test_another_node_is_asked_when_one_knows_too_few_others_alive() -> None:
    session, attempt = attempted(Asked(["cut off"], TOO_FEW), Asked(["with the majority"], "done"))
    assert attempt.result() == "done"
    assert attempt.nodes == 1
    assert session.begun == ["a change"] * 2


def test_when_a_node_says_so_again_too_few_are_alive() -> None:
    _, attempt = attempted(Asked(["first"], TOO_FEW), Asked(["second"], TOO_FEW), Asked(["first"], TOO_FEW))
    with pytest.raises(Unavailable):
        attempt.result()


def test_what_was_sent_to_several_nodes_is_not_begun_anew_for_one_of_them_may_do_it() -> None:
    session, attempt = attempted(Asked(["slow", "cut off"], TOO_FEW))
    with pytest.raises(Unavailable):
        attempt.result()
    assert attempt.nodes == 2
    assert len(session.begun) == 1
