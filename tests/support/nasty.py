"""The nastiest messages that a producer can send and a handler can fail, for tests of what shows, logs or counts them.

`nasty_messages()` returns about two hundred, each valid for the queue (none is damaged, `send` accepts all) and each
with its `Fate`: what `fill` does with it after sending it. Among them:

- texts (`TEXTS`): all of C0 and C1, NUL, ESC with OSC, CSI, DCS and APC sequences, bidi and zero-width controls, line
  and paragraph separators, lines that forge output, text without characters, markup of Rich, HTML, SQL, JSON, CSV and
  formats, wide and combining characters, noncharacters, texts of 2 000 characters; each as a body and as the keys of
  one, as key, as name and text of headers, as the name of a task and of a tenant, as the reason of a dead letter, and
  as the error (with its traceback) of a failed attempt;
- numbers with the most digits, and the deepest and longest bodies, that the queue accepts; empty ones of every kind;
- moments: due in the years 1600 and 5000, expiring at the last moment, delayed by a hundred years;
- names, keys and headers of the greatest length; reasons far beyond theirs, and reasons with halves of characters
  (`HALVES`), which only errors can have;
- leases and attempts at their bounds, unique keys by every policy, and messages whose key is that of a replaced one.

`fill(queue)` sends them all and carries out their fates; `schedule(queue)` adds schedules with names as nasty as names
may be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, auto
from typing import Final

from astyqueue import Message, MessageQueue
from astyqueue.errors import BadInput
from astyqueue.model.body import BODY_BYTES, encode_body
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import HEADERS_BYTES, KEY_BYTES
from astyqueue.model.schedule import NAME_BYTES
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.schedules import Schedules
from astyqueue.triggers import Cron, Every, Once

#: Texts that may be sent, each named for what is nasty about it.
TEXTS: Final[dict[str, str]] = {
    "empty": "",
    "blank": " \t ",
    "null": "null",
    "number": "1",
    "truth": "true",
    "nan": "NaN",
    "dash": "-",
    "option": "--json",
    "c0": "".join(map(chr, range(0x20))) + "\x7f",
    "c1": "".join(map(chr, range(0x80, 0xA0))),
    "nul": "pay\0",
    "title": "\x1b]0;forged title\x07",
    "title ended by st": "\x1b]2;forged title\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "link": "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "clear": "\x1b[2J\x1b[H\x1b[3J",
    "colour": "\x1b[31;1mred\x1b[0m",
    "report": "\x1b[6n\x1b[c\x1bZ",
    "reset": "\x1bc",
    "device": "\x1bPq#0;2;0;0;0\x1b\\\x1b_application\x1b\\\x1b^private\x1b\\",
    "csi of c1": "\x9b2J\x9d0;forged\x9c",
    "overwriting": "harmless\r\x1b[KError: forged\b\b\b",
    "forged lines": "ok\n2026-11-21T09:00:00Z  done  emails:0:0\r\n\r\nError: forged\n",
    "forged facts": 'x" id=1 level=error event="done',
    "next line": "one\x85two\x0bthree\x0cfour\x1cfive",
    "separators": "one\u2028two\u2029three",
    "override": "gpj.\u202eexe.txt\u202c",
    "embeddings": "\u202a\u202b\u202d\u2066\u2067\u2068\u2069\u200e\u200f\u061c",
    "zero width": "pay\u200b\u200c\u200d\u2060\ufeff\u00adpal",
    "tags": "\U000e0001\U000e0061\U000e007f",
    "interlinear": "\ufff9\ufffa\ufffb\ufffc",
    "spaces": "a\u00a0b\u2003c\u3000d\u1680e",
    "noncharacters": "\ufffe\uffff\U0001fffe\U0010ffff\ufdd0",
    "private": "\ue000\uf8ff\U000f0000",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "wide": "\u6771\u4eac\uff21\uff22 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "combining": "Z" + "\u0351\u036b\u0489" * 60,
    "rich": "[bold red]x[/][/b] [link=http://evil.example]y :skull: [a/b",
    "html": "</script></title><script>alert('1')</script><img src=x onerror=alert(1)>&amp;&#0;]]>",
    "sql": "'; DROP TABLE entries; -- \" $$ \\",
    "format": "%s %d %n %(name)s {0} {name} {0.__class__} ${HOME} `id` $(id)",
    "json": '{"a": "\\u001b", "b": [',
    "csv": "=cmd|' /C calc'!A0,\"b\";c\td",
    "path": "../../etc/passwd\\..\\con",
    "id": "emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21",
    "long": "long " * 400,
    "long word": "x" * 2_000,
    "long of esc": "\x1b[A" * 600,
}
#: Halves of characters, which no message may have, but the text of an error may.
HALVES: Final = "a file's name: \ud800 \udcff\x1b[2J\n\udfff"
_EVENING: Final = timezone(-timedelta(hours=12))


class Fate(Enum):
    """What becomes of a message."""

    WAITS = auto()
    DONE = auto()
    REJECTED = auto()
    FAILS = auto()
    SNOOZED = auto()
    HELD = auto()


@dataclass(frozen=True, slots=True)
class Nasty:
    """A message, what becomes of it, and the reason for that."""

    name: str
    message: Message
    fate: Fate = Fate.WAITS
    reason: str = ""


class Mishap(Exception):
    """The error of the handler of a message that `FAILS`.

    Each time it has a new type, so that its traceback is kept beside those of others.
    """


def nasty_messages() -> list[Nasty]:
    """All nasty messages, in the same order each time."""
    return [*_texts(), *_bodies(), *_moments(), *_lengths(), *_options(), *_keys()]


def fill(queue: MessageQueue) -> dict[MessageId, Nasty]:
    """Send all nasty messages, and carry out their fates; returns them by their ids.

    Those that wait are sent last, so that no receive gets them. What was due in the queue before is acked.
    """
    nasty = sorted(nasty_messages(), key=lambda one: one.fate is Fate.WAITS)
    ids: dict[MessageId, Nasty] = {}
    for one in nasty:
        if one.fate is not Fate.WAITS:
            ids[queue.send(one.message).id] = one
    while received := queue.receive(50):
        for delivery in received:
            _settle(delivery, ids.get(delivery.message_id))
    for one in nasty:
        if one.fate is Fate.WAITS:
            ids[queue.send(one.message).id] = one
    return ids


def schedule(queue: MessageQueue) -> list[str]:
    """Add schedules; returns their names, which are as nasty as printable text can be."""
    schedules, texts = (
        Schedules(queue),
        {name: text for name, text in TEXTS.items() if text.isprintable() and 0 < len(text) <= 60},
    )
    triggers = [
        Every("36500d"),
        Once(datetime(5000, 1, 1, tzinfo=UTC)),
        Cron("0 0 29 2 *", "Asia/Kathmandu"),
        Every("1h", count=1),
    ]
    names = [*texts.values(), "n" * NAME_BYTES, "\U0001f9e8" * (NAME_BYTES // 4)]
    contents = list(TEXTS.values())
    for number, name in enumerate(names):
        text = contents[3 * number % len(contents)]
        message = Message({text: text}, key=_cut(text), headers={text: text, "task": text}, expires="36500d")
        schedules.add(
            name,
            triggers[number % len(triggers)],
            message,
            misfire="all 1000",
            overlap="queue all",
            after_failure="pause",
        )
        if number % 2:
            schedules.run(name)
            schedules.pause(name, text)
    return names


def _settle(delivery: Delivery, nasty: Nasty | None) -> None:
    if delivery.settled:  # its lease is 0: it was deleted when it was delivered
        return
    match nasty:
        case Nasty(fate=Fate.REJECTED, reason=reason):
            delivery.reject(reason)
        case Nasty(fate=Fate.SNOOZED):
            delivery.release("1h")
        case Nasty(fate=Fate.FAILS, reason=reason):
            with contextlib.suppress(Mishap), delivery:
                raise type("Mishap", (Mishap,), {})(reason)
        case Nasty(fate=Fate.HELD):
            pass
        case _:
            delivery.ack()


def _texts() -> Iterator[Nasty]:
    """Each text in every place that takes one, under every fate."""
    fates = [Fate.WAITS, Fate.REJECTED, Fate.FAILS, Fate.SNOOZED, Fate.HELD, Fate.DONE]
    for number, (name, text) in enumerate(TEXTS.items()):
        yield Nasty(f"{name} as a body", Message(text), fates[number % len(fates)], text)
        call = {"args": [text], "kwargs": {text: text}}
        headers = {text: text, "task": text, "tenant": text}
        yield Nasty(
            f"{name} as key, task and reason", Message(call, key=_cut(text), headers=headers), Fate.REJECTED, text
        )
        headers = {"task": f"shop.{text}", "tenant": text}
        yield Nasty(
            f"{name} as an error",
            Message({text: [text]}, headers=headers, max_attempts=1 + number % 2),
            Fate.FAILS,
            text,
        )
    yield Nasty("halves as a reason", Message("x"), Fate.REJECTED, HALVES)
    yield Nasty("halves as an error", Message("x"), Fate.FAILS, HALVES)
    yield Nasty("no reason", Message("x"), Fate.REJECTED)
    yield Nasty("no error", Message("x"), Fate.FAILS)


def _bodies() -> Iterator[Nasty]:
    numbers: list[object] = [0, -1, 2**53 + 1, 2**64, -(2**63) - 1, -0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2]
    empty: list[object] = [None, True, False, [], {}, [[]], [{}], {"": ""}, {"": None}, [None] * 1_000]
    for body in [*empty, *numbers]:
        yield Nasty(f"body {body!r:.20}", Message(body))
    digits = _greatest(lambda count: 10**count, 4_400)
    yield Nasty("the longest number", Message(10**digits))
    yield Nasty("the longest negative number", Message({"n": [-(10**digits)]}), Fate.REJECTED, "too long")
    yield Nasty("the deepest lists", Message(_lists(_greatest(_lists, 260))), Fate.REJECTED, "too deep")
    yield Nasty("the deepest dicts", Message(_dicts(_greatest(_dicts, 260))))
    yield Nasty("the longest body", Message("\u00fc" * (BODY_BYTES // 2 - 1)))
    yield Nasty("the longest body of controls", Message("\x1b" * (BODY_BYTES // 6 - 1)), Fate.FAILS, "too long")


def _moments() -> Iterator[Nasty]:
    first, last = datetime(1600, 1, 1, tzinfo=UTC), datetime(5000, 1, 1, tzinfo=UTC)
    for name, moment in (
        ("first", first),
        ("last", last),
        ("before 1970", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    ):
        yield Nasty(f"due at the {name} moment", Message(name, at=moment))
        yield Nasty(
            f"due at the {name} moment with a key",
            Message(name, at=moment, key=f"due {name}", headers={"task": "\x1b[2J"}),
        )
    yield Nasty("due long ago and dead", Message("x", at=first), Fate.REJECTED, "long ago")
    yield Nasty("due long ago and failed", Message("x", at=first, max_attempts=1), Fate.FAILS, "long ago")
    yield Nasty("due in another zone", Message("x", at=datetime(4999, 12, 31, 11, tzinfo=_EVENING)))
    yield Nasty("expires never", Message("x", expires=datetime.max.replace(tzinfo=UTC)))
    yield Nasty(
        "expires beyond every zone", Message("x", expires=datetime.max.replace(tzinfo=_EVENING)), Fate.REJECTED, "never"
    )
    yield Nasty("expires with the last moment", Message("x", expires=last))
    yield Nasty("expired at once", Message("x", expires=0.000001, key="expired"), Fate.DONE)
    yield Nasty("delayed by a hundred years", Message("x", delay="36500d", expires="36500d"))


def _lengths() -> Iterator[Nasty]:
    for name, letter in (("letters", "k"), ("emoji", "\U0001f9e8"), ("escapes", "\x1b"), ("overrides", "\u202e")):
        key = letter * (KEY_BYTES // len(letter.encode()))
        task = letter * ((HEADERS_BYTES - 4) // len(letter.encode()))
        yield Nasty(f"the longest key of {name}", Message(name, key=key))
        yield Nasty(f"the longest unique key of {name}", Message(name, key=f"{key[:-1]}\n", unique="reject"))
        yield Nasty(
            f"the longest task of {name}", Message(name, headers={"task": task}), Fate.REJECTED, f"no task {task}"
        )
        yield Nasty(f"the longest reason of {name}", Message(name), Fate.REJECTED, letter * 50_000)
        yield Nasty(f"the longest error of {name}", Message(name, max_attempts=1), Fate.FAILS, letter * 50_000)
    yield Nasty(
        "as many headers as fit", Message("x", headers={f"{number:04}": "" for number in range(HEADERS_BYTES // 4)})
    )


def _options() -> Iterator[Nasty]:
    for lease in ("100ms", "12h", 0):
        yield Nasty(f"lease of {lease}", Message("x", lease=lease))
        yield Nasty(f"lease of {lease}, handed out", Message("x", lease=lease, headers={"task": "\x9b2J"}), Fate.DONE)
    for attempts in (1, 10_000):
        yield Nasty(f"{attempts} attempts", Message("x", max_attempts=attempts))
        yield Nasty(
            f"{attempts} attempts, failed", Message("x", max_attempts=attempts), Fate.FAILS, "\x1b]0;failed\x07"
        )


def _keys() -> Iterator[Nasty]:
    """Messages with unique keys that are sent again: most replace the message before them; one policy keeps that."""
    for policy in ("replace", "debounce", "keep"):
        yield Nasty(f"unique {policy}", Message(1, key=f"\x1b[7m{policy}\n", unique="reject", delay="1h"))
        if policy != "keep":
            yield Nasty(f"unique {policy} again", Message(2, key=f"\x1b[7m{policy}\n", unique=policy, delay="2h"))
    yield Nasty("a unique key of a dead letter", Message(1, key="dead\0", unique="reject"), Fate.REJECTED, "\u2028")


def _cut(key: str) -> str | None:
    """The text as a key, cut to the greatest length; None if it is empty."""
    return key.encode()[:KEY_BYTES].decode(errors="ignore") or None


def _lists(depth: int) -> object:
    inner: object = "\x1b[2J"
    for _ in range(depth):
        inner = [inner]
    return inner


def _dicts(depth: int) -> object:
    inner: object = None
    for _ in range(depth):
        inner = {"\x1b[2J": inner}
    return inner


def _greatest(make: Callable[[int], object], most: int) -> int:
    """The greatest count, up to `most`, for which the queue accepts what `make` returns."""
    return next(count for count in range(most, 0, -1) if _is_taken(make(count)))


def _is_taken(body: object) -> bool:
    try:
        encode_body(body)
    except BadInput:
        return False
    return True
