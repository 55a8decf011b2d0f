"""Messages of one group in a row: at most one is under way, in order, whoever claims."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue.ids import Id
from astyqueue.model.envelope import Envelope, MessageId, encode
from astyqueue.protocol.admin.dead_letters import redrive
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.claiming.claim import ClaimResult, claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import State, message_name
from astyqueue.protocol.row.group_index import MOST_BLOCKED
from astyqueue.protocol.row.rescan import list_stranded
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.idempotent import idempotent_message, send_idempotent
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Commit, Request, run
from astyqueue.store import Store
from astyqueue.testing import Faulty, Recording
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.stage import Meddling, Stage
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, put_at


def handed(claimed: ClaimResult) -> list[Id]:
    return [held.entry.id for taken in claimed.claims for held in taken.held]


def blocked(scene: Scene) -> list[Id]:
    timers = picture(scene.store).timers
    return sorted(entry.id for timer in timers if timer.state == State.BLOCKED for entry in timer.entries)


def settled(scene: Scene, claimed: ClaimResult, outcome: Outcome, *, snapshot: RowSnapshot | None = None) -> None:
    [taken] = claimed.claims
    outcomes = {held.entry.id: outcome for held in taken.held}
    assert scene.settle(taken, outcomes, snapshot=snapshot).lost == []


def one_group(messages: int) -> Scene:
    scene = Scene()
    scene.sent = scene.send(messages, group="a")
    return scene


def test_two_processes_get_the_messages_of_a_group_one_after_the_other_in_order() -> None:
    scene = one_group(5)
    order: list[Id] = []
    for number in range(5):
        first, second = ("ann", "bob") if number % 2 else ("bob", "ann")
        claimed = scene.do(first)
        assert handed(scene.do(second)) == [], "the message before it is leased"
        order += handed(claimed)
        settled(scene, claimed, ACK)
    assert order == scene.sent
    assert blocked(scene) == []
    scene.store.require_lawful()


def test_a_message_that_is_put_off_because_its_senders_clock_is_far_ahead_stays_the_first_of_its_group() -> None:
    stage = Stage()
    now = stage.clock.now()
    envelope = Envelope(now + 7_200 * SECOND, 0, None, None, None, None, None, None, group="a")
    ahead = stage.put(encode(envelope, b"1"), now)
    after = stage.send(group="a")
    order: list[Id] = []
    for claimed in (0, 0, 1, 1):
        taken = stage.claim(10)
        assert len(taken) == claimed
        for one in taken:
            order += [held.entry.id for held in one.held]
            stage.settle(one, ACK)
        stage.clock.advance("40m")
    assert order == [ahead.id, after.id]


def test_a_claim_takes_one_message_of_each_group_and_all_that_have_none() -> None:
    scene = Scene()
    puts = [put_at(scene.now, number, group=group) for number, group in enumerate(["a", "b", "a", None, "b", None])]
    scene.put(*puts)
    names = [put.name.id for put in puts]
    assert sorted(handed(scene.do("ann"))) == [names[0], names[1], names[3], names[5]]
    assert blocked(scene) == [names[2], names[4]]
    scene.store.require_lawful()


def test_blocked_messages_take_no_room_from_those_behind_them() -> None:
    scene = one_group(150)
    assert handed(scene.do("ann", want=1)) == scene.sent[:1]
    other = put_at(scene.now, 200, group="b")
    scene.put(other)
    claimed = scene.do("bob", want=1)
    assert handed(claimed) == [other.name.id]
    assert blocked(scene) == scene.sent[1:]


def test_a_message_that_backs_off_keeps_its_group_waiting_until_it_has_ended() -> None:
    scene = one_group(3)
    settled(scene, scene.do("ann"), Release(scene.now + 20 * SECOND, 1))
    assert handed(scene.do("bob")) == []
    scene.clock.advance(20)
    again = scene.do("bob")
    assert handed(again) == scene.sent[:1]
    settled(scene, again, ACK)
    assert handed(scene.do("ann")) == scene.sent[1:2]
    scene.store.require_lawful()


def test_a_message_given_back_with_a_mark_keeps_its_group_waiting() -> None:
    """A release before the end of the lease whose header commit is refused leaves a mark in the timer."""
    scene = one_group(2)
    [taken] = scene.do("ann").claims
    outcomes: dict[Id, Outcome] = {taken.held[0].entry.id: Release(scene.now + 10 * SECOND, 1)}
    scene.put(put_at(scene.now, 9))
    store = Meanwhile(scene.store, lambda: scene.do("eve"), at=2)
    run(settle(scene.process("ann"), ROW, SettleRequest(taken.timer, outcomes)), store)
    assert sum(len(timer.marks) for timer in picture(scene.store).timers) == 1
    assert handed(scene.do("bob")) == []
    scene.clock.advance(10)
    assert handed(scene.do("bob")) == [taken.held[0].entry.id]
    scene.store.require_lawful()


def test_the_message_whose_lease_expired_comes_again_before_all_others_of_its_group() -> None:
    scene = one_group(3)
    scene.do("ann")
    assert handed(scene.do("bob")) == []
    scene.clock.advance(31)
    again = scene.do("bob")
    assert handed(again) == scene.sent[:1]
    assert again.claims[0].held[0].entry.spent == 1
    scene.store.require_lawful()


def test_a_message_of_higher_priority_waits_for_the_one_that_is_under_way_and_then_comes_first() -> None:
    scene = Scene()
    low = [put_at(scene.now, number, group="a") for number in range(2)]
    scene.put(*low)
    snapshot = RowSnapshot(ROW, 2)
    first = scene.do("ann", snapshot=snapshot)
    high = put_at(scene.now, 5, priority=1, group="a")
    scene.put(high)
    scene.clock.advance(31)
    again = scene.do("ann", snapshot=snapshot)
    assert handed(first) == handed(again) == [low[0].name.id]
    settled(scene, again, ACK, snapshot=snapshot)
    assert handed(scene.do("ann", snapshot=snapshot)) == [high.name.id]


def test_a_dead_letter_frees_its_group() -> None:
    scene = one_group(2)
    settled(scene, scene.do("ann"), Reject("rejected", "of no use", 1))
    assert handed(scene.do("bob")) == scene.sent[1:]


def test_a_message_whose_attempts_are_used_up_frees_its_group() -> None:
    scene = one_group(2)
    for _ in range(ATTEMPTS):
        assert handed(scene.do("ann", want=1)) == scene.sent[:1]
        scene.clock.advance(31)
    last = scene.do("ann", want=1)
    assert (last.dead, last.more) == (1, True)
    assert handed(scene.do("ann", want=1)) == scene.sent[1:]


def test_deleting_the_leased_message_of_a_group_frees_it() -> None:
    scene = one_group(2)
    snapshot = RowSnapshot(ROW, 1)
    scene.do("ann")
    assert handed(scene.do("bob", snapshot=snapshot)) == []
    assert run(delete(scene.process("cyd"), MessageId(ROW, 0, scene.sent[0])), scene.store)
    scene.survey(snapshot)
    assert handed(scene.do("bob", snapshot=snapshot)) == scene.sent[1:]


def test_an_expired_message_is_dead_lettered_while_another_one_of_its_group_is_under_way() -> None:
    scene = one_group(1)
    scene.do("ann")
    scene.clock.advance(2)
    [late] = scene.send(1, group="a", expires=scene.now + SECOND)
    scene.clock.advance(2)
    assert scene.do("bob").dead == 1
    assert picture(scene.store).dead == {late}


def test_a_late_message_waits_its_turn_and_comes_before_the_later_ones() -> None:
    scene = Scene()
    scene.clock.advance("1h")
    late = put_at(scene.now - 1800 * SECOND, group="a")
    scene.sent = scene.send(2, group="a")
    first = scene.do("ann")
    scene.put(late)
    assert run(list_stranded(scene.process("cyd"), ROW, [late.name]), scene.store) == 1
    assert handed(scene.do("bob")) == []
    assert blocked(scene) == [late.name.id, scene.sent[1]]
    settled(scene, first, ACK)
    assert handed(scene.do("bob")) == [late.name.id]
    scene.store.require_lawful()


def test_a_claim_that_was_refused_looks_again_for_messages_of_a_group_that_landed_late() -> None:
    scene = Scene(messages=1)
    snapshot = RowSnapshot(ROW, 1)
    scene.do("ann", snapshot=snapshot)
    late = put_at(scene.now - SECOND, group="a")
    scene.clock.advance(1)
    later, other = scene.send(2, group="a")
    scene.put(late)
    deletes = Meddling(scene.store, [lambda: run(delete(scene.process("cyd"), MessageId(ROW, 0, other)), scene.store)])
    claimed = run(claim(scene.process("ann"), snapshot, ClaimRequest(1, LEASE, ATTEMPTS)), deletes)
    assert claimed.refused == 1
    assert handed(claimed) == [late.name.id]
    settled(scene, claimed, ACK, snapshot=snapshot)
    assert handed(scene.do("ann", snapshot=snapshot)) == [later]


@pytest.mark.parametrize("want", [0, 1])
def test_a_late_message_for_which_a_claim_had_no_room_comes_before_the_later_ones_of_its_group(want: int) -> None:
    scene = Scene(messages=1)
    snapshot = RowSnapshot(ROW, 1)
    scene.do("ann", snapshot=snapshot)
    other, late = put_at(scene.now - SECOND, 1, group="b"), put_at(scene.now - SECOND, 2, group="a")
    scene.clock.advance(1)
    scene.send(1, group="a")
    scene.put(*[other, late][1 - want :])
    claimed = scene.do("ann", snapshot=snapshot, want=want)
    assert handed(claimed) == [other.name.id][:want]
    for _ in claimed.claims:
        settled(scene, claimed, ACK, snapshot=snapshot)
    assert handed(scene.do("ann", snapshot=snapshot, want=1)) == [late.name.id]


def test_a_late_message_for_whose_bytes_a_claim_had_no_room_comes_before_the_later_ones_of_its_group() -> None:
    scene, snapshot = Scene(), RowSnapshot(ROW, 1)
    large = {"x": "y" * 1_500_000}
    scene.put(put_at(scene.now, headers=large))
    settled(scene, scene.do("ann", snapshot=snapshot), ACK, snapshot=snapshot)
    late = [put_at(scene.now - SECOND, n, headers=large, group="a" if n == 3 else None) for n in range(4)]
    scene.clock.advance(1)
    scene.send(1, group="a")
    scene.put(*late)
    order: list[Id] = []
    while claimed := handed(last := scene.do("ann", snapshot=snapshot, want=10)):
        order += claimed
        settled(scene, last, ACK, snapshot=snapshot)
    assert order[:4] == [put.name.id for put in late]


def test_a_message_that_was_listed_before_a_scan_met_it_comes_after_the_earlier_ones_of_its_group() -> None:
    """So does one that a spool forwards, or that was sent slowly, after a plain send."""
    scene = one_group(3)
    run(list_stranded(scene.process("cyd"), ROW, [message_name(0, id_) for id_ in scene.sent[1:]]), scene.store)
    order: list[Id] = []
    for _ in range(3):
        claimed = scene.do("ann", want=1)
        order += handed(claimed)
        settled(scene, claimed, ACK)
    assert order == scene.sent
    assert blocked(scene) == []
    scene.store.require_lawful()


def test_a_listed_message_of_a_busy_group_is_not_listed_as_blocked_before_the_scan_has_met_those_before_it() -> None:
    scene = one_group(1)
    first = scene.do("ann", want=1)
    scene.clock.advance(1)
    [second, third] = [put_at(scene.now, number, group="a") for number in range(2)]
    scene.put(second, third)
    run(list_stranded(scene.process("cyd"), ROW, [third.name]), scene.store)
    assert handed(scene.do("bob", want=1)) == []
    settled(scene, first, ACK)
    assert handed(scene.do("bob", want=1)) == [second.name.id]
    scene.store.require_lawful()


def test_a_redriven_message_waits_its_turn() -> None:
    scene = one_group(3)
    settled(scene, scene.do("ann"), Reject("rejected", "of no use", 1))
    second = scene.do("bob")
    run(redrive(scene.process("cyd"), [MessageId(ROW, 0, scene.sent[0])]), scene.store)
    assert handed(scene.do("ann")) == []
    settled(scene, second, ACK)
    assert handed(scene.do("ann")) == scene.sent[:1], "it is earlier than the third"
    scene.store.require_lawful()


def test_idempotent_sends_keep_the_order_of_their_group() -> None:
    scene = Scene()
    puts = [put_at(scene.now - SECOND, number, group="a") for number in range(30)]
    wanted = [idempotent_message(put.value, 0, put.name.id) for put in puts]
    run(send_idempotent(scene.process("cyd"), ROW, wanted), scene.store)
    order: list[Id] = []
    for _ in puts:
        claimed = scene.do("ann", want=4)
        order += handed(claimed)
        settled(scene, claimed, ACK)
    assert order == [put.name.id for put in puts]
    scene.store.require_lawful()


def test_a_message_that_goes_at_most_once_blocks_nobody_and_keeps_the_order() -> None:
    scene = Scene()
    scene.sent = scene.send(3, group="a", lease=0)
    snapshot = RowSnapshot(ROW, 1)
    got = [[held.entry.id for held in scene.do("ann", snapshot=snapshot).at_most_once] for _ in range(3)]
    assert got == [[id_] for id_ in scene.sent]


def test_an_ack_and_the_claim_of_the_next_message_go_in_one_commit() -> None:
    scene = one_group(3)
    snapshot = RowSnapshot(ROW, 1)
    [taken] = scene.do("ann", snapshot=snapshot).claims
    for expected in scene.sent[1:]:
        store = Recording(scene.store)
        claimed = run(
            claim(
                scene.process("ann"),
                snapshot,
                ClaimRequest(1, LEASE, ATTEMPTS),
                settling=[SettleRequest(taken.timer, {taken.held[0].entry.id: ACK})],
            ),
            store,
        )
        assert handed(claimed) == [expected]
        assert len([request for request in store.requests if isinstance(request, Commit)]) == 1
        [taken] = claimed.claims
    scene.store.require_lawful()


def test_an_extended_lease_keeps_its_group_waiting() -> None:
    scene = one_group(2)
    first = scene.do("ann")
    settled(scene, first, Extend(scene.now + 3 * LEASE))
    scene.clock.advance(2 * LEASE // SECOND)
    assert handed(scene.do("bob")) == []


class BeforeCommit(Faulty):
    """Lets another process act once, before the first commit."""

    def __init__(self, store: Store, act: Callable[[], object]) -> None:
        super().__init__(store)
        self._acts = iter([act])

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and (act := next(self._acts, None)):
            act()
        return super().perform(request)


def test_a_message_that_is_blocked_as_the_one_before_it_is_acked_is_claimed_next() -> None:
    """The process that acked knew of no blocked message, and the other one may have heard its ring before."""
    scene = one_group(2)
    first, snapshot = scene.do("ann", want=1), RowSnapshot(ROW, 1)
    store = BeforeCommit(scene.store, lambda: settled(scene, first, ACK))
    claimed = run(claim(scene.process("bob"), snapshot, ClaimRequest(1, LEASE, ATTEMPTS)), store)
    assert (handed(claimed), blocked(scene), claimed.more) == ([], scene.sent[1:], True)
    assert handed(scene.do("bob", snapshot=snapshot, want=1)) == scene.sent[1:]


def many(scene: Scene, count: int, group: str, first: int = 0) -> list[Id]:
    """More messages of one moment than `put_at` can number."""
    names: list[Id] = []
    for number in range(first, first + count):
        put = put_at(scene.now, 0, group=group)
        name = put.name._replace(id=put.name.id[:13] + number.to_bytes(2) + b"\x01")
        scene.put(put._replace(name=name))
        names.append(name.id)
    return names


@pytest.mark.full
def test_no_more_than_a_thousand_messages_of_a_row_are_blocked_and_the_others_follow_them() -> None:
    scene = Scene()
    sent = many(scene, MOST_BLOCKED + 300, "a")
    snapshot = RowSnapshot(ROW, 1)
    order = handed(first := scene.do("ann", snapshot=snapshot, want=1))
    scanned = scene.do("bob", snapshot=snapshot, want=1)
    while scanned.more:
        scanned = scene.do("bob", snapshot=snapshot, want=1)
    assert blocked(scene) == sent[1 : MOST_BLOCKED + 1]
    before = scene.store.raised
    assert not scene.do("bob", snapshot=snapshot, want=1).more, "or the process would scan the row without an end"
    assert scene.store.raised == before
    settled(scene, first, ACK, snapshot=snapshot)
    for _ in range(150):
        claimed = scene.do("ann", snapshot=snapshot, want=1)
        order += handed(claimed)
        settled(scene, claimed, ACK, snapshot=snapshot)
    assert order == sent[:151]
    assert blocked(scene) == sent[151 : MOST_BLOCKED + 1], "the claims found work enough without the rest"
    scene.store.require_lawful()


def test_what_was_released_is_found_also_where_more_than_the_bound_is_listed_before_it() -> None:
    """Or a group would wait for its own message for ever."""
    scene = Scene()
    sent = many(scene, MOST_BLOCKED + 300, "a")
    first = scene.do("ann", want=1)
    scene.clock.advance("5m")  # for the rest of the row the cursors are lost
    run(list_stranded(scene.process("cyd"), ROW, [put_at(0).name._replace(id=id_) for id_ in sent[1:]]), scene.store)
    again = scene.do("ann", want=1)
    assert handed(again) == handed(first)
    settled(scene, again, Release(scene.now + 2 * SECOND, 1))
    for _ in range(MOST_BLOCKED):
        if not scene.do("ann", want=1).more:
            break
    scene.clock.advance(3)
    assert handed(scene.do("ann", want=1)) == handed(first)


def test_blocked_messages_that_came_one_by_one_share_timers() -> None:
    scene = one_group(1)
    snapshot = RowSnapshot(ROW, 1)
    scene.do("ann", snapshot=snapshot)
    for number in range(100):
        scene.put(put_at(scene.now, number + 1, group="a"))
        scene.do("ann", snapshot=snapshot)
    sizes = [len(timer.entries) for timer in picture(scene.store).timers if timer.state == State.BLOCKED]
    assert sum(sizes) == 100
    assert len(sizes) < 10
    scene.store.require_lawful()


def test_whoever_knows_only_the_header_sees_that_blocked_messages_may_be_free() -> None:
    scene = one_group(2)
    taken = scene.do("ann").claims[0]
    scene.do("bob")
    scene.acked(taken)
    header = picture(scene.store).header
    assert header is not None
    assert header.floor <= scene.now


def test_two_groups_without_one_are_encoded_as_before() -> None:
    scene = Scene(messages=2)
    [taken] = scene.do("ann").claims
    grouped = one_group(1).do("ann").claims[0].timer
    assert len(grouped.value) - len(taken.timer.value) == 8 - 19, "one entry less, and a group"
