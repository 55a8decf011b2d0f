"""Any sequence of sends, claims, settles and expiries by three processes: the row is right after every step."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown
from astyqueue.ids import Id
from astyqueue.protocol.claiming.claim import Claim, claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import SCANS
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Commit, run
from astyqueue.store import Store
from astyqueue.testing import Failing
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, picture
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, put_at

NAMES = ("ann", "bob", "cyd")
GROUPS = (None, "a", "b")
LATE = (0, 0, 0, 3 * SECOND, 40 * SECOND)
OUTCOMES: tuple[Callable[[int], Outcome], ...] = (
    lambda _: ACK,
    lambda _: ACK,
    lambda _: Reject("rejected", "no", 1),
    lambda now: Extend(now + 2 * LEASE),
    lambda now: Release(now, 0),
    lambda now: Release(now + 5 * SECOND, 1),
    lambda now: Release(now + 3 * LEASE, 1),
)


class Play:
    """Three processes, each with what it sees and what it holds."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.snapshots = {name: RowSnapshot(ROW, 1) for name in NAMES}
        self.held: dict[str, list[Claim]] = {name: [] for name in NAMES}
        self.acked: set[Id] = set()
        self.buried: set[Id] = set()
        self.numbers = iter(range(1 << 30))

    def send(self, late: int, group: str | None) -> None:
        """A message that lands as long after its id's time as producers do."""
        number = next(self.numbers)
        moment = self.scene.now - late - number
        put = put_at(moment, number % 200) if group is None else put_at(moment, number % 200, group=group)
        self.scene.put(put)
        self.scene.sent.append(put.name.id)

    def take(self, name: str, want: int, store: Store, settling: tuple[SettleRequest, ...] = ()) -> None:
        order = ClaimRequest(want, LEASE, ATTEMPTS, sum(len(taken.held) for taken in self.held[name]))
        claimed = run(claim(self.scene.process(name), self.snapshots[name], order, settling=settling), store)
        self.held[name] += claimed.claims
        for settlement in settling:
            self.note(settlement.outcomes, claimed.settled[settlement.timer.name])

    def settle(self, name: str, outcome: Outcome, store: Store, *, alone: bool) -> None:
        """Settle the oldest claim: its first message alone, or all of it, in one commit with the next claim."""
        if not self.held[name]:
            return
        taken = self.held[name].pop(0)
        chosen = {held.entry.id: outcome for held in (taken.held[:1] if alone else taken.held)}
        if not alone:
            self.take(name, 3, store, (SettleRequest(taken.timer, chosen),))
            return
        settled = run(settle(self.scene.process(name), ROW, SettleRequest(taken.timer, chosen)), store)
        for settle_plan in settled.done:
            self.snapshots[name].settled(settle_plan.timer_change)
        self.note(chosen, settled)

    def note(self, outcomes: object, settled: SettleResult) -> None:
        assert isinstance(outcomes, dict)
        done = {id_: outcome for id_, outcome in outcomes.items() if id_ not in settled.lost}
        self.acked |= {id_ for id_, outcome in done.items() if outcome is ACK}

    def corrupt(self, name: str, *, known: bool) -> None:
        """Let a process forget its cursors, or all it knows; that costs reads and nothing else."""
        snapshot = self.snapshots[name]
        if known:
            snapshot.scans.cursors = [[ids.LEAST] * SCANS for _ in snapshot.scans.cursors]
            snapshot.forget_dead()
        else:
            snapshot.forget()

    def require(self) -> None:
        self.scene.store.require_lawful()
        now = picture(self.scene.store)
        assert self.acked <= self.scene.store.gone
        assert set(self.scene.sent) == now.messages | self.scene.store.gone
        assert (now.header.version if now.header else 0) == self.scene.store.raised

    def require_an_end(self) -> None:
        there = picture(self.scene.store).messages
        again = self.scene.everything_again()
        assert set(again) == there - picture(self.scene.store).dead
        assert not self.acked & set(again)
        self.scene.store.require_lawful()


def played(play: Play, step: tuple[str, str, int, int]) -> None:
    """One step: what is done, by whom, how, and what the store does to its first commit."""
    what, name, how, fate = step
    unknown = OutcomeUnknown("no answer")
    store: Store = (
        Failing(play.scene.store, unknown, of=(Commit,), applied=fate == 1) if fate in (1, 2) else play.scene.store
    )
    match what:
        case "send":
            play.send(LATE[how % len(LATE)], GROUPS[fate % len(GROUPS)])
        case "claim":
            play.take(name, how, store)
        case "settle" | "join":
            play.settle(name, OUTCOMES[how % len(OUTCOMES)](play.scene.now), store, alone=what == "settle")
        case "wait":
            play.scene.clock.advance((0.6, 2, 5, 11, 31, 95, 700)[how % 7])
        case "refresh":
            play.scene.survey(play.snapshots[name])
        case _:
            play.corrupt(name, known=how % 2 == 1)


WHAT = ("send", "send", "send", "claim", "claim", "settle", "settle", "join", "wait", "wait", "refresh", "corrupt")
STEPS = some.lists(
    some.tuples(some.sampled_from(WHAT), some.sampled_from(NAMES), some.integers(0, 6), some.integers(0, 9)),
    min_size=5,
    max_size=60,
)


@settings(
    max_examples=120, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(STEPS)
def test_every_live_message_is_in_one_place_and_the_floor_is_below_every_timer(
    steps: list[tuple[str, str, int, int]],
) -> None:
    play = Play()
    for step in steps:
        played(play, step)
        play.require()
    play.require_an_end()
