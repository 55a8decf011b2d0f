"""Calls, functions, files and round trips of seven operations on one message.

Counted, not timed: each operation is done once to warm up and once under a profile function, on a store in memory and
in one row. Only code of astyqueue counts, a generator that goes on counts as called once more. Uses nothing but the
public interface, so that it measures an older commit as it stands.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import astyqueue
from astyqueue import Delivery, Dispatcher, MessageQueue
from astyqueue.testing import Recording, TimeMachine
from astyqueue.triggers import Every

_PACKAGE: Final = str(Path(astyqueue.__file__).parent)
_TEST_CODE: Final = str(Path(_PACKAGE, "testing"))


@dataclass(slots=True)
class Counts:
    """What one operation went through."""

    calls: int = 0
    hops: int = 0
    functions: set[CodeType] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    round_trips: int = 0

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """A profile function: counts each call of a function of the package, and those from another of its files."""
        if event != "call" or not _is_ours(file := frame.f_code.co_filename):
            return
        self.calls += 1
        self.functions.add(frame.f_code)
        self.files.add(file)
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        self.hops += file != caller and _is_ours(caller)

    def as_json(self) -> dict[str, int]:
        """The numbers, by name."""
        return {
            "calls": self.calls,
            "functions": len(self.functions),
            "files": len(self.files),
            "hops": self.hops,
            "round_trips": self.round_trips,
        }


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_TEST_CODE)


@contextmanager
def counted(store: Recording) -> Iterator[Counts]:
    """Count what this thread, and those that it starts, do in the block."""
    counts, before = Counts(), len(store.requests)
    threading.setprofile(counts.note)
    sys.setprofile(counts.note)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        counts.round_trips = len(store.requests) - before


class Scene:
    """A queue of one row in memory, and the operations that are counted on it."""

    def __init__(self) -> None:
        """Open it, and do everything once."""
        self.clock = TimeMachine()
        self.store = Recording(_memory(self.clock))
        builder = MessageQueue.builder().store(self.store).clock(self.clock).name("paths")
        self.queue = builder.time_shards(1).concurrency_shards(1).lease("1m").build()
        for _ in range(3):
            for operation in self.operations().values():
                operation()

    def operations(self) -> dict[str, Callable[[], Counts]]:
        """Each operation by its name, in the order of the report."""
        return {
            "send one message": self.send,
            "receive one message": self.receive,
            "ack by its holder": self.ack,
            "extend a lease": self.extend,
            "fire one occurrence and receive its message": self.fire,
            "explain a message": self.explain,
            "a dispatcher from start to drained, one message": self.dispatch,
        }

    def send(self) -> Counts:
        """A send; the message is taken again."""
        with counted(self.store) as counts:
            self.queue.send("hello")
        self._empty()
        return counts

    def receive(self) -> Counts:
        """A receive of one that is there."""
        self.queue.send("hello")
        with counted(self.store) as counts:
            [delivery] = self.queue.receive()
        delivery.ack()
        return counts

    def ack(self) -> Counts:
        """An ack of one that was just received."""
        self.queue.send("hello")
        [delivery] = self.queue.receive()
        with counted(self.store) as counts:
            delivery.ack()
        return counts

    def extend(self) -> Counts:
        """The renewal of a lease."""
        self.queue.send("hello")
        [delivery] = self.queue.receive()
        with counted(self.store) as counts:
            delivery.extend("5m")
        delivery.ack()
        return counts

    def fire(self) -> Counts:
        """A receive that brings the message of an occurrence that has just come."""
        self.queue.send("hello", trigger=Every("1h"), key="hourly")
        self._empty()
        self.clock.advance("1h")
        with counted(self.store) as counts:
            [delivery] = self.queue.receive()
        delivery.ack()
        self.queue.stop("hourly")
        self._empty()
        return counts

    def explain(self) -> Counts:
        """What is known of a message that waits."""
        id_ = self.queue.send("hello").id
        with counted(self.store) as counts:
            self.queue.explain(id_)
        self._empty()
        return counts

    def dispatch(self) -> Counts:
        """One thread for one message, and an orderly end."""
        self.queue.send("hello")
        with counted(self.store) as counts:
            dispatcher = (
                Dispatcher.builder().queue(self.queue).handler(lambda _: None, threads=1).max_messages(1).build()
            )
            dispatcher.run()
        for thread in (
            dispatcher.threads
        ):  # run returns before its last thread has left the queue, and a send would wake that one
            thread.join()
        return counts

    def _empty(self) -> None:
        while deliveries := self.queue.receive(10):
            _ack(deliveries)


def _ack(deliveries: Any) -> None:  # noqa: ANN401 - what was received together, of whatever version of astyqueue
    delivery: Delivery
    for delivery in deliveries:
        delivery.ack()


def _memory(clock: TimeMachine) -> Any:  # noqa: ANN401 - a store of whatever version of astyqueue
    from astyqueue.stores.memory import MemoryStore  # noqa: PLC0415 - where every version has it

    return MemoryStore(clock)


def main(arguments: list[str]) -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks paths", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    scene = Scene()
    found = {name: operation().as_json() for name, operation in scene.operations().items()}
    scene.queue.close()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    columns = list(next(iter(found.values())))
    print(f"{'':<50}" + "".join(f"{column:>13}" for column in columns))
    for name, numbers in found.items():
        print(f"{name:<50}" + "".join(f"{numbers[column]:>13}" for column in columns))
    return 0
