"""What is stored is checked as it is read, field by field."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from astyqueue import MessageQueue, ids
from astyqueue.clock import microseconds
from astyqueue.errors import StoreCorrupt, Undecodable
from astyqueue.ids import Nonce
from astyqueue.model.envelope import ATTEMPTS_MOST, LEASE_LEAST, LEASE_MOST, decode
from astyqueue.model.event import Kind
from astyqueue.protocol.history import EVENT, decode_event
from astyqueue.protocol.layout.columns import (
    Entry,
    Header,
    Mark,
    State,
    Timer,
    Type,
    decode_dead,
    decode_header,
    decode_timer,
    message_name,
)
from astyqueue.protocol.layout.rows import is_message_row, key_row
from astyqueue.protocol.layout.unique_key import KeyOwner, decode_owner
from astyqueue.store import Batch, Column, Name, Put, Store
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND

NOW = 1_767_268_800 * SECOND
SOUND: dict[str, Any] = {
    "sent": NOW,
    "due": 0,
    "key": "k",
    "headers": {"task": "x"},
    "expires": NOW + 1,
    "lease": 30 * SECOND,
    "attempts": 5,
    "body": {"to": "ada"},
    "unique": True,
    "repeatable": False,
}


def envelope(**fields: object) -> bytes:
    return b"\x01" + json.dumps(list((SOUND | fields).values())).encode()


WRONG: dict[str, list[object]] = {
    "sent": [True, 1.5, "x", [], 10**30, -(10**30)],
    "due": [True, 1.5, "x", [], 10**30, -(10**30)],
    "expires": [True, 1.5, "x", [], 10**30, -(10**30)],
    "key": [5, True, [], {}],
    "headers": ["x", [], ["task"], 5, {"task": ["x"]}, {"task": None}, {"task": {}}],
    "lease": [True, 1.5, "x", [], -1],
    "attempts": [True, 1.5, "x", [], -1],
    "unique": [None, 1, "x", ["x"]],
    "repeatable": [None, 1, "x", ["x"]],
}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [(field, wrong) for field, several in WRONG.items() for wrong in several],
)
def test_an_envelope_with_a_wrong_field_is_undecodable_and_names_it(field: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"{field}: of the wrong type"):
        decode(envelope(**{field: wrong}))
    if field not in ("unique", "repeatable"):
        short = [value for name, value in (SOUND | {field: wrong}).items() if name not in ("unique", "repeatable")]
        with pytest.raises(ValueError, match=f"{field}: of the wrong type"):
            decode(b"\x01" + json.dumps(short).encode())


@pytest.mark.parametrize(
    ("lease", "read"), [(0, 0), (None, None), (1, LEASE_LEAST), (10**30, LEASE_MOST), (30 * SECOND, 30 * SECOND)]
)
def test_a_stored_lease_is_brought_within_bounds(lease: int | None, read: int | None) -> None:
    assert decode(envelope(lease=lease)).lease == read


@pytest.mark.parametrize(("attempts", "read"), [(0, 1), (None, None), (10**30, ATTEMPTS_MOST), (5, 5)])
def test_a_stored_number_of_attempts_is_brought_within_bounds(attempts: int | None, read: int | None) -> None:
    assert decode(envelope(attempts=attempts)).attempts == read


def timer(*, state: int = State.LEASED, entries: tuple[Entry, ...] = (), marks: tuple[Mark, ...] = ()) -> Timer:
    name = Name(Type.TIMER, 0, ids.at(NOW), state)
    return decode_timer("row", name, Timer(name, entries, Nonce(bytes(8)), "host:1:a", 1, marks=marks).encode())


def test_a_timer_is_undecodable_if_claims_could_not_go_by_it() -> None:
    entry = Entry(ids.at(NOW), 0, 1)
    assert timer(entries=(entry,)).entries == (entry,)
    for state in (State.NONE, State.WAITING, 8, 255):
        with pytest.raises(Undecodable, match="its state is"):
            timer(state=state)
    with pytest.raises(Undecodable, match="its state is 6, and it lists 1 messages"):
        timer(state=State.NEXT_OCCURRENCE, entries=(entry,))
    with pytest.raises(Undecodable, match="a priority in it is 10"):
        timer(entries=(entry, entry._replace(priority=10)))
    with pytest.raises(Undecodable, match="invalid ids"):
        timer(marks=(Mark(b"\xff" * 16, 0, 1, NOW),))
    blocked = entry._replace(group=7)
    assert timer(state=State.BLOCKED, entries=(blocked,)).entries == (blocked,)
    for wrong in ((entry,), (blocked, entry)):
        with pytest.raises(Undecodable, match="it lists blocked messages that are in no group"):
            timer(state=State.BLOCKED, entries=wrong)
    with pytest.raises(Undecodable, match="it lists blocked messages that are in no group"):
        timer(state=State.BLOCKED, entries=(blocked,), marks=(Mark(entry.id, 0, 1, NOW, 7),))


@pytest.mark.parametrize(("version", "floor"), [((1 << 64) - 1, 0), (0, (1 << 64) - 1)])
def test_a_header_with_a_version_that_none_follows_is_undecodable(version: int, floor: int) -> None:
    with pytest.raises(Undecodable, match="its version or its floor"):
        decode_header("row", Header(version, floor, Nonce(bytes(8)), "a", ()).encode())


def test_a_name_that_is_too_long_is_not_cut_within_a_character() -> None:
    header = decode_header("row", Header(1, 0, Nonce(bytes(8)), "x" + "é" * 200, ()).encode())
    assert header.owner == "x" + "é" * 127


@pytest.mark.parametrize(
    "wrong", [b"\xff" * 18 + b"k", bytes([1, 200]) + bytes(16) + b"k", bytes([1, 0]) + b"\xff" * 16 + b"k"]
)
def test_a_key_of_a_message_that_cannot_be_is_not_taken_for_one(wrong: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        decode_owner("row", wrong)
    sound = KeyOwner("k", 9, ids.at(NOW))
    assert decode_owner("row", sound.encode()) == sound


@pytest.mark.parametrize(
    "fields", [{"at": 1}, [1, 1, "k", "r"], ["1", 1, "k", "r", ""], [10**30, 1, "k", "r", ""], [1, 1, 5, "r", ""], 5]
)
def test_a_dead_column_that_cannot_be_read_says_so(fields: object) -> None:
    dead = decode_dead(b"\x01" + json.dumps(fields).encode())
    assert (dead.at, dead.kind) == (0, "undecodable")
    assert "its dead column cannot be read" in dead.reason


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("attempt", "1"), ("attempt", -1), ("due", 10**30), ("lost", 1), ("key", 5), ("reason", []), ("slot", 1.5)],
)
def test_an_event_with_a_wrong_field_is_shown_without_it(field: str, wrong: object) -> None:
    name = Name(EVENT, 0, ids.at(NOW), 3)
    event = decode_event(
        "emails:2026-01-01:0", Column(name, b"\x01" + json.dumps({"attempt": 1, field: wrong}).encode(), 0)
    )
    assert (event.at, event.kind) == (NOW, Kind.FAILED)
    assert f"invalid {field}" in event.reason


@pytest.mark.parametrize(
    "row", ["", "emails", "emails:settings", "emails:bell", "other:0:0", "emails:0:0:0", "emails::0", "emails:0:x"]
)
def test_a_hint_to_what_is_no_row_of_messages_is_ignored(
    clock: TimeMachine, store: Store, queue: MessageQueue, row: str
) -> None:
    assert not is_message_row("emails", row)
    sent = queue.send("body", key="k")
    name = Name(Type.MESSAGE, 0, ids.at(clock.now()), State.NONE)
    store.commit(
        Batch(key_row("emails", "k"), (Put(name, b"\x01" + row.encode()), Put(name._replace(state=7), b"\xff"))), ()
    )
    assert [found.id for found in queue.find("k")] == [sent.id]


def test_a_message_that_was_sent_to_expire_never_is_delivered(
    queue: MessageQueue, store: Store, clock: TimeMachine
) -> None:
    never = microseconds(datetime.max.replace(tzinfo=UTC))
    now = clock.now() - SECOND
    value = b'\x01[%d,0,null,null,%d,null,null,"work"]' % (now, never)
    store.send(Batch("emails:0:0", (Put(message_name(0, ids.at(now)), value, now),)))
    queue.send("for ever", expires=datetime.max.replace(tzinfo=UTC))
    queue.send("and longer", expires=datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))))
    assert {delivery.body for delivery in queue.receive(10)} == {"work", "for ever", "and longer"}
