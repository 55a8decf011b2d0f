"""Handlers that child processes run, and how a test sees what they did: lines in a file."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

from astyqueue import Dispatcher, Message, MessageQueue, Reject, Retry, Snooze
from astyqueue.dispatch.handlers.handler import Call
from astyqueue.dispatch.processes import child_main
from astyqueue.errors import Closed
from astyqueue.queue.delivery.delivery import Delivery
from tests.unit.dispatch.stage import DEADLINE


def note(delivery: Delivery, *what: object) -> None:
    """Append a line to the file that the body names: one write, so that lines of several processes do not mix."""
    body: Any = delivery.body
    with Path(body["notes"]).open("a", encoding="utf-8") as notes:
        notes.write(" ".join(map(str, (os.getpid(), delivery.attempt, *what))) + "\n")


def noting(delivery: Delivery) -> None:
    """Note what crossed over."""
    assert delivery.lease_until is not None
    note(delivery, delivery.key, delivery.headers.get("task"), delivery.message_id, delivery.receipt)


def failing(_: Delivery) -> None:
    message = "no such address"
    raise LookupError(message)


def choosing(delivery: Delivery) -> None:
    body: Any = delivery.body
    if body["choice"] == "until":
        raise Snooze(datetime.fromisoformat(body["moment"]))
    raise {"retry": Retry("1h"), "reject": Reject("unwanted"), "snooze": Snooze("1h")}[body["choice"]]


def settling(delivery: Delivery) -> None:
    """Do to the delivery what the body says."""
    body: Any = delivery.body
    before = delivery.lease_until
    match body["call"]:
        case "extend":
            assert delivery.extend("2h") == delivery.lease_until
            assert before is not None
            assert delivery.lease_until is not None
            assert delivery.lease_until > before
        case "ack":
            delivery.ack()
            assert delivery.settled == "acked"
            delivery.ack()  # refused
        case "fail":
            delivery.fail("no luck", 3600)
        case call:
            getattr(delivery, call)()


def holding_the_interpreter(delivery: Delivery) -> None:
    """Keep the interpreter lock for as long as the body says: PyDLL calls do not let go of it."""
    body: Any = delivery.body
    note(delivery)
    ctypes.PyDLL(None).usleep(int(body["us"]))


def never_ending(delivery: Delivery) -> None:
    """Keep the interpreter lock for ever, beside a process of its own."""
    other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    note(delivery, other.pid)
    while True:
        ctypes.PyDLL(None).usleep(900_000)


def waiting(delivery: Delivery) -> None:
    """Wait without an end."""
    note(delivery)
    threading.Event().wait()


def held(delivery: Delivery) -> None:
    """Wait until the test writes to a named pipe."""
    body: Any = delivery.body
    note(delivery)
    Path(body["go"]).read_text(encoding="utf-8")


def dying(delivery: Delivery) -> None:
    """Die on the first attempt, in the way that the body names."""
    body: Any = delivery.body
    note(delivery)
    if delivery.attempt == 1:
        if body["dies"] == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.Signals[body["dies"]])
        threading.Event().wait()


def logging_lines(_: Delivery) -> None:
    logging.getLogger("shop").warning("from a %s", "child")


def doing_nothing(_: Delivery) -> None:
    """Return at once."""


def unfinished(_: Delivery) -> object:
    return (number for number in range(3))


def noted(path: Path) -> list[list[str]]:
    """The lines that were noted, in words."""
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def following(delivery: Delivery) -> None:
    """Have a message sent when this one is acked."""
    if delivery.body == "first":
        delivery.then("second", key="k", delay="1h", headers={"who": "ada"}, expires="1h", max_attempts=2)
    if delivery.body == "elsewhere":
        delivery.then("second", queue=MessageQueue.builder().store("memory://").name("other").build())


class Tenant(StrEnum):
    ADA = "ada"


class Urgency(IntEnum):
    HIGH = 1


def following_with_members_of_enums(delivery: Delivery) -> None:
    """Have messages sent whose options are text of a class of its own, which a number may not be."""
    if delivery.body == "wrong":
        delivery.then("second", priority=Urgency.HIGH)
    delivery.then("keyed", key=Tenant.ADA, headers={Tenant.ADA: Tenant.ADA}, delay="1h")
    delivery.then("grouped", group=Tenant.ADA, delay="1h")


def logging_then_held(delivery: Delivery) -> None:
    """Log, wait until the test writes to a named pipe, and log once more; a message without one fails."""
    body: Any = delivery.body
    if "go" not in body:
        message = f"message {body['number']} was not done"
        raise LookupError(message)
    logging.getLogger("shop").warning("begins")
    Path(body["go"]).read_text(encoding="utf-8")
    logging.getLogger("shop").warning("ends")


_left_behind: list[threading.Thread] = []
_go = threading.Event()
_refused: list[str] = []


def leaving_a_thread_behind(delivery: Delivery) -> None:
    """The first message leaves a thread behind, which acks its delivery while the next one is handled, and fails."""

    def ack_late() -> None:
        _go.wait()
        try:
            delivery.ack()
        except Closed as error:
            _refused.append(str(error))

    if not _left_behind:
        _left_behind.append(threading.Thread(target=ack_late, daemon=True))
        _left_behind[0].start()
        return
    _go.set()
    _left_behind[0].join()
    message = f"refused: {_refused}"
    raise LookupError(message)


def dying_beside_a_fork(delivery: Delivery) -> None:
    """Fork a process that lives until the test closes a named pipe, and die."""
    body: Any = delivery.body
    with Path(body["until"]).open(encoding="utf-8") as pipe:  # before the fork: the test may have closed it after that
        if os.fork() == 0:
            pipe.read()
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)


def leaving_a_fork_behind(delivery: Delivery) -> None:
    """The first message leaves a process behind, which acks its delivery while the next one is handled, and fails."""
    body: Any = delivery.body
    if body["number"] == 1:
        if os.fork() == 0:
            Path(body["go"]).read_text(encoding="utf-8")
            try:
                delivery.ack()
                said = "acked"
            except Closed as error:
                said = str(error)
            Path(body["said"]).write_text(said, encoding="utf-8")
            os._exit(0)
        return
    Path(body["go"]).write_text("go", encoding="utf-8")
    raise LookupError(Path(body["said"]).read_text(encoding="utf-8"))


def logging_in_a_fork(_: Delivery) -> None:
    """Log in this process, and in a process that it forks."""
    pid = os.fork()
    logging.getLogger("shop").warning("from the %s", "child" if pid else "fork")
    if pid:
        os.waitpid(pid, 0)


def leaving_a_thread_that_never_ends(_: Delivery) -> None:
    """Return, and leave a thread behind for which the interpreter waits at its exit."""
    child_main.EXITS_WITHIN = 0.01
    threading.Thread(target=threading.Event().wait).start()


def terminating_a_fork(delivery: Delivery) -> None:
    """Fork a process that waits without an end, terminate it, and note its exit code: None if it did not end."""
    forked = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
    forked.start()
    forked.terminate()
    forked.join(DEADLINE)
    note(delivery, forked.exitcode)
    forked.kill()


class Unprintable(Exception):
    def __str__(self) -> str:
        message = "no text"
        raise ValueError(message)


class UnprintableRetry(Unprintable, Retry):
    """A retry, whatever its text."""


def asking_in_vain(delivery: Delivery) -> None:
    """Raise, or call, what the body says: an outcome or a call that there is not, or an error without a text."""
    body: Any = delivery.body
    match body["asks"]:
        case "a retry at no moment":
            raise Retry(after="soon")
        case "a snooze in no time zone":
            raise Snooze(datetime(2030, 1, 1))  # noqa: DTZ001 - naive on purpose
        case "a reason without a text":
            raise Reject(Unprintable())  # type: ignore[arg-type]  # as an error is given in the place of its text
        case "a retry without a text":
            raise UnprintableRetry
        case "nothing, by an error without a text":
            raise Unprintable
        case "a unique follow-up":
            delivery.then(Message("second", key="k", unique="keep"))
        case "an error in the place of a reason":
            delivery.reject(LookupError("no such address"))  # type: ignore[arg-type]  # as above
        case _:
            delivery.ack()


def building_a_dispatcher(call: Call) -> None:
    """What a module does at its import that builds its dispatcher there."""
    Dispatcher.builder().queue(MessageQueue.builder().store("memory://").name("q").build()).handler(
        call, kind="process"
    ).build()


class Level(IntEnum):
    NOTICE = 35


def logging_oddly(_: Delivery) -> None:
    """Log a line that does not fit its values, and one by members of enums."""
    logging.getLogger("shop").warning("%d messages", "two")
    logging.getLogger(Tenant.ADA).log(Level.NOTICE, "sold out")
