"""Looking without taking: one message, those that come next, and how many stand where."""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue.ids import LEAST
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import Counts, Found, Include, Standing
from astyqueue.protocol.admin.browse import counts, get, peek
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import State, Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Read, Request
from astyqueue.store import Slice
from astyqueue.testing import Recording
from astyqueue.units import SECOND
from tests.unit.protocol.stage import LEASE, ROW, Meddling, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def found(stage: Stage, message: MessageId) -> Found:
    seen = stage.run(get(stage.ann, message))
    assert seen is not None
    return seen


def peeked(stage: Stage, include: Include = Include.DUE, limit: int = 10) -> list[object]:
    return [one.body for one in stage.run(peek(stage.ann, [ROW], levels=stage.levels, limit=limit, include=include))]


def every_standing(stage: Stage) -> dict[Standing, MessageId]:
    """One message for each standing there is."""
    [dead] = stage.bury("dead")
    moments = {State.BACKING_OFF: 20, State.SNOOZED: 30, State.PARKED: 40}
    sent = {state: stage.send(state.name.lower()) for state in moments}
    leased = stage.send("in hand", group="a")
    blocked = stage.send("blocked", group="a")
    [taken] = stage.claim(5)
    for state, seconds in moments.items():
        stage.settle(taken, Release(stage.clock.now() + 2 * LEASE + seconds * SECOND, 1, state), sent[state])
    return {
        Standing.WAITING: stage.send("waiting"),
        Standing.DELAYED: stage.send("delayed", delay=500),
        Standing.IN_FLIGHT: leased,
        Standing.BACKING_OFF: sent[State.BACKING_OFF],
        Standing.SNOOZED: sent[State.SNOOZED],
        Standing.PARKED: sent[State.PARKED],
        Standing.BLOCKED: blocked,
        Standing.DEAD: dead,
    }


@pytest.mark.every_store
def test_each_message_is_found_where_it_stands(stage: Stage) -> None:
    messages = every_standing(stage)
    assert {standing: found(stage, message).standing for standing, message in messages.items()} == {
        each: each for each in Standing
    }


def test_a_message_that_is_not_there_is_not_found(stage: Stage) -> None:
    sent = stage.send()
    assert stage.run(get(stage.ann, MessageId("mail:4:4", 0, LEAST))) is None
    stage.run(delete(stage.ann, sent))
    assert stage.run(get(stage.ann, sent)) is None


def test_what_is_found_says_until_when_it_is_hidden_and_by_whom(stage: Stage) -> None:
    waiting, delayed = stage.send("a"), stage.send("b", delay=90)
    assert found(stage, waiting).until is None
    assert found(stage, delayed).as_json()["until"] == "2026-01-01T00:01:30.000000Z"
    stage.claim(1)
    seen = found(stage, waiting)
    assert (seen.body, seen.key, seen.holder, seen.hidden_until) == ("a", "a", "ann", stage.clock.now() + LEASE)
    shown = seen.as_json()
    assert (shown["standing"], shown["holder"], shown["until"]) == ("in_flight", "ann", "2026-01-01T00:01:00.000000Z")


def test_a_dead_message_says_why(stage: Stage) -> None:
    [dead] = stage.bury("a", reason="no such address")
    seen = found(stage, dead)
    assert (seen.standing, seen.reason, seen.spent, seen.body) == (Standing.DEAD, "no such address", 1, "a")


def test_a_message_that_cannot_be_read_is_found_with_its_bytes(stage: Stage) -> None:
    seen = found(stage, stage.put(b"\x05", stage.clock.now()))
    assert (seen.standing, seen.raw) == (Standing.WAITING, b"\x05")


def test_what_a_lease_hid_waits_again_once_the_lease_ran_out(stage: Stage) -> None:
    sent = stage.send()
    stage.claim(1)
    stage.clock.set(stage.clock.now() + LEASE - 1)
    assert (found(stage, sent).standing, stage.counts()) == (Standing.IN_FLIGHT, Counts(in_flight=1))
    stage.clock.set(stage.clock.now() + 1)
    assert (found(stage, sent).standing, found(stage, sent).until, stage.counts()) == (
        Standing.WAITING,
        None,
        Counts(waiting=1),
    )


