"""A coordinator: quorum writes with hints, quorum reads with read repair, and Paxos for conditional changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.simulation.cassandra.network import PATIENCE, Answers, Coordinating, Delay, Network, QuorumRequest
from tests.simulation.cassandra.replica import Ballot, Decision, Hint, Promise, Replica, Selection
from tests.simulation.cassandra.storage import Changes, Found, lacking, merged

#: How long a coordinator tries while others contend with it.
_CONTENTION: Final = 1_800_000
_BACK_OFF: Final = 4_000
#: After this long without a quorum of answers, the request goes to further replicas as well.
_ASK_OTHERS: Final = 50_000


class TooFew(Exception):
    """Too few replicas are known to be up; nothing was tried."""


class TimedOut(Exception):
    """Too few replicas answered in time."""


#: Returns the changes, given the cells that a condition reads and the ballot; None: the condition does not hold.
Condition = Callable[[Found, Ballot], Changes | None]
#: Called when a replica accepts a proposal for a row for good.
AcceptRecorder = Callable[[str, Decision, Replica], None]


def never(_found: Found, _ballot: Ballot) -> None:
    """A condition that never holds: the request is a serial read."""


class Coordinator:
    """Carries out requests for one row at a time, on whichever node they reach."""

    def __init__(
        self, network: Network, replicas: list[Replica], *, record_accept: AcceptRecorder, rng: random.Random
    ) -> None:
        """Every replica has every row; a majority is a quorum."""
        self.quorum = len(replicas) // 2 + 1
        self._network = network
        self._replicas = replicas
        self._record_accept = record_accept
        self._rng = rng

    def _up(self) -> list[Replica]:
        up = [replica for replica in self._replicas if replica.up]
        if len(up) < self.quorum:
            raise TooFew
        return up

    def _shuffled(self) -> list[Replica]:
        """The replicas that are up, in random order."""
        up, rng = self._up(), self._rng.random
        return sorted(up, key=lambda _: rng())

    def write(self, local: Replica, row: str, changes: Changes) -> Coordinating[None]:
        """Write at quorum; a replica that misses it gets a hint later."""
        answers: Answers = yield self._writing(local, row, changes, up=self._up())
        if len(answers) < self.quorum:
            raise TimedOut

    def _writing(self, local: Replica, row: str, changes: Changes, *, up: list[Replica]) -> QuorumRequest:
        def missed(replica: Replica) -> None:
            local.hints.append(Hint(replica.number, row, changes, local.clock.now()))

        for replica in self._replicas if len(up) < len(self._replicas) else ():
            if replica not in up:
                missed(replica)
        return QuorumRequest(up, lambda replica: replica.write(row, changes), self.quorum, missed=missed, writes=True)

    def read(self, row: str, selection: Selection) -> Coordinating[Found]:
        """The merged cells of a quorum; those of its replicas that lack some are repaired before this returns."""
        up = self._shuffled()
        first, others = up[: self.quorum], up[self.quorum :]

        def read(replica: Replica) -> Found:
            return selection(replica.row(row))

        patience = _ASK_OTHERS if others else PATIENCE
        answers: Answers = yield QuorumRequest(first, read, self.quorum, patience=patience)
        if len(answers) < self.quorum and others:
            more: Answers = yield QuorumRequest(others, read, self.quorum - len(answers))
            answers += more
        if len(answers) < self.quorum:
            raise TimedOut
        found: Found = answers[0][1]
        for _, other in answers:
            if other != found:
                return (yield from self._repaired(row, answers))
        return found

    def _repaired(self, row: str, answers: Answers) -> Coordinating[Found]:
        together = merged([found for _, found in answers])
        behind = {replica.number: lack for replica, found in answers if (lack := lacking(together, found))}
        if behind:
            targets = [replica for replica, _ in answers if replica.number in behind]
            repaired: Answers = yield QuorumRequest(
                targets, lambda replica: replica.write(row, behind[replica.number]), len(targets), writes=True
            )
            if len(repaired) < len(targets):
                raise TimedOut
        return together

    def decide(
        self, local: Replica, row: str, selection: Selection, *, condition: Condition = never
    ) -> Coordinating[Found]:
        """Single-decree Paxos on one row; returns the cells that the condition read, after changing them if it held.

        Without a condition it is a serial read. TimedOut leaves open what was or will be changed.
        """
        began = self._network.event_loop.now
        ballot, pause = local.next_ballot(), 0
        while self._network.event_loop.now < began + _CONTENTION:
            preparing = partial(
                Replica.prepare, row=row, ballot=ballot, selection=selection, writing=condition is not never
            )
            answers: Answers = yield QuorumRequest(self._up(), preparing, self.quorum, counts=_promised, writes=True)
            promises = [(replica, answer) for replica, answer in answers if isinstance(answer, Promise)]
            beyond = max((answer for _, answer in answers if not isinstance(answer, Promise)), default=None)
            if len(promises) < self.quorum and beyond is None:
                raise TimedOut
            found = yield from self._with_promises(
                local, row, promises, mine=Decision(ballot, {}, ballot), condition=condition
            )
            if found is not None:
                return found
            pause += _BACK_OFF
            yield Delay(int(self._rng.random() * pause))
            ballot = local.next_ballot(beyond or ballot)
        raise TimedOut

    def _with_promises(
        self, local: Replica, row: str, promises: Answers, *, mine: Decision, condition: Condition
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
            yield from self._propose(local, row, again)
            return None
        yield from self._refresh(row, promises, newest)
        found = merged([promise.found for _, promise in promises])
        missing = {name: cell for name, cell in newest.changes.items() if name in found and found[name] < cell}
        if missing or any(promise.committed.ballot != newest.ballot for _, promise in promises):
            return None
        changes = condition(found, mine.ballot)
        if changes is None and all(promise.stable for _, promise in promises):
            return found
        # Proposed even if it is empty: otherwise what another coordinator had accepted unseen could still be decided.
        proposal = Decision(mine.ballot, changes or {}, mine.ballot)
        return found if (yield from self._propose(local, row, proposal)) else None

    def _stamped(self, begun: Decision, mine: Decision) -> Changes:
        """The changes that another coordinator began, with new stamps or the old ones: servers have done either."""
        if not self._network.profile.restamps:
            return begun.changes
        later = mine.ballot.moment - begun.ballot.moment
        return {name: cell._replace(stamp=cell.stamp + later) for name, cell in begun.changes.items()}

    @staticmethod
    def _refresh(row: str, promises: Answers, newest: Decision) -> Coordinating[None]:
        """Bring the replicas that promised up to the newest commit."""
        behind = [replica for replica, promise in promises if promise.committed.ballot != newest.ballot]
        if behind:
            answers: Answers = yield QuorumRequest(
                behind, lambda replica: replica.commit(row, newest), len(behind), writes=True
            )
            if len(answers) < len(behind):
                raise TimedOut

    def _propose(self, local: Replica, row: str, proposal: Decision) -> Coordinating[bool]:
        """Whether a proposal was accepted and committed at quorum; False only if no replica has or will accept it."""
        record_accept = self._record_accept

        def action(replica: Replica) -> object:
            answer = replica.propose(row, proposal)
            if answer is True and proposal.changes:
                record_accept(row, proposal, replica)
            return answer

        up = self._up()
        answers: Answers = yield QuorumRequest(up, action, self.quorum, counts=_accepted, writes=True)
        accepted = sum(answer is True for _, answer in answers)
        if accepted >= self.quorum:
            if proposal.changes:
                yield from self._commit(local, row, proposal)
            return True
        if not accepted and len(answers) == len(self._replicas):
            return False
        raise TimedOut

    def _commit(self, local: Replica, row: str, decided: Decision) -> Coordinating[None]:
        ask = self._writing(local, row, decided.changes, up=[replica for replica in self._replicas if replica.up])
        ask.action = lambda replica: replica.commit(row, decided)
        answers: Answers = yield ask
        if len(answers) < self.quorum:
            raise TimedOut


def _promised(answer: object) -> bool:
    return isinstance(answer, Promise)


def _accepted(answer: object) -> bool:
    return answer is True
