"""What `doctor` finds out about the permits of a queue that limits how many processes claim from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue.findings import Finding, Severity
from astyqueue.protocol.layout.rows import permits_row
from astyqueue.queue.connection import Connection, connect
from astyqueue.queue.health_check import examine
from astyqueue.queue.queue import MessageQueue
from astyqueue.store import Batch, Name, Put
from astyqueue.testing import TimeMachine

SUBJECT = "permits of queue ledger"


class Ledger:
    """A limited queue in a file, its first process, which has the permit, and one that stands by."""

    def __init__(self, connection: Connection, url: str, clock: TimeMachine, permit_lease: str) -> None:
        self.url = url
        self.clock = clock
        self.active = self.opened(connection, permit_lease)
        self.standby = self.opened(connection, permit_lease)
        for queue in (self.active, self.standby):
            assert not queue.receive()
        clock.advance("1s")
        assert not self.standby.receive()
        self.active.send("due")

    @staticmethod
    def opened(connection: Connection, permit_lease: str) -> MessageQueue:
        return connection.queue("ledger", max_active_processes=1, permit_lease=permit_lease)

    def finding(self) -> Finding:
        [found] = [one for one in examine(self.url, clock=self.clock) if one.subject == SUBJECT]
        return found


@pytest.fixture
def connection(tmp_path: Path, clock: TimeMachine) -> Connection:
    return connect(f"sqlite:///{tmp_path}/work.db", clock=clock)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/work.db"


def test_it_is_well_while_nothing_waits_long(connection: Connection, url: str, clock: TimeMachine) -> None:
    ledger = Ledger(connection, url, clock, "1h")
    assert (ledger.finding().severity, ledger.finding().fact) == (Severity.OK, "1 of 1 taken, 1 process standing by")
    ledger.standby.close()
    assert ledger.finding().fact == "1 of 1 taken, 0 processes standing by"


def test_a_process_that_has_the_permit_and_claims_nothing_is_named(
    connection: Connection, url: str, clock: TimeMachine
) -> None:
    ledger = Ledger(connection, url, clock, "1h")
    clock.advance("61s")
    found = ledger.finding()
    assert found.severity is Severity.WARNING
    assert found.fact.startswith(f"{ledger.active.core.process.name} may claim and does not, and work is due since")
    assert "astyqueue workers stacks" in found.remedy


def test_stand_bys_that_leave_a_free_permit_are_a_warning(connection: Connection, url: str, clock: TimeMachine) -> None:
    ledger = Ledger(connection, url, clock, "1h")
    ledger.active.close()
    clock.advance("61s")
    found = ledger.finding()
    assert found.severity is Severity.WARNING
    assert found.fact.startswith("1 process standing by, a permit is free, and work is due since")


def test_a_permit_that_ran_out_with_nobody_to_take_it_is_a_warning(
    connection: Connection, url: str, clock: TimeMachine
) -> None:
    ledger = Ledger(connection, url, clock, "15s")
    clock.advance("61s")
    found = ledger.finding()
    assert found.severity is Severity.WARNING
    assert found.fact.startswith("no process has or wants a permit, and work is due since")
    assert found.remedy == "start a worker or a consumer on ledger"


def test_a_permit_that_cannot_be_read_is_a_problem_and_the_queue_is_examined_all_the_same(
    connection: Connection, url: str, clock: TimeMachine
) -> None:
    ledger = Ledger(connection, url, clock, "1h")
    connection.store.send(Batch(permits_row("ledger"), (Put(Name(0, 0, bytes([1, *[0] * 15]), 0), b"\x63"),)))
    found = ledger.finding()
    assert found.severity is Severity.PROBLEM
    assert "cannot be read" in found.fact
    assert any(one.subject == "queue ledger" for one in examine(url, clock=clock))


def test_a_queue_without_a_limit_has_no_such_finding(connection: Connection, url: str, clock: TimeMachine) -> None:
    connection.queue("emails")
    assert not [one for one in examine(url, clock=clock) if one.subject.startswith("permits")]