def test_a_mark_counts_as_backing_off_until_its_own_time(stage: Stage) -> None:
    first, second = stage.send_many(2)
    [taken] = stage.claim(2)
    outcomes = {first.id: Release(stage.clock.now() + SECOND, 3)}
    stage.run(
        settle(stage.ann, ROW, SettleRequest(taken.timer, outcomes)),
        Meddling(stage.store, [partial(stage.run, delete(stage.bob, stage.send()))]),
    )
    assert (found(stage, first).standing, found(stage, first).spent) == (Standing.BACKING_OFF, 3)
    assert found(stage, first).hidden_until == stage.clock.now() + SECOND
    stage.clock.advance(1)
    assert (found(stage, first).standing, found(stage, second).standing) == (Standing.WAITING, Standing.IN_FLIGHT)


@pytest.mark.every_store
def test_counts_tell_how_many_stand_where(stage: Stage) -> None:
    every_standing(stage)
    stage.send("another")
    seen = stage.run(counts(stage.ann, [ROW], levels=1))
    assert seen.rows == {ROW: Counts(2, 1, 1, 1, 1, 1, 1, 1)}
    assert (seen.waiting, seen.blocked, seen.total) == (2, 1, 9)
    assert seen.as_json()["rows"] == {ROW: Counts(2, 1, 1, 1, 1, 1, 1, 1).as_json()}


def test_blocked_messages_are_peeked_with_the_hidden_ones(stage: Stage) -> None:
    for body in ("a", "b", "c"):
        stage.send(body, group="a")
    stage.claim(5)
    assert peeked(stage) == []
    assert peeked(stage, Include.HIDDEN) == ["b", "c", "a"]
    assert found(stage, stage.send("d", group="a")).group == "a"


def test_a_blocked_message_whose_group_is_free_waits_like_any_that_may_be_claimed(stage: Stage) -> None:
    for _ in range(3):
        stage.send(group="a")
    [taken] = stage.claim(5)
    assert stage.counts() == Counts(in_flight=1, blocked=2)
    stage.settle(taken, ACK)
    assert stage.counts() == Counts(waiting=1, blocked=1)


def test_counts_add_up_over_rows_and_priorities() -> None:
    stage = Stage(levels=2)
    for row, priority in ((ROW, 0), (ROW, 1), ("mail:0:1", 1)):
        stage.send(row=row, priority=priority)
    seen = stage.run(counts(stage.ann, [ROW, "mail:0:1", "mail:0:2"], levels=2))
    assert (seen.waiting, seen.total) == (3, 3)
    assert [each.total for each in seen.rows.values()] == [2, 1, 0]


def test_counts_go_beyond_one_page(stage: Stage) -> None:
    for _ in range(13):
        stage.bury(*map(str, range(100)))
    stage.send_many(2_100)
    stage.claim(150)
    assert stage.counts() == Counts(waiting=1_950, in_flight=150, dead=1_300)


def test_counts_read_only_names_of_messages(stage: Stage) -> None:
    every_standing(stage)
    recording = Recording(stage.store)
    stage.run(counts(stage.ann, [ROW], levels=1), recording)
    slices = [
        each
        for asked in recording.requests
        if isinstance(asked, Read)
        for each in asked.wanted
        if isinstance(each, Slice)
    ]
    assert {each.type for each in slices if each.values} == {Type.TIMER}
    assert all(each.limit for each in slices if each.type == Type.MESSAGE)


@pytest.mark.every_store
def test_what_landed_behind_the_head_is_counted_and_shown(stage: Stage) -> None:
    stage.send()
    stage.drain()
    late = stage.send("landed late", delay=-5)
    assert stage.counts() == Counts(waiting=1)
    assert peeked(stage) == ["landed late"]
    assert stage.run(delete(stage.bob, late))


