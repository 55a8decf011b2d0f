"""What the verdict on a run of a ring finds: each test writes the journals of a run that went wrong in one way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ring.checks import Verdict, judge
from tests.ring.fault_schedule import Fault, Kind
from tests.ring.nemesis import Befallen
from tests.ring.observations import read
from tests.ring.run import Played

ONE, TWO = (bytes([number]).hex() * 16 for number in (1, 2))
FIRST, AGAIN, LATER = (bytes([number]).hex() * 8 for number in (1, 2, 3))
SENT = f"sending 10 0 2\nsent 11 0 2 targets:0:0 0 {ONE}{TWO}\n"


def taken(nonce: str, at: int, number: int = 0, id_: str = ONE, attempt: int = 1) -> str:
    """A claim at this moment, and what it took handed to somebody a little later."""
    return (
        f"claim {at} {nonce} {id_}\nclaimed {at + 1} {nonce} done\nhanded {at + 2} {number} {id_} {attempt} {nonce}\n"
    )


def settled(nonce: str, at: int, number: int = 0, id_: str = ONE, outcome: str = "acked") -> str:
    """An ack, and what came of it a little later."""
    return f"settle {at} {number} {id_} {nonce} acked\nsettled {at + 1} {number} {id_} {nonce} {outcome}\n"


OTHER_ONE = taken(LATER, 20, 1, TWO) + settled(LATER, 25, 1, TWO)


@pytest.fixture
def journals(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("producer", "worker", "another")]


def verdict(journals: list[Path], *told: str, faults: tuple[Befallen, ...] = ()) -> Verdict:
    for journal, text in zip(journals, (SENT, *told), strict=False):
        journal.write_text(text)
    there = [journal for journal in journals if journal.exists()]
    return judge(Played(0, 1_000, [*faults], there, dead=[], left=0, ended_badly={}), read(there))


def befallen(kind: Kind, began: int, ended: int, victim: str = "") -> Befallen:
    return Befallen(Fault(kind, 1, 0, 0), began, ended, ended + 10, victim)


def test_what_was_sent_and_handled_once_is_in_order(journals: list[Path]) -> None:
    found = verdict(journals, taken(FIRST, 20) + settled(FIRST, 30) + OTHER_ONE)
    assert (found.sent, found.handled, found.lost, found.doubles, found.violations) == (2, 2, 0, [], [])


def test_what_nobody_was_handed_is_lost(journals: list[Path]) -> None:
    found = verdict(journals, OTHER_ONE)
    assert found.lost == 1
    assert any("message 0 was sent and never handled" in said for said in found.violations)


def test_a_double_that_no_fault_explains_is_held_against_it(journals: list[Path]) -> None:
    found = verdict(journals, taken(FIRST, 20) + OTHER_ONE, taken(AGAIN, 40) + settled(AGAIN, 50))
    assert [double.cause for double in found.doubles] == [None]
    assert ["no fault explains it" in said for said in found.violations] == [True]


@pytest.mark.parametrize(
    ("fault", "explains"),
    [
        (befallen(Kind.WORKER_KILLED, 30, 30, "worker"), True),
        (befallen(Kind.WORKER_KILLED, 30, 30, "another"), False),
        (befallen(Kind.WORKER_FROZEN, 30, 38, "worker"), True),
        (befallen(Kind.PRODUCER_KILLED, 30, 30, "producer"), False),
        (befallen(Kind.NODE_FROZEN, 30, 60), True),
        (befallen(Kind.NODE_FROZEN, 60, 90), False),
    ],
)
def test_a_fault_explains_a_double_of_what_was_in_hand_when_it_came(
    journals: list[Path], fault: Befallen, *, explains: bool
) -> None:
    found = verdict(journals, taken(FIRST, 20) + OTHER_ONE, taken(AGAIN, 40) + settled(AGAIN, 50), faults=(fault,))
    assert [double.cause for double in found.doubles] == [0 if explains else None]
    assert bool(found.violations) is not explains


def test_a_message_is_in_flight_until_it_is_settled_or_somebody_else_has_it(journals: list[Path]) -> None:
    sudden = befallen(Kind.CONNECTIONS_CUT, 30, 30)
    hands = taken(FIRST, 20) + OTHER_ONE
    assert verdict(journals, hands, taken(AGAIN, 40) + settled(AGAIN, 50), faults=(sudden,)).in_flight == [1]
    late = befallen(Kind.NODE_FROZEN, 60, 90)
    assert verdict(journals, hands, taken(AGAIN, 40) + settled(AGAIN, 50), faults=(late,)).in_flight == [0]


def test_what_comes_back_after_its_ack_is_held_against_it_whatever_happened(journals: list[Path]) -> None:
    fault = befallen(Kind.NODE_FROZEN, 25, 60)
    again = taken(AGAIN, 40) + settled(AGAIN, 50, outcome="lost")
    found = verdict(journals, taken(FIRST, 20) + settled(FIRST, 30) + OTHER_ONE, again, faults=(fault,))
    assert any("after it was done with" in said for said in found.violations)
