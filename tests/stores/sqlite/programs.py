"""Programs that tests run in processes of their own, on a store in a file."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

#: Seconds after which a process that has not ended counts as hanging.
PATIENCE = 100

#: The first lines of every program; `store` is on the file whose URL the test passes.
BEGINNING = """
import os, sys, threading
from astyqueue import ids
from astyqueue.clock import SystemClock
from astyqueue.errors import Closed
from astyqueue.store import Batch, Committed, Expectation, Name, Named, Put, Slice
from astyqueue.stores import open_store

ROW, COUNTER = "emails:0:0", Name(0, 0, ids.LEAST, 0)

def name(order, state=1):
    return Name(2, 0, ids.first_at(order), state)

def there(store):
    return {column.name for column in store.read((Slice(ROW, 2),))[0]}

def waited(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def in_child(work):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)

store = open_store(sys.argv[1], clock=SystemClock())
"""

Start = Callable[[str], "subprocess.Popen[str]"]


def finish(process: subprocess.Popen[str]) -> None:
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
