"""For tests of code that uses astyqueue: a manual clock, stores that fail on demand, and a local Cassandra.

- `TimeMachine`: a clock that stands still until a test moves it.
- `Failing`, `Recording`, `Faulty`: stores that fail at a chosen request, list their requests, or do what a test says.
  `Read`, `Send` and `Commit` are the kinds of requests.
- `LocalCassandra`: real nodes on this machine, which a test can stop, kill and restart.
- `conformance.StoreConformance`: the promises of a store as tests, for a store of your own. It needs pytest.
- `cassandra.fixtures`: a pytest plugin with an empty keyspace for each test.

docs/how-to/testing.md shows each of them in a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from astyqueue.lazy_imports import lazy_imports
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.testing.faults import Failing, Faulty, Recording
from astyqueue.testing.timemachine import TimeMachine

if TYPE_CHECKING:
    from astyqueue.testing.cassandra import LocalCassandra

__all__ = ["Commit", "Failing", "Faulty", "LocalCassandra", "Read", "Recording", "Send", "TimeMachine"]

# Only tests with nodes load the driver.
__getattr__ = lazy_imports(globals(), {"LocalCassandra": "cassandra"})
