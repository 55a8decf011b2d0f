"""For tests of code that uses astyqueue: time in the hand, every interleaving of operations, and stores that misbehave."""

from __future__ import annotations

from astyqueue.testing.cassandra import LocalCassandra
from astyqueue.testing.faults import Failing, Faulty, Recording, Unguarded
from astyqueue.testing.interleaving import Explored, Violation, explore, replay
from astyqueue.testing.processes import repeatable_process
from astyqueue.testing.proxy import Proxy
from astyqueue.testing.rehearsal import Event, History, World
from astyqueue.testing.schedule import Choice, Mode, Schedule, Tick, ticking
from astyqueue.testing.timemachine import TimeMachine

__all__ = [
    "Choice",
    "Event",
    "Explored",
    "Failing",
    "Faulty",
    "History",
    "LocalCassandra",
    "Mode",
    "Proxy",
    "Recording",
    "Schedule",
    "Tick",
    "TimeMachine",
    "Unguarded",
    "Violation",
    "World",
    "explore",
    "repeatable_process",
    "replay",
    "ticking",
]
