"""What the checks of a run of a ring find: each test writes the journals of a run with one violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ring.checks import CheckResult, check_run
from tests.ring.fault_schedule import Fault, Kind
from tests.ring.nemesis import InjectedFault
from tests.ring.observations import read
from tests.ring.run import RunResult

ONE, TWO = (bytes([number]).hex() * 16 for number in (1, 2))
FIRST, AGAIN, LATER = (bytes([number]).hex() * 8 for number in (1, 2, 3))
SENT = f"sending 10 0 2\nsent 11 0 2 targets:0:0 0 {ONE}{TWO}\n"


def taken(nonce: str, at: int, number: int = 0, id_: str = ONE, attempt: int = 1) -> str:
    """A claim at this moment, and its delivery a little later."""
    return (
        f"claim {at} {nonce} {id_}\nclaimed {at + 1} {nonce} done\n"
        f"delivered {at + 2} {number} {id_} {attempt} {nonce}\n"
    )


def settled(nonce: str, at: int, number: int = 0, id_: str = ONE, outcome: str = "acked") -> str:
    """An ack, and its outcome a little later."""
    return f"settle {at} {number} {id_} {nonce} acked\nsettled {at + 1} {number} {id_} {nonce} {outcome}\n"


OTHER_ONE = taken(LATER, 20, 1, TWO) + settled(LATER, 25, 1, TWO)


@pytest.fixture
def journals(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("producer", "worker", "another")]


def result(journals: list[Path], *texts: str, faults: tuple[InjectedFault, ...] = ()) -> CheckResult:
    for journal, text in zip(journals, (SENT, *texts), strict=False):
        journal.write_text(text)
    there = [journal for journal in journals if journal.exists()]
    return check_run(RunResult(0, 1_000, [*faults], there, dead=[], left=0, ended_badly={}), read(there))


def injected(kind: Kind, began: int, ended: int, victim: str = "") -> InjectedFault:
    return InjectedFault(Fault(kind, 1, 0, 0), began, ended, ended + 10, victim)


def test_what_was_sent_and_handled_once_is_in_order(journals: list[Path]) -> None:
    found = result(journals, taken(FIRST, 20) + settled(FIRST, 30) + OTHER_ONE)
    assert (found.sent, found.handled, found.lost, found.duplicates, found.violations) == (2, 2, 0, [], [])


def test_what_nobody_was_delivered_is_lost(journals: list[Path]) -> None:
    found = result(journals, OTHER_ONE)
    assert found.lost == 1
    assert any("message 0 was sent and never handled" in details for details in found.violations)


def test_a_duplicate_that_no_fault_explains_is_a_violation(journals: list[Path]) -> None:
    found = result(journals, taken(FIRST, 20) + OTHER_ONE, taken(AGAIN, 40) + settled(AGAIN, 50))
    assert [duplicate.cause for duplicate in found.duplicates] == [None]
    assert ["no fault explains it" in details for details in found.violations] == [True]


@pytest.mark.parametrize(
    ("fault", "explains"),
    [
        (injected(Kind.WORKER_KILLED, 30, 30, "worker"), True),
        (injected(Kind.WORKER_KILLED, 30, 30, "another"), False),
        (injected(Kind.WORKER_FROZEN, 30, 38, "worker"), True),
        (injected(Kind.PRODUCER_KILLED, 30, 30, "producer"), False),
        (injected(Kind.NODE_FROZEN, 30, 60), True),
        (injected(Kind.NODE_FROZEN, 60, 90), False),
    ],
)
def test_a_fault_explains_a_duplicate_of_a_message_that_was_leased_when_it_began(
    journals: list[Path], fault: InjectedFault, *, explains: bool
) -> None:
    found = result(journals, taken(FIRST, 20) + OTHER_ONE, taken(AGAIN, 40) + settled(AGAIN, 50), faults=(fault,))
    assert [duplicate.cause for duplicate in found.duplicates] == [0 if explains else None]
    assert bool(found.violations) is not explains


def test_a_message_is_in_flight_until_it_is_settled_or_claimed_again(journals: list[Path]) -> None:
    sudden = injected(Kind.CONNECTIONS_CUT, 30, 30)
    hands = taken(FIRST, 20) + OTHER_ONE
    assert result(journals, hands, taken(AGAIN, 40) + settled(AGAIN, 50), faults=(sudden,)).in_flight == [1]
    late = injected(Kind.NODE_FROZEN, 60, 90)
    assert result(journals, hands, taken(AGAIN, 40) + settled(AGAIN, 50), faults=(late,)).in_flight == [0]


def test_a_message_that_comes_back_after_its_ack_is_a_violation_under_any_fault(journals: list[Path]) -> None:
    fault = injected(Kind.NODE_FROZEN, 25, 60)
    again = taken(AGAIN, 40) + settled(AGAIN, 50, outcome="lost")
    found = result(journals, taken(FIRST, 20) + settled(FIRST, 30) + OTHER_ONE, again, faults=(fault,))
    assert any("after its end" in details for details in found.violations)
