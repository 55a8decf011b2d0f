"""A coordinator: quorum writes with hints, quorum reads with read repair, and Paxos for conditional changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from tests.simulation.cassandra.network import Answers, Ask, Coordinating, Later, Network
from tests.simulation.cassandra.replica import Asking, Ballot, Decision, Hint, Promise, Replica
from tests.simulation.cassandra.storage import Changes, Found, lacking, merged

#: How long a coordinator tries while others contend with it.
_CONTENTION: Final = 1_800_000
_BACK_OFF: Final = 4_000
#: After so long without a quorum of answers, further replicas are asked as well.
_ASK_OTHERS: Final = 50_000


class TooFew(Exception):
    """Too few replicas are known to be up; nothing was tried."""


class TimedOut(Exception):
    """Too few replicas answered in time."""


#: Returns the changes, given the cells that a condition reads and the ballot; None: the condition does not hold.
Deciding = Callable[[Found, Ballot], Changes | None]
#: Called when a replica accepts a proposal for a row for good.
Witness = Callable[[str, Decision, Replica], None]


def never(_found: Found, _ballot: Ballot) -> None:
    """A condition that never holds: the request is a serial read."""


class Coordinator:
    """Carries out requests for one row at a time, on whichever node they reach."""

    def __init__(self, network: Network, replicas: list[Replica], *, witness: Witness, chance: random.Random) -> None:
        """Every replica has every row; a majority is a quorum."""
        self.quorum = len(replicas) // 2 + 1
        self._network = network
        self._replicas = replicas
        self._witness = witness
        self._chance = chance

    def _up(self) -> list[Replica]:
        up = [replica for replica in self._replicas if replica.up]
        if len(up) < self.quorum:
            raise TooFew
        return up

    def _shuffled(self) -> list[Replica]:
        """The replicas that are up, in random order."""
        up, chance = self._up(), self._chance.random
        return sorted(up, key=lambda _: chance())

    def write(self, home: Replica, row: str, changes: Changes) -> Coordinating[None]:
        """Write at quorum; a replica that misses it gets a hint later."""
        answers: Answers = yield self._writing(home, row, changes, up=self._up())
        if len(answers) < self.quorum:
            raise TimedOut

    def _writing(self, home: Replica, row: str, changes: Changes, *, up: list[Replica]) -> Ask:
        def missed(replica: Replica) -> None:
            home.hints.append(Hint(replica.number, row, changes, home.clock.now()))

        for replica in self._replicas:
            if replica not in up:
                missed(replica)
        return Ask(up, lambda replica: replica.write(row, changes), self.quorum, missed=missed, writes=True)

    def read(self, row: str, asking: Asking) -> Coordinating[Found]:
        """The merged cells of a quorum; those of its replicas that lack some are repaired before this returns."""
        up = self._shuffled()
        first, others = up[: self.quorum], up[self.quorum :]
        patience = _ASK_OTHERS if others else None
        answers: Answers = yield self._reading(first, row, asking, need=self.quorum, patience=patience)
        if len(answers) < self.quorum and others:
            more: Answers = yield self._reading(others, row, asking, need=self.quorum - len(answers))
            answers += more
        if len(answers) < self.quorum:
            raise TimedOut
        return (yield from self._repaired(row, answers))

    @staticmethod
    def _reading(targets: list[Replica], row: str, asking: Asking, *, need: int, patience: int | None = None) -> Ask:
        ask = Ask(targets, lambda replica: replica.read(row, asking), need)
        if patience is not None:
            ask.patience = patience
        return ask

    def _repaired(self, row: str, answers: Answers) -> Coordinating[Found]:
        first = answers[0][1]
        if all(found == first for _, found in answers):
            return cast("Found", first)
        together = merged([found for _, found in answers])
        behind = {replica.number: lack for replica, found in answers if (lack := lacking(together, found))}
        if behind:
            targets = [replica for replica, _ in answers if replica.number in behind]
            repaired: Answers = yield Ask(
                targets, lambda replica: replica.write(row, behind[replica.number]), len(targets), writes=True
            )
            if len(repaired) < len(targets):
                raise TimedOut
        return together

    def decide(self, home: Replica, row: str, asking: Asking, *, deciding: Deciding = never) -> Coordinating[Found]:
        """Single-decree Paxos on one row; returns the cells that the condition read, after changing them if it held.

        Without a condition it is a serial read. TimedOut leaves open what was or will be changed.
        """
        began = self._network.timeline.now
        ballot, pause = home.next_ballot(), 0
        while self._network.timeline.now < began + _CONTENTION:
            preparing = partial(Replica.prepare, row=row, ballot=ballot, asking=asking, writing=deciding is not never)
            answers: Answers = yield Ask(self._up(), preparing, self.quorum, _promised, writes=True)
            promises = [(replica, answer) for replica, answer in answers if isinstance(answer, Promise)]
            beyond = max((answer for _, answer in answers if not isinstance(answer, Promise)), default=None)
            if len(promises) < self.quorum and beyond is None:
                raise TimedOut
            found = yield from self._with_promises(
                home, row, promises, mine=Decision(ballot, {}, ballot), deciding=deciding
            )
            if found is not None:
                return found
            pause += _BACK_OFF
            yield Later(int(self._chance.random() * pause))
            ballot = home.next_ballot(beyond or ballot)
        raise TimedOut

    def _with_promises(
        self, home: Replica, row: str, promises: Answers, *, mine: Decision, deciding: Deciding
    ) -> Coordinating[Found | None]:
        """Finish what another coordinator began; otherwise check the condition, propose and commit.

        None: begin anew with a later ballot.
        """
        if len(promises) < self.quorum:
            return None
        newest = max((promise.committed for _, promise in promises), key=lambda decision: decision.ballot)
        begun = max((promise.accepted for _, promise in promises), key=lambda decision: decision.ballot)
        if begun.ballot > newest.ballot and begun.changes:
            again = Decision(mine.ballot, self._stamped(begun, mine), begun.origin)
            yield from self._propose(home, row, again)
            return None
        yield from self._refresh(row, promises, newest)
        found = merged([promise.found for _, promise in promises])
        missing = {name: cell for name, cell in newest.changes.items() if name in found and found[name] < cell}
        if missing or any(promise.committed.ballot != newest.ballot for _, promise in promises):
            return None
        changes = deciding(found, mine.ballot)
        if changes is None and all(promise.stable for _, promise in promises):
            return found
        # Proposed even if it is empty: otherwise what another coordinator had accepted unseen could still be decided.
        proposal = Decision(mine.ballot, changes or {}, mine.ballot)
        return found if (yield from self._propose(home, row, proposal)) else None

    def _stamped(self, begun: Decision, mine: Decision) -> Changes:
        """The changes that another coordinator began, with new stamps or the old ones: servers have done either."""
        if not self._network.weather.stamped_anew:
            return begun.changes
        later = mine.ballot.moment - begun.ballot.moment
        return {name: cell._replace(stamp=cell.stamp + later) for name, cell in begun.changes.items()}

    @staticmethod
    def _refresh(row: str, promises: Answers, newest: Decision) -> Coordinating[None]:
        """Bring the replicas that promised up to the newest commit."""
        behind = [replica for replica, promise in promises if promise.committed.ballot != newest.ballot]
        if behind:
            answers: Answers = yield Ask(behind, lambda replica: replica.commit(row, newest), len(behind), writes=True)
            if len(answers) < len(behind):
                raise TimedOut

    def _propose(self, home: Replica, row: str, proposal: Decision) -> Coordinating[bool]:
        """Whether a proposal was accepted and committed at quorum; False only if no replica has or will accept it."""
        witness = self._witness

        def does(replica: Replica) -> object:
            answer = replica.propose(row, proposal)
            if answer is True and proposal.changes:
                witness(row, proposal, replica)
            return answer

        up = self._up()
        answers: Answers = yield Ask(up, does, self.quorum, lambda answer: answer is True, writes=True)
        accepted = sum(answer is True for _, answer in answers)
        if accepted >= self.quorum:
            if proposal.changes:
                yield from self._commit(home, row, proposal)
            return True
        if not accepted and len(answers) == len(self._replicas):
            return False
        raise TimedOut

    def _commit(self, home: Replica, row: str, decided: Decision) -> Coordinating[None]:
        ask = self._writing(home, row, decided.changes, up=[replica for replica in self._replicas if replica.up])
        ask.does = lambda replica: replica.commit(row, decided)
        answers: Answers = yield ask
        if len(answers) < self.quorum:
            raise TimedOut


def _promised(answer: object) -> bool:
    return isinstance(answer, Promise)
