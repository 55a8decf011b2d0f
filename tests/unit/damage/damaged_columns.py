"""Columns that no process should have written: of wrong shape or types, out of bounds, cut short, or random."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from hypothesis import strategies as some

from astyqueue import ids
from astyqueue.ids import Nonce
from astyqueue.model.envelope import FORMAT, MessageId
from astyqueue.model.schedule import Policies, Template
from astyqueue.protocol.admin.settings import SETTINGS
from astyqueue.protocol.coordination.doorbell import BELL, WANTED
from astyqueue.protocol.coordination.row_lock import LockState
from astyqueue.protocol.history import EVENT, OF_KEY, OF_MESSAGE
from astyqueue.protocol.layout.columns import (
    HEADER,
    SCANS,
    Entry,
    Header,
    Mark,
    State,
    Timer,
    Type,
    dead_name,
    encoded,
    message_name,
)
from astyqueue.protocol.layout.rows import QUEUES, TIME, doorbell_row, history_row, key_row, settings_row
from astyqueue.protocol.layout.schedule_column import encode_schedule, trigger_name
from astyqueue.protocol.layout.unique_key import KeyOwner, key_name, removed_name
from astyqueue.protocol.scheduling.schedule_definition import RequestedSchedule, new_schedule
from astyqueue.store import ENTRIES, HISTORY, Name
from astyqueue.triggers import Every
from astyqueue.units import SECOND

QUEUE: Final = "emails"
ROWS: Final = (f"{QUEUE}:0:0", f"{QUEUE}:home:0")
KEY: Final = "a damaged key"
HINTED: Final = "a key with damaged hints"
SCHEDULE: Final = "a damaged schedule"

#: What may stand where something else belongs.
NASTY: Final[list[Any]] = [
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        200,
        1 << 40,
        95 * 10**15,
        1 << 62,
        1 << 64,
        10**30,
        -(10**30),
        1.5,
        float("nan"),
        float("inf"),
    ),
    *(
        "",
        "x",
        "\x1b]0;\x07",
        "9999-12-31",
        "reject",
        [],
        [[]],
        [None],
        ["x"],
        {},
        {"task": ["x"]},
        {"a": 1},
        {"task": None},
        {"kind": "cron"},
    ),
]
nasty: Final = some.sampled_from(NASTY)


@dataclass(frozen=True)
class Damage:
    """One column, put where it is read."""

    row: str
    name: Name
    value: bytes
    table: str = ENTRIES


Damaged = some.SearchStrategy[list[Damage]]


@some.composite
def replaced(draw: some.DrawFn, sound: Any, wrong: some.SearchStrategy[Any] = nasty) -> Any:  # noqa: ANN401 - any JSON
    """Sound JSON in which a part or two are wrong, missing or too many; or all of it is."""
    if not isinstance(sound, list | dict) or not sound or draw(some.integers(0, 9)) == 0:
        return draw(wrong)
    copy: Any = list(sound) if isinstance(sound, list) else dict(sound)
    places = draw(
        some.lists(
            some.sampled_from(range(len(copy)) if isinstance(copy, list) else sorted(copy)), min_size=1, max_size=2
        )
    )
    for place in places:
        part = copy[place]
        copy[place] = (
            draw(replaced(part, wrong))
            if isinstance(part, list | dict) and part and draw(some.booleans())
            else draw(wrong)
        )
    match draw(some.integers(0, 9)):
        case 0 if isinstance(copy, list):
            copy.pop()
        case 1 if isinstance(copy, list):
            copy.append(draw(wrong))
        case 0:
            copy.pop(places[0])
        case 1:
            copy["from a newer release"] = draw(wrong)
    return copy


def framed(content: some.SearchStrategy[bytes]) -> some.SearchStrategy[bytes]:
    """Content behind a format byte, mostly of this release; or something that has nothing to do with it."""
    return some.one_of(
        content.map(lambda value: FORMAT + value),
        content.map(lambda value: FORMAT + value),
        content.map(lambda value: FORMAT + value),
        content.map(lambda value: b"\x02" + value),
        some.binary(max_size=60).map(lambda value: FORMAT + value),
        some.binary(max_size=60),
    )


def as_json(sound: Any, wrong: some.SearchStrategy[Any] = nasty) -> some.SearchStrategy[bytes]:  # noqa: ANN401 - any JSON
    return framed(replaced(sound, wrong).map(lambda value: json.dumps(value).encode()))


def bent(sound: bytes) -> some.SearchStrategy[bytes]:
    """Bytes that were sound, and some of which are others now, or missing."""
    places = some.lists(
        some.tuples(some.integers(0, max(0, len(sound) - 1)), some.integers(0, 255)), min_size=1, max_size=3
    )

    def bend(bends: list[tuple[int, int]]) -> bytes:
        value = bytearray(sound)
        for place, byte in bends:
            value[place] = byte
        return bytes(value)

    cut = some.integers(0, len(sound)).map(lambda length: sound[:length])
    return some.one_of(places.map(bend), cut, some.binary(max_size=60), some.just(b"\x02" + sound[1:]))


class Damages:
    """Makes damage as of a moment (microseconds) before which the messages that are damaged were due."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.ids = [ids.at(now - number * SECOND) for number in range(1, 8)]
        self.soon = [
            ids.at(now + number * 1_000) for number in range(1, 4)
        ]  # a row's floor, below which no timer is read, is not after now

    @property
    def harmless(self) -> Damaged:
        """What may hold up nothing but itself: some of each kind, so that a few examples show much."""
        kinds = [self.messages(), self.messages(), self.dead(), self.keys(), self.removed(), self.hints(), self.bells()]
        kinds += [self.settings(), self.queues(), self.events(), self.events(), self.listings(), self.locks()]
        several = some.tuples(*(some.lists(kind, min_size=1, max_size=4) for kind in kinds))
        return some.builds(
            lambda lists, occurrences: [*chain.from_iterable(lists), *occurrences], several, self.schedules()
        )

    @property
    def anything(self) -> Damaged:
        """That, and what may stop the claims of its row."""
        stopping = some.lists(some.one_of(self.headers(), self.timers(), self.timers()), min_size=1, max_size=6)
        return some.builds(lambda others, stops: [*others, *stops], self.harmless, stopping)

    def _id(self) -> some.SearchStrategy[ids.Id]:
        return some.sampled_from(self.ids)

    def messages(self) -> some.SearchStrategy[Damage]:
        sound = [
            self.now - SECOND,
            0,
            "k",
            {"task": "x", "schedule": "s"},
            self.now + 10**9,
            30 * SECOND,
            5,
            {"to": "ada"},
        ]
        value = some.one_of(as_json([*sound, True, False]), as_json(sound), as_json([*sound, False, True]))
        return some.builds(Damage, some.sampled_from(ROWS), self._id().map(lambda id_: message_name(0, id_)), value)

    def dead(self) -> some.SearchStrategy[Damage]:
        value = as_json([self.now - SECOND, 1, "failed", "no such address", "00" * 8])
        return some.builds(Damage, some.sampled_from(ROWS), self._id().map(lambda id_: dead_name(0, id_)), value)

    def keys(self) -> some.SearchStrategy[Damage]:
        return some.builds(
            Damage, some.just(ROWS[1]), some.just(key_name(KEY)), bent(KeyOwner(KEY, 0, self.ids[0]).encode())
        )

    def removed(self) -> some.SearchStrategy[Damage]:
        return some.builds(
            Damage, some.sampled_from(ROWS), self._id().map(lambda id_: removed_name(0, id_)), some.binary(max_size=20)
        )

    def hints(self) -> some.SearchStrategy[Damage]:
        name = self._id().map(lambda id_: Name(Type.MESSAGE, 0, id_, State.NONE))
        texts = some.sampled_from(
            [b"", b"emails:settings", b"emails:bell", b"other:0:0", b"emails:0:0:0", b"emails:0:0", b"\xff\xff"]
        )
        value = some.one_of(texts.map(lambda text: FORMAT + text), framed(texts))
        return some.builds(Damage, some.just(key_row(QUEUE, HINTED)), name, value)

    def bells(self) -> some.SearchStrategy[Damage]:
        places = some.sampled_from([(doorbell_row(QUEUE), BELL), (doorbell_row(QUEUE), WANTED), (TIME, BELL)])
        value = framed(some.binary(max_size=40))
        return some.builds(lambda place, value: Damage(place[0], place[1], value), places, value)

    def settings(self) -> some.SearchStrategy[Damage]:
        behaviour = {
            "lease_us": 1,
            "max_attempts": 1,
            "backoff_us": 1,
            "backoff_cap_us": 1,
            "paused": 1,
            "body_bytes": 1,
            "history": 1,
        }
        layout = {"time_shards": 1, "time_shard_us": 1, "concurrency_shards": 1, "priorities": 1, "placement": 1}
        sound = {"name": QUEUE, "layout": layout, "behaviour": behaviour, "history_kept_us": 1}
        never: some.SearchStrategy[Any] = some.sampled_from(
            [None, "x", [], {}, -1, 10**30, 1.5]
        )  # none of them is a setting of another meaning
        return some.builds(Damage, some.just(settings_row(QUEUE)), some.just(SETTINGS), as_json(sound, never))

    def queues(self) -> some.SearchStrategy[Damage]:
        name = some.sampled_from(["one", "two", QUEUE]).map(lambda text: Name(0, 0, ids.of_text(f"not {text}"), 0))
        return some.builds(Damage, some.just(QUEUES), name, as_json("nobody's"))

    def events(self) -> some.SearchStrategy[Damage]:
        sound = {
            "message": str(MessageId(ROWS[0], 0, self.ids[0])),
            "key": KEY,
            "attempt": 1,
            "worker": "host:1:a",
            "sent": 1,
            "due": 1,
        }
        facts = {
            **sound,
            "claimed": 1,
            "began": 1,
            "until": 1,
            "slot": 1,
            "why": "x",
            "reason": "r",
            "trace": "t",
            "lost": False,
            "task": "t",
        }
        name = some.builds(
            lambda id_, state: Name(EVENT, 0, id_, state), some.sampled_from(self.ids[:2]), some.integers(0, 20)
        )
        return some.builds(Damage, some.just(history_row(QUEUE, self.now, 0)), name, as_json(facts), some.just(HISTORY))

    def listings(self) -> some.SearchStrategy[Damage]:
        texts = {OF_KEY: KEY, OF_MESSAGE: str(MessageId(ROWS[0], 0, self.ids[0]))}
        name = some.sampled_from(sorted(texts)).map(
            lambda kind: Name(kind, 0, ids.listed(texts[kind], self.now - SECOND), 0)
        )
        value = some.one_of(framed(some.binary(max_size=20)), framed(self._id()), some.just(FORMAT + b"\xff" * 16))
        return some.builds(Damage, some.just(history_row(QUEUE, self.now, 0)), name, value, some.just(HISTORY))

    def locks(self) -> some.SearchStrategy[Damage]:
        name = some.builds(lambda id_, state: Name(Type.LOCK, 0, id_, state), self._id(), some.sampled_from(LockState))
        return some.builds(Damage, some.sampled_from(ROWS), name, framed(some.binary(max_size=12)))

    def schedules(self) -> some.SearchStrategy[list[Damage]]:
        """A schedule that cannot be what it says, and the timer that says that it is due."""
        wanted = RequestedSchedule(
            Every("1h"), Template(b'{"to":"ada"}', headers={"a": "b"}), Policies.read("all", "queue all", "pause")
        )
        head, _, body = encode_schedule(new_schedule(SCHEDULE, wanted, mark="m", now=self.now - SECOND))[1:].partition(
            b"\n"
        )
        fields = json.loads(head) | {
            "backlog": [self.now],
            "run": f"0/{self.ids[0].hex()}",
            "history": [[1, 1, 1, None, "why"]],
        }
        heads = replaced(fields).map(lambda value: json.dumps(value).encode())
        bodies = some.sampled_from([body, body, body, b"", b"{", b"[" * 250])
        value = framed(some.builds(lambda head, body: b"%b\n%b" % (head, body), heads, bodies))
        occurrence = encoded(
            Timer(Name(Type.TIMER, 0, self.soon[0], State.NEXT_OCCURRENCE), (), Nonce(bytes(8)), SCHEDULE, 0)
        )
        return value.map(
            lambda value: [
                Damage(ROWS[1], trigger_name(SCHEDULE), value),
                Damage(ROWS[1], occurrence.name, occurrence.value),
            ]
        )

    def headers(self) -> some.SearchStrategy[Damage]:
        numbers = some.sampled_from([0, 1, self.now, 1 << 62, (1 << 64) - 1])
        cursors = some.sampled_from([ids.LEAST, self.ids[3], ids.GREATEST, b"\xff" * 16])
        sound = some.builds(
            lambda version, floor, one: Header(version, floor, Nonce(bytes(8)), "a", ((one,) * SCANS,)),
            numbers,
            numbers,
            cursors,
        )
        value = sound.flatmap(lambda header: some.just(header.encode()) | bent(header.encode()))
        return some.builds(Damage, some.sampled_from(ROWS), some.just(HEADER), value)

    def timers(self) -> some.SearchStrategy[Damage]:
        lists = some.sampled_from(
            [(), (Entry(self.ids[0], 0, 1), Entry(self.ids[1], 0, 2)), (Entry(b"\xff" * 16, 200, 65_535),)]
        )
        marks = some.sampled_from([(), (Mark(self.ids[2], 0, 1, self.now),), (Mark(self.ids[2], 9, 1, (1 << 64) - 1),)])
        due = some.sampled_from([*self.soon, *self.soon, ids.at(self.now + 3_600 * SECOND), ids.LEAST, ids.GREATEST])
        name = some.builds(lambda id_, state: Name(Type.TIMER, 0, id_, state), due, some.integers(0, 9))
        sound = some.builds(
            lambda listed, marked: Timer(
                HEADER, listed, Nonce(bytes(8)), "host:1:a", len(listed), marks=marked
            ).encode(),
            lists,
            marks,
        )
        value = sound.flatmap(lambda timer: some.just(timer) | bent(timer))
        return some.builds(Damage, some.sampled_from(ROWS), name, value)
