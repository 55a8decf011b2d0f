"""The verdict on a run: what the oracles find, which messages were lost, and which doubles no fault explains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from tests.ring.fault_schedule import OF_WORKERS, Kind
from tests.ring.nemesis import Befallen
from tests.ring.observations import Holding, Testimony
from tests.ring.run import Played
from tests.simulation.checkers import checkers
from tests.simulation.engine.history import Result

#: The oracles that need only what processes requested and learned, and what was left at the end. The others need what
#: only a simulation provides: each commit in the order in which a majority accepted it, the tombstones that each poll
#: passes over, and a rescan at the end.
ORACLES: Final = (
    checkers.nothing_sent_is_lost,
    checkers.nothing_comes_back,
    checkers.one_receipt_is_good,
    checkers.a_receipt_is_lost_for_a_reason,
    checkers.attempts_are_counted,
    checkers.dead_letters_are_kept,
    checkers.what_is_refused_changes_nothing,
)
#: The outcome after which a message is meant to be delivered again.
_GIVEN_BACK: Final = "release"

_ENDS: Final = {
    "": "was not settled: its holder ended, or never heard what came of it",
    "lost": "was settled too late, which changed nothing",
    "ack": "was acked, while the other was in hand already",
    "reject": "was rejected, while the other was in hand already",
}


@dataclass(frozen=True, slots=True)
class Double:
    """A message that was delivered again although no worker had released it.

    `cause` is the place, in the list of all faults, of the one that explains it; None if none does.
    """

    first: Holding
    again: Holding
    cause: int | None

    @property
    def told(self) -> str:
        """What became of the first delivery."""
        return _ENDS[self.first.outcome]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run went; `violations` is empty if it went well."""

    sent: int
    unknown: int
    refused: int
    handled: int
    rejected: int
    lost: int
    doubles: list[Double]
    in_flight: list[int]
    violations: list[str]

    def doubles_of(self, fault: int) -> int:
        """How many doubles the fault in this place explains."""
        return sum(double.cause == fault for double in self.doubles)


def judge(played: Played, told: Testimony) -> Verdict:
    """The verdict on a run."""
    results = Counter(sent.result for sent in told.history.sent)
    handled = {holding.number for holding in told.holdings}
    lost = [sent.number for sent in told.history.sent if sent.result is Result.DONE and sent.number not in handled]
    doubles = list(_doubles(played.faults, told))
    in_flight = [peak(befallen, told.holdings) for befallen in played.faults]
    record = told.record(played.dead)
    violations = [
        *(said for oracle in ORACLES for said in oracle(record)),
        *(f"message {number} was sent and never handled" for number in lost),
        *_unexplained(doubles),
        *_too_many(doubles, played.faults, in_flight),
        *([f"{played.left} messages are left"] if played.left else ()),
        *(f"{name} ended with {code}" for name, code in played.ended_badly.items()),
    ]
    return Verdict(
        sent=results[Result.DONE],
        unknown=results[Result.UNKNOWN],
        refused=results[Result.REFUSED],
        handled=len(handled),
        rejected=len(played.dead),
        lost=len(lost),
        doubles=doubles,
        in_flight=in_flight,
        violations=violations,
    )


def _doubles(faults: list[Befallen], told: Testimony) -> Iterator[Double]:
    by_number: dict[int, list[Holding]] = defaultdict(list)
    for holding in told.holdings:
        by_number[holding.number].append(holding)
    times = (sorted(holdings, key=lambda holding: holding.claimed) for holdings in by_number.values())
    for first, again in (pair for holdings in times for pair in pairwise(holdings) if pair[0].outcome != _GIVEN_BACK):
        yield Double(first, again, _cause(faults, first, again))


def _cause(faults: list[Befallen], first: Holding, again: Holding) -> int | None:
    """The fault that kept the first delivery from being settled before the second claim.

    A fault of the worker explains it better than one of the store.
    """
    fitting = [place for place, befallen in enumerate(faults) if _fits(befallen, first, again)]
    own = [place for place in fitting if faults[place].victim]
    return next(iter([*own, *fitting]), None)


def _fits(befallen: Befallen, first: Holding, again: Holding) -> bool:
    """Whether the fault hit the worker that had the message, or the store while the message was in flight."""
    if befallen.fault.kind in OF_WORKERS:
        return befallen.victim == first.journal and first.claimed < befallen.ended and again.claimed > befallen.began
    at_the_store = befallen.fault.kind is not Kind.PRODUCER_KILLED
    return at_the_store and first.claimed < befallen.until and min(first.settled, again.claimed) > befallen.began


def _unexplained(doubles: list[Double]) -> Iterator[str]:
    for double in doubles:
        if double.cause is None:
            number, both = double.first.number, f"{double.first}, {double.again}"
            yield f"message {number} was handed out twice, and no fault explains it: {both}"


def _too_many(doubles: list[Double], faults: list[Befallen], in_flight: list[int]) -> Iterator[str]:
    for place, count in Counter(double.cause for double in doubles if double.cause is not None).items():
        if count > in_flight[place]:
            yield f"{faults[place].fault}: {count} doubles, and {in_flight[place]} messages at most were in flight"


def peak(befallen: Befallen, holdings: Iterable[Holding]) -> int:
    """The largest number of messages in flight at a fault.

    Of a fault of a worker: what that worker had when the fault began. Of any other: the most that all workers together
    had at any moment of it.
    """
    if befallen.fault.kind in OF_WORKERS:
        return sum(
            each.journal == befallen.victim and each.claimed <= befallen.began < each.settled for each in holdings
        )
    during = [each for each in holdings if each.claimed < befallen.until and each.settled > befallen.began]
    changes = [change for each in during for change in ((each.claimed, 1), (each.settled, -1))]
    return max(accumulate(step for _, step in sorted(changes)), default=0)
