"""For tests of code that uses astyqueue: a manual clock, stores that fail on demand, and a local Cassandra."""

from __future__ import annotations

from astyqueue.testing.cassandra import LocalCassandra
from astyqueue.testing.faults import Failing, Faulty, Recording, Unguarded
from astyqueue.testing.timemachine import TimeMachine

__all__ = ["Failing", "Faulty", "LocalCassandra", "Recording", "TimeMachine", "Unguarded"]
