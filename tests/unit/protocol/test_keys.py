"""Unique keys of one row: what could go wrong, each as the shortest story, and what their columns may look like."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue import ids
from astyqueue.errors import BadInput, OutcomeUnknown, StoreCorrupt, StoreUnavailable
from astyqueue.ids import Id
from astyqueue.model.schedule import Policies, Template
from astyqueue.protocol.admin.dead_letters import redrive
from astyqueue.protocol.admin.delete import clear, delete
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.coordination.doorbell import WANTED
from astyqueue.protocol.layout import unique_key
from astyqueue.protocol.layout.columns import Type, message_name
from astyqueue.protocol.layout.rows import doorbell_row
from astyqueue.protocol.layout.unique_key import (
    OF_SCHEDULE,
    KeyOwner,
    KeyOwningSchedule,
    SettleEffects,
    key_name,
    owned_keys,
)
from astyqueue.protocol.row.header_commit import COMMIT_TRIES, CommitLoop, CommitPlan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.schedule_commit import ScheduleHandle
from astyqueue.protocol.scheduling.schedule_definition import RequestedSchedule, save
from astyqueue.protocol.sending.unique import send_replacing, send_unique
from astyqueue.protocol.settling.outcomes import Ack, Reject
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Client, Commit, Request, Steps, run
from astyqueue.store import Batch, Committed, Expectation, Named, Put, Store
from astyqueue.testing import Failing, Faulty, Recording
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import Meanwhile, picture
from tests.unit.protocol.key_worlds import KEY, KeyScene, rejecting
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, acking


@pytest.fixture
def scene() -> KeyScene:
    return KeyScene()


class Late(Faulty):
    """The first commit is not answered, and arrives when the second is asked for.

    Then others act, and then the second is carried out.
    """

    def __init__(self, store: Store, others: object) -> None:
        super().__init__(store)
        self._others = others
        self._commits: list[Commit] = []

    def perform(self, request: Request) -> object:
        if not isinstance(request, Commit):
            return super().perform(request)
        self._commits.append(request)
        if len(self._commits) == 1:
            message = "the request is still on its way"
            raise OutcomeUnknown(message)
        if len(self._commits) == 2:
            super().perform(self._commits[0])
            self._others()  # type: ignore[operator]  # a callable
        return super().perform(request)


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.every_store
def test_a_send_whose_first_try_comes_late_and_is_done_with_is_not_sent_twice(
    scene: KeyScene, *, replaces: bool
) -> None:
    def others() -> None:
        for taken in scene.do("ann").claims:
            scene.acked(taken)

    wanted = scene.keyed("pat")
    process = scene.process("pat")
    sending = (
        send_replacing(process, scene.row, wanted, keeps_due=False)
        if replaces
        else send_unique(process, scene.row, [wanted])
    )
    with pytest.raises(OutcomeUnknown):
        run(sending, Late(scene.store, others))
    assert wanted.id in scene.store.gone
    assert not scene.everything_again()
    scene.store.require_lawful()


class Delayed(Faulty):
    """The first commit is not answered and not yet carried out; then others act."""

    def __init__(self, store: Store, others: Callable[[], object]) -> None:
        super().__init__(store)
        self._others = others
        self.delayed: list[Commit] = []

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and not self.delayed:
            self.delayed.append(request)
            self._others()
            message = "the request is still on its way"
            raise OutcomeUnknown(message)
        return super().perform(request)


def test_a_send_is_not_said_to_be_refused_while_its_first_commit_may_still_be_carried_out(scene: KeyScene) -> None:
    """The sender's clock is ahead, so the message that has the key looks expired.

    Then the clock is corrected, and the message is leased.
    """
    scene.held()
    ahead = [2 * LEASE]
    sender = Client("joe", lambda: scene.now + sum(ahead))
    store = Delayed(scene.store, ahead.clear)
    with pytest.raises(OutcomeUnknown):
        run(send_replacing(sender, scene.row, scene.keyed("joe"), keeps_due=False), store)
    [request] = store.delayed
    assert isinstance(scene.store.commit(request.batch, request.expects), Committed)


def test_a_commit_loop_does_not_end_with_nothing_to_do_while_its_first_commit_may_still_be_carried_out(
    scene: KeyScene,
) -> None:
    class Puts(CommitPlan):
        def was_done(self, row: str) -> Steps[bool]:
            yield from ()
            return bool(row == "")

    plans: list[CommitPlan | None] = [Puts(puts=[scene.keyed("pat").put]), None]

    def planning(_: RowSnapshot) -> Steps[CommitPlan | None]:
        yield from ()
        return plans.pop(0)

    with pytest.raises(OutcomeUnknown):
        run(CommitLoop(scene.process("ann"), RowSnapshot(scene.row, 1)).carry_out(planning), Delayed(scene.store, int))


def test_a_dead_letter_that_is_deleted_leaves_the_key_to_who_has_it_now(scene: KeyScene) -> None:
    letter = scene.buried()
    second = scene.has("sue")
    assert run(delete(scene.process("ann"), letter), scene.store)
    assert scene.owner() == second
    scene.store.require_lawful()


def test_a_message_that_dies_in_a_claim_leaves_its_key(scene: KeyScene) -> None:
    scene.has(expires=scene.now + SECOND)
    scene.clock.advance(1)
    assert scene.do("ann").dead == 1
    assert scene.owner() is None


@pytest.mark.parametrize("at", range(1, 9))
def test_a_clear_does_not_free_a_key_that_was_taken_anew_meanwhile(scene: KeyScene, at: int) -> None:
    taken = scene.held()

    def others() -> None:
        scene.acked(taken)
        scene.has("sue")

    store = Meanwhile(scene.store, others, at=at)
    run(clear(scene.process("cleo"), scene.row, 1), store)
    assert len(store.requests) >= at
    scene.store.require_lawful()


def test_an_ack_of_unknown_outcome_frees_no_key_of_a_message_that_was_claimed_again(scene: KeyScene) -> None:
    taken = scene.held()

    def others() -> None:
        scene.clock.advance(LEASE // SECOND)
        assert scene.do("bob").claims

    lost = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,))
    acks = {held.entry.id: acking(held) for held in taken.held}
    settled = run(
        settle(scene.process("eve"), scene.row, SettleRequest(taken.timer, acks)), Meanwhile(lost, others, at=2)
    )
    assert settled.lost == list(acks)
    assert scene.owner() == scene.sent[0]
    scene.store.require_lawful()


@pytest.mark.parametrize("replaces", [False, True])
def test_a_key_whose_message_is_gone_is_taken_over(scene: KeyScene, *, replaces: bool) -> None:
    dangling(scene, KeyOwner(KEY, 0, ids.at(scene.now)))
    wanted = scene.keyed("sue")
    process = scene.process("sue")
    if replaces:
        assert run(send_replacing(process, scene.row, wanted, keeps_due=True), scene.store).sent
    else:
        assert run(send_unique(process, scene.row, [wanted]), scene.store)[KEY].sent
    assert scene.owner() == wanted.id


def test_a_key_whose_message_is_dead_is_taken_over_and_not_by_its_redrive(scene: KeyScene) -> None:
    letter = scene.buried()
    dangling(scene, KeyOwner(KEY, 0, letter.id))
    second = scene.has("sue")
    assert run(redrive(scene.process("ann"), [letter]), scene.store).left == 1
    assert scene.owner() == second


def test_a_redrive_while_a_key_is_taken_over_lets_only_one_of_them_have_it(scene: KeyScene) -> None:
    letter = scene.buried()
    dangling(scene, KeyOwner(KEY, 0, letter.id))
    wanted = scene.keyed("sue")
    store = Meanwhile(scene.store, lambda: run(redrive(scene.process("ann"), [letter]), scene.store), at=3)
    assert not run(send_unique(scene.process("sue"), scene.row, [wanted]), store)[KEY].sent
    assert scene.owner() == letter.id


def dangling(scene: KeyScene, owner: KeyOwner) -> None:
    """A key that names a message which is not there, or dead: no commit of ours leaves such a one."""
    name = key_name(owner.key)
    scene.store.commit(Batch(scene.row, (Put(name, owner.encode()),)), (Expectation(name, None),))
    scene.store.wrong.clear()


@pytest.mark.every_store
def test_two_hundred_dead_letters_and_an_ack_of_a_hundred_keyed_messages_fit_into_commits(scene: KeyScene) -> None:
    many = [scene.keyed(f"{number}", key=f"key-{number}") for number in range(100)]
    run(send_unique(scene.process("pat"), scene.row, many), scene.store)
    taken = scene.do("ann", want=200).claims[0]
    assert len(taken.held) == 100
    for first in (100, 200):
        scene.clock.advance(1)
        stale = [
            scene.keyed(f"{first + number}", key=f"key-{first + number}", expires=scene.now + 1)
            for number in range(100)
        ]
        run(send_unique(scene.process("pat"), scene.row, stale), scene.store)
    scene.clock.advance(1)
    seen = Recording(scene.store)
    settling = [SettleRequest(taken.timer, {held.entry.id: acking(held) for held in taken.held})]
    snapshot = RowSnapshot(scene.row, 1)
    for _ in range(3):
        run(claim(scene.process("ann"), snapshot, ClaimRequest(200, LEASE, ATTEMPTS), settling=settling), seen)
        settling = []
    sizes = [
        len(request.batch.puts) + len(request.batch.deletes) for request in seen.requests if isinstance(request, Commit)
    ]
    assert max(sizes) <= 450
    assert not scene.columns(Type.KEY)
    assert len(picture(scene.store, scene.row).dead) == 200
    scene.store.require_lawful()


def test_a_claim_of_a_home_row_takes_half_as_many_for_each_has_a_key(scene: KeyScene) -> None:
    for first in (0, 100):
        many = [scene.keyed(f"{first + number}", key=f"key-{first + number}") for number in range(100)]
        run(send_unique(scene.process("pat"), scene.row, many), scene.store)
    claimed = scene.do("ann", want=200)
    assert [len(taken.held) for taken in claimed.claims] == [100]
    assert claimed.more


@pytest.mark.every_store
def test_one_commit_sends_many_and_leaves_those_whose_keys_are_taken(scene: KeyScene) -> None:
    there = scene.has("pat", key="b")
    wanted = [scene.keyed(f"sue-{key}", key=key) for key in "abc"]
    seen = Recording(scene.store)
    results = run(send_unique(scene.process("sue"), scene.row, wanted), seen)
    assert {key: (result.id.id, result.sent) for key, result in results.items()} == {
        "a": (wanted[0].id, True),
        "b": (there, False),
        "c": (wanted[2].id, True),
    }
    assert len([request for request in seen.requests if isinstance(request, Commit)]) == 1
    scene.store.require_lawful()


def test_a_send_raises_no_header_so_that_nobody_need_read_again(scene: KeyScene) -> None:
    snapshot = RowSnapshot(scene.row, 1)
    scene.do("ann", snapshot=snapshot, want=0)
    before = picture(scene.store, scene.row).header
    scene.has()
    assert picture(scene.store, scene.row).header == before
    assert scene.do("ann", snapshot=snapshot).refused == 0


def test_a_sender_who_is_crowded_out_asks_for_a_moment_and_ends_with_an_error(scene: KeyScene) -> None:
    def busy() -> None:
        scene.clock.advance(0.001)
        scene.send(1)
        scene.do("bob")

    store = Busy(scene.store, busy)
    with pytest.raises(StoreUnavailable, match=f"gave up after {COMMIT_TRIES} conflicts.*was not"):
        run(send_unique(scene.process("pat"), scene.row, [scene.keyed("pat")]), store)
    assert scene.store.read((Named(doorbell_row("tasks"), (WANTED,)),))[0]
    assert scene.owner() is None


class Busy(Faulty):
    """Another process commits before every commit."""

    def __init__(self, store: Store, others: object) -> None:
        super().__init__(store)
        self._others = others

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit):
            self._others()  # type: ignore[operator]  # a callable
        return super().perform(request)


def test_a_store_that_never_answers_is_asked_a_few_times_and_then_it_is_reported(scene: KeyScene) -> None:
    class Silent(Faulty):
        asked = 0

        def perform(self, request: Request) -> object:
            if isinstance(request, Commit):
                self.asked += 1
                raise OutcomeUnknown
            return super().perform(request)

    store = Silent(scene.store)
    with pytest.raises(OutcomeUnknown):
        run(send_unique(scene.process("pat"), scene.row, [scene.keyed("pat")]), store)
    assert store.asked == 5


def test_two_keys_of_one_hash_are_distinguished_and_the_second_is_refused_in_words(
    scene: KeyScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "of_text", lambda _: ids.first_at(7))
    scene.has("pat")
    with pytest.raises(BadInput, match="'welcome:bob' and 'welcome:ada' have the same hash"):
        run(send_unique(scene.process("sue"), scene.row, [scene.keyed("sue", key="welcome:bob")]), scene.store)


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"\x63newer", b"\x01\x00" + bytes(15), b"\x01\x00" + bytes(16) + b"\xff"),
        *(OF_SCHEDULE, OF_SCHEDULE + bytes(8), OF_SCHEDULE + bytes(8) + b"\xff"),
    ],
)
def test_a_key_that_cannot_be_read_is_neither_taken_nor_freed_and_stops_nobody_else(
    scene: KeyScene, value: bytes
) -> None:
    scene.has("pat", lease=0)
    name = key_name(KEY)
    scene.store.commit(Batch(scene.row, (Put(name, value),)), ())
    scene.clock.advance(0.001)
    other = scene.has("bob", key="another", due=scene.now + SECOND)
    assert [held.entry.id for held in scene.do("ann").at_most_once] == [scene.sent[0]]
    assert scene.store.read((Named(scene.row, (name,)),))[0][0].value == value
    with pytest.raises(StoreCorrupt, match="unique key cannot be read"):
        run(send_unique(scene.process("sue"), scene.row, [scene.keyed("sue")]), scene.store)
    assert message_name(0, other) in {column.name for column in scene.columns(Type.MESSAGE)}


@pytest.mark.parametrize("settles", [acking, rejecting])
@pytest.mark.every_store
def test_the_commit_that_settles_frees_the_key_and_expects_but_its_own_timer(scene: KeyScene, settles: object) -> None:
    taken = scene.held()
    seen = Recording(scene.store)
    outcomes = {held.entry.id: settles(held) for held in taken.held}  # type: ignore[operator]  # one or the other
    run(settle(scene.process("eve"), scene.row, SettleRequest(taken.timer, outcomes)), seen)
    [request] = seen.requests
    assert isinstance(request, Commit)
    assert [expected.name for expected in request.expects] == [taken.timer.name]
    assert key_name(KEY) in request.batch.deletes
    assert scene.owner() is None


def test_outcomes_with_what_goes_along_are_outcomes_of_their_kind() -> None:
    frees = SettleEffects(frees=key_name(KEY))
    assert isinstance(Ack(frees), Ack)
    assert Reject("failed", "", 1, frees).effects.frees == key_name(KEY)


def test_an_owner_is_read_as_it_was_written() -> None:
    id_: Id = ids.at(12_345)
    written = KeyOwner("clé:ä", 7, id_)
    assert unique_key.decode_owner("tasks:home:0", written.encode()) == written


def test_a_schedule_s_key_is_read_as_it_was_written_and_no_message_s_to_those_who_know_no_other() -> None:
    written = KeyOwningSchedule("clé:ä", "00ff" * 4)
    assert unique_key.decode_owner("tasks:home:0", written.encode()) == written
    assert written.encode()[:1] not in (b"", KeyOwner("k", 0, ids.at(1)).encode()[:1])


@pytest.mark.parametrize("nonce", ["00ff" * 4, None])
def test_a_key_whose_schedule_is_gone_or_another_one_is_taken_over(scene: KeyScene, nonce: str | None) -> None:
    """A release that knows nothing of such keys may have removed the schedule, or replaced it."""
    if nonce is not None:
        wanted = RequestedSchedule(Every("1h", delay="1h"), Template(b"1"), Policies.read("once", "allow", "go on"))
        run(save(ScheduleHandle(scene.process("maker"), scene.row, KEY), wanted, replaces=True), scene.store)
    scene.store.commit(Batch(scene.row, (Put(key_name(KEY), KeyOwningSchedule(KEY, nonce or "11" * 8).encode()),)), ())
    assert scene.owner() is None
    scene.has()
    assert scene.owner() is not None


@pytest.mark.parametrize("owner", [0, 1])
def test_of_two_messages_with_a_key_that_end_together_either_may_own_it(scene: KeyScene, owner: int) -> None:
    both = [ids.first_at(moment * SECOND) for moment in (1, 2)]
    name = key_name(KEY)
    scene.store.send(Batch("row", puts=(Put(name, KeyOwner(KEY, 0, both[owner]).encode()),)))
    going = {id_: SettleEffects(name) for id_ in both}
    assert [column.name for column in run(owned_keys("row", going), scene.store)] == [name]
