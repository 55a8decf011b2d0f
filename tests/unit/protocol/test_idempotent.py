"""Sends that may come again after their messages were settled, and every way in which they meet claims and settles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown
from astyqueue.model.envelope import MessageId, decode, encode_plain
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.claiming.claim import Claim
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.layout.columns import State, Type
from astyqueue.protocol.layout.unique_key import removed_name
from astyqueue.protocol.sending.idempotent import (
    IdempotentMessage,
    idempotent_from_encoded,
    idempotent_message,
    numbered_id,
    send_idempotent,
)
from astyqueue.protocol.settling.outcomes import Outcome, Reject
from astyqueue.protocol.steps import Commit, run
from astyqueue.store import Named, Slice
from astyqueue.testing import Failing
from astyqueue.units import SECOND
from tests.modelcheck.executor import Scenario
from tests.modelcheck.schedule import Actor, Work
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.fault_budgets import CRASH, PAUSE, UNKNOWN, Faults, named, played
from tests.unit.protocol.worlds import Scene, Taking, acking, begin, settler


def records(scene: Scene, count: int, *, before: int = 0) -> list[IdempotentMessage]:
    """The first records of a source; they were written `before` seconds ago."""
    moment = scene.now - before * SECOND
    return [
        idempotent_message(encode_plain(moment, b"%d" % number), 0, numbered_id("disk-7", number, moment))
        for number in range(count)
    ]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def sent(scene: Scene, wanted: list[IdempotentMessage]) -> int:
    return run(send_idempotent(scene.process("pat"), ROW, wanted), scene.store)


@pytest.mark.every_store
def test_what_is_sent_again_is_there_once(scene: Scene) -> None:
    wanted = records(scene, 3)
    assert (sent(scene, wanted[:2]), sent(scene, wanted), sent(scene, wanted)) == (2, 1, 0)
    assert sorted(scene.everything_again()) == sorted(one.id for one in wanted)


def test_what_is_sent_again_after_its_ack_does_not_come_again_for_a_day(scene: Scene) -> None:
    wanted = records(scene, 2)
    sent(scene, wanted)
    scene.acked(scene.do("ann").claims[0])
    scene.clock.advance("23h")
    assert sent(scene, wanted) == 0
    assert not scene.everything_again()


@pytest.mark.stores("memory", "sqlite")  # elsewhere columns go by the store's own clock
def test_that_something_was_settled_is_forgotten_after_a_day(scene: Scene) -> None:
    wanted = records(scene, 1)
    sent(scene, wanted)
    scene.acked(scene.do("ann").claims[0])
    assert scene.store.read((Slice(ROW, Type.REMOVED),))[0]
    scene.clock.advance("25h")
    assert sent(scene, wanted) == 1


@pytest.mark.stores("memory", "sqlite")  # elsewhere columns go by the store's own clock
def test_that_something_was_settled_is_remembered_for_as_long_as_its_envelope_says(scene: Scene) -> None:
    long, short = (
        idempotent_from_encoded(
            encode_plain(scene.now, b'"hello"'), 0, numbered_id("disk-7", number, scene.now), seconds=days * 86_400
        )
        for number, days in enumerate((30, 7))
    )
    assert sent(scene, [long, short]) == 2
    scene.acked(scene.do("ann").claims[0])
    scene.clock.advance("6d")
    assert sent(scene, [long, short]) == 0
    scene.clock.advance("2d")
    assert sent(scene, [long, short]) == 1


def test_an_envelope_says_for_how_long_only_if_that_is_not_a_day() -> None:
    value = encode_plain(0, b'"hello"')
    assert (
        idempotent_from_encoded(value, 0, ids.LEAST, seconds=86_400).value
        == idempotent_from_encoded(value, 0, ids.LEAST).value
        == idempotent_message(value, 0, ids.LEAST).value
    )
    week = decode(idempotent_from_encoded(value, 0, ids.LEAST, seconds=7 * 86_400).value)
    assert (week.repeatable, decode(idempotent_from_encoded(value, 0, ids.LEAST).value).repeatable) == (
        7 * 86_400,
        True,
    )
    assert (
        idempotent_message(value, 0, ids.LEAST, seconds=7 * 86_400).value
        == idempotent_from_encoded(value, 0, ids.LEAST, seconds=7 * 86_400).value
    )


def test_a_dead_letter_is_not_sent_again_and_what_was_deleted_is_neither(scene: Scene) -> None:
    wanted = records(scene, 2)
    sent(scene, wanted)
    taken = scene.do("ann").claims[0]
    scene.settle(taken, {wanted[0].id: Reject("rejected", "no", 1)})
    run(delete(scene.process("ann"), MessageId(ROW, 0, wanted[1].id)), scene.store)
    assert sent(scene, wanted) == 0
    assert run(delete(scene.process("ann"), MessageId(ROW, 0, wanted[0].id)), scene.store)
    assert sent(scene, wanted) == 0


def test_what_is_delivered_at_most_once_is_not_sent_again(scene: Scene) -> None:
    wanted = records(scene, 1)
    sent(scene, wanted)
    assert scene.do("ann", lease=0).at_most_once
    assert sent(scene, wanted) == 0


def test_records_of_long_ago_are_found_at_once_by_who_knows_the_row(scene: Scene) -> None:
    scene.send(1)
    scene.acked(scene.do("ann").claims[0])
    scene.clock.advance("1h")
    wanted = records(scene, 200, before=3_000)
    sent(scene, wanted)
    assert [timer.state for timer in picture(scene.store).timers] == [State.SNOOZED]
    assert sum(len(taken.held) for taken in scene.do("ann", want=200).claims) == 200


def test_many_go_in_commits_of_two_hundred(scene: Scene) -> None:
    assert sent(scene, records(scene, 450)) == 450
    assert len(scene.everything_again()) == 450


def test_a_record_has_the_same_id_each_time_and_another_than_others() -> None:
    assert numbered_id("disk-7", 3, 1_000) == numbered_id("disk-7", 3, 1_000)
    others = {
        numbered_id("disk-7", 3, 1_000),
        numbered_id("disk-7", 4, 1_000),
        numbered_id("disk-8", 3, 1_000),
        numbered_id("disk-7", 3, 1_001),
    }
    assert len(others) == 4
    assert ids.parse(ids.text(numbered_id("disk-7", 3, 1_000))) == numbered_id("disk-7", 3, 1_000)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.every_store
def test_a_send_of_unknown_outcome_is_repeated_and_there_once(scene: Scene, *, applied: bool) -> None:
    wanted = records(scene, 2)
    store = Failing(scene.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    run(send_idempotent(scene.process("pat"), ROW, wanted), store)
    assert sorted(scene.everything_again()) == sorted(one.id for one in wanted)


@pytest.mark.parametrize("at", range(1, 6))
def test_a_message_that_is_acked_between_two_reads_of_its_next_send_is_not_sent_again(scene: Scene, at: int) -> None:
    wanted = records(scene, 1)
    sent(scene, wanted)
    taken = scene.do("ann").claims[0]
    store = Meanwhile(scene.store, lambda: scene.acked(taken), at=at)
    assert run(send_idempotent(scene.process("pat"), ROW, wanted), store) == 0
    assert len(store.requests) >= at or wanted[0].id not in scene.store.gone
    assert not scene.store.read((Named(ROW, (removed_name(0, wanted[0].id),)),))[0] or wanted[0].id in scene.store.gone


def sends(scene: Scene, name: str, wanted: list[IdempotentMessage]) -> Actor:
    def act() -> Work:
        yield begin
        yield from send_idempotent(scene.process(name), ROW, wanted)
        scene.sent += [one.id for one in wanted]

    return act


Meets = Callable[[Scene, list[IdempotentMessage], Claim | None], Actor]


def settles(outcome: Callable[[ClaimedMessage], Outcome]) -> Meets:
    """An actor that settles what Eve was handed."""

    def meets(scene: Scene, _: list[IdempotentMessage], taken: Claim | None) -> Actor:
        assert taken is not None
        return settler(scene, "eve", taken, {one.entry.id: outcome(one) for one in taken.held})

    return meets


MEETS: dict[str, Meets] = {
    "another": lambda scene, wanted, _: sends(scene, "bob", wanted),
    "claim": lambda scene, _, __: Taking(scene, "bob", first=begin),
    "ack": settles(acking),
    "reject": settles(lambda _: Reject("rejected", "", 1)),
}


@pytest.mark.stores("memory")
@pytest.mark.parametrize("faults", [CRASH, UNKNOWN, PAUSE], ids=named)
@pytest.mark.parametrize("other", MEETS)
def test_no_order_of_events_sends_a_record_twice(other: str, faults: Faults) -> None:
    def repeatable() -> Scenario:
        scene = Scene()
        wanted = records(scene, 1)
        taken = None
        if other in {"ack", "reject"}:
            run(send_idempotent(scene.process("eve"), ROW, wanted), scene.store)
            taken = scene.do("eve").claims[0]
        scene.clock.advance(1)
        world = scene.world(ann=sends(scene, "ann", wanted), meets=MEETS[other](scene, wanted, taken))

        def judged(history: object) -> str | None:
            came_back = world.check(history)  # type: ignore[arg-type]  # what it is handed
            run(send_idempotent(scene.process("sweeper"), ROW, wanted), scene.store)
            gone = wanted[0].id in scene.store.gone
            assert not (gone and wanted[0].id in picture(scene.store).messages), (
                "a record came back after it was settled"
            )
            return came_back

        return Scenario(world.store, world.actors, judged)

    explored = played(repeatable, faults).require_none()
    assert explored.complete
    assert explored.schedules > 5