def test_what_was_settled_long_ago_is_not_scanned(stage: Stage) -> None:
    snapshot = RowSnapshot(ROW, 1)
    stage.send_many(20)
    [taken] = stage.run(claim(stage.ann, snapshot, ClaimRequest(20, 3_600 * SECOND, 5))).claims
    stage.clock.advance(1_200)
    stage.send()
    for _ in range(2):
        stage.run(claim(stage.ann, snapshot, ClaimRequest(1, LEASE, 5)))
        stage.send("later")
    recording = Recording(stage.store)
    assert stage.run(counts(stage.ann, [ROW], levels=1), recording).in_flight == 22
    slices = [
        each
        for asked in recording.requests
        if isinstance(asked, Read)
        for each in asked.wanted
        if isinstance(each, Slice)
    ]
    assert all(each.after >= taken.held[-1].entry.id for each in slices if each.type == Type.MESSAGE)


def test_peek_shows_what_may_be_claimed_now_and_takes_none(stage: Stage) -> None:
    every_standing(stage)
    assert peeked(stage) == ["waiting"]
    assert peeked(stage) == ["waiting"]
    assert stage.counts().waiting == 1


def test_peek_shows_what_is_hidden_in_the_order_in_which_it_comes_back(stage: Stage) -> None:
    every_standing(stage)
    assert peeked(stage, Include.HIDDEN) == ["blocked", "in hand", "backing_off", "snoozed", "parked"]
    assert peeked(stage, Include.HIDDEN, 2) == ["blocked", "in hand"]


def test_peek_shows_the_future_in_its_order(stage: Stage) -> None:
    stage.send("later", delay=20)
    stage.send("soon", delay=10)
    stage.send("now")
    assert peeked(stage, Include.FUTURE) == ["soon", "later"]
    assert peeked(stage, Include.FUTURE, 1) == ["soon"]
    stage.clock.advance(10)
    assert peeked(stage, Include.FUTURE) == ["later"]
    assert peeked(stage) == ["now", "soon"]


@pytest.mark.every_store
def test_peek_at_all_shows_all_but_the_dead(stage: Stage) -> None:
    every_standing(stage)
    waiting, *hidden = peeked(stage, Include.ALL)
    assert waiting == "waiting"
    assert hidden == ["blocked", "in hand", "backing_off", "snoozed", "parked", "delayed"]


def test_what_may_go_now_is_shown_by_priority_and_the_rest_as_it_falls_due() -> None:
    stage = Stage(levels=3)
    for body, priority, delay in (("a", 0, 0), ("b", 2, 0), ("c", 1, 30), ("d", 2, 60), ("e", 0, 10)):
        stage.send(body, priority=priority, delay=delay)
    assert peeked(stage, Include.ALL) == ["b", "a", "e", "c", "d"]


def test_what_ran_out_is_peeked_at_as_due(stage: Stage) -> None:
    stage.send("a")
    stage.claim(1)
    stage.clock.advance(61)
    stage.send("b")
    assert peeked(stage) == ["a", "b"]


def test_peek_merges_rows(stage: Stage) -> None:
    for number, row in enumerate([ROW, "mail:0:1", ROW, "mail:0:1"]):
        stage.send(str(number), row=row)
        stage.clock.advance(1)
    seen = stage.run(peek(stage.ann, [ROW, "mail:0:1"], levels=1, limit=3))
    assert [one.body for one in seen] == ["0", "1", "2"]


def test_peek_looks_behind_pages_of_what_is_dead_or_leased(stage: Stage) -> None:
    for _ in range(12):
        stage.bury(*map(str, range(100)))
    stage.send("alive")
    assert peeked(stage) == ["alive"]


def test_a_message_that_goes_while_it_is_peeked_at_is_left_out(stage: Stage) -> None:
    first, _ = stage.send("a"), stage.send("b")

    class Late(Recording):
        def perform(self, request: Request) -> object:
            wants_values = (
                isinstance(request, Read) and not isinstance(request.wanted[0], Slice) and len(self.requests) > 2
            )
            if wants_values:
                stage.run(delete(stage.bob, first))
            return super().perform(request)

    seen = stage.run(peek(stage.ann, [ROW], levels=1, limit=5), Late(stage.store))
    assert [one.body for one in seen] == ["b"]


def test_a_rejected_message_is_not_peeked_at(stage: Stage) -> None:
    stage.send("a")
    [taken] = stage.claim(1)
    stage.settle(taken, Reject("rejected", "", 1))
    assert peeked(stage, Include.ALL) == []
