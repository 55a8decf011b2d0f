"""The checks of a run: violations that checkers find, lost messages, and duplicates that no fault explains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from tests.ring.fault_schedule import OF_WORKERS, Kind
from tests.ring.nemesis import InjectedFault
from tests.ring.observations import Lease, Observations
from tests.ring.run import RunResult
from tests.simulation.checkers import checkers
from tests.simulation.engine.history import Result

#: The checkers that need only what processes requested and learned, and what was left at the end. The others need what
#: only a simulation provides: each commit in the order in which a majority accepted it, the tombstones that each poll
#: passes over, and a rescan at the end.
CHECKERS: Final = (
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
    "": "was not settled: its holder ended, or never learned its outcome",
    "lost": "was settled too late, which changed nothing",
    "ack": "was acked, when the message was leased again already",
    "reject": "was rejected, when the message was leased again already",
}


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A message that was delivered again although no worker had released it.

    `cause` is the place, in the list of all faults, of the one that explains it; None if none does.
    """

    first: Lease
    again: Lease
    cause: int | None

    @property
    def explanation(self) -> str:
        """What became of the first delivery."""
        return _ENDS[self.first.outcome]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How a run went; `violations` is empty if it went well."""

    sent: int
    unknown: int
    refused: int
    handled: int
    rejected: int
    lost: int
    duplicates: list[Duplicate]
    in_flight: list[int]
    violations: list[str]

    def duplicates_of(self, fault: int) -> int:
        """How many duplicates the fault in this place explains."""
        return sum(duplicate.cause == fault for duplicate in self.duplicates)


def check_run(run_result: RunResult, observations: Observations) -> CheckResult:
    """The checks of a run."""
    results = Counter(sent.result for sent in observations.history.sent)
    handled = {lease.number for lease in observations.leases}
    lost = [
        sent.number for sent in observations.history.sent if sent.result is Result.DONE and sent.number not in handled
    ]
    duplicates = list(_duplicates(run_result.faults, observations))
    in_flight = [peak(injected, observations.leases) for injected in run_result.faults]
    record = observations.record(run_result.dead)
    violations = [
        *(sentence for checker in CHECKERS for sentence in checker(record)),
        *(f"message {number} was sent and never handled" for number in lost),
        *_unexplained(duplicates),
        *_too_many(duplicates, run_result.faults, in_flight),
        *([f"{run_result.left} messages are left"] if run_result.left else ()),
        *(f"{name} ended with {code}" for name, code in run_result.ended_badly.items()),
    ]
    return CheckResult(
        sent=results[Result.DONE],
        unknown=results[Result.UNKNOWN],
        refused=results[Result.REFUSED],
        handled=len(handled),
        rejected=len(run_result.dead),
        lost=len(lost),
        duplicates=duplicates,
        in_flight=in_flight,
        violations=violations,
    )


def _duplicates(faults: list[InjectedFault], observations: Observations) -> Iterator[Duplicate]:
    by_number: dict[int, list[Lease]] = defaultdict(list)
    for lease in observations.leases:
        by_number[lease.number].append(lease)
    times = (sorted(leases, key=lambda lease: lease.claimed) for leases in by_number.values())
    for first, again in (pair for leases in times for pair in pairwise(leases) if pair[0].outcome != _GIVEN_BACK):
        yield Duplicate(first, again, _cause(faults, first, again))


def _cause(faults: list[InjectedFault], first: Lease, again: Lease) -> int | None:
    """The fault that kept the first delivery from being settled before the second claim.

    A fault of the worker explains it better than one of the store.
    """
    fitting = [place for place, injected in enumerate(faults) if _fits(injected, first, again)]
    own = [place for place in fitting if faults[place].victim]
    return next(iter([*own, *fitting]), None)


def _fits(injected: InjectedFault, first: Lease, again: Lease) -> bool:
    """Whether the fault hit the worker that had the message, or the store while the message was in flight."""
    if injected.fault.kind in OF_WORKERS:
        return injected.victim == first.journal and first.claimed < injected.ended and again.claimed > injected.began
    at_the_store = injected.fault.kind is not Kind.PRODUCER_KILLED
    return at_the_store and first.claimed < injected.until and min(first.settled, again.claimed) > injected.began


def _unexplained(duplicates: list[Duplicate]) -> Iterator[str]:
    for duplicate in duplicates:
        if duplicate.cause is None:
            number, both = duplicate.first.number, f"{duplicate.first}, {duplicate.again}"
            yield f"message {number} was delivered out twice, and no fault explains it: {both}"


def _too_many(duplicates: list[Duplicate], faults: list[InjectedFault], in_flight: list[int]) -> Iterator[str]:
    for place, count in Counter(duplicate.cause for duplicate in duplicates if duplicate.cause is not None).items():
        if count > in_flight[place]:
            yield f"{faults[place].fault}: {count} duplicates, and {in_flight[place]} messages at most were in flight"


def peak(injected: InjectedFault, leases: Iterable[Lease]) -> int:
    """The largest number of messages in flight at a fault.

    Of a fault of a worker: what that worker had when the fault began. Of any other: the most that all workers together
    had at any moment of it.
    """
    if injected.fault.kind in OF_WORKERS:
        return sum(each.journal == injected.victim and each.claimed <= injected.began < each.settled for each in leases)
    during = [each for each in leases if each.claimed < injected.until and each.settled > injected.began]
    changes = [change for each in during for change in ((each.claimed, 1), (each.settled, -1))]
    return max(accumulate(step for _, step in sorted(changes)), default=0)
