"""What the app of `astyqueue worker` brings along: its middleware, and its hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue.queue.connection import Connection
from tests.unit.cli.conftest import run

#: What works in another process is to be seen in this one.
pytestmark = pytest.mark.stores("sqlite", "cassandra")

JOBS = """
from astyqueue import App, Hook


class Tell(Hook):
    def after_settle(self, delivery, outcome):
        print("hook", outcome)


def trace(delivery, call_next):
    print("trace", delivery.attempt)
    return call_next(delivery)


app = App(middleware=[trace], hooks=[Tell()])


@app.task(queue="emails")
def note(text: str) -> None:
    print("note", text)
"""


def test_the_middleware_of_the_app_is_around_its_tasks_and_its_hooks_hear_of_their_ends(
    connection: Connection, folder: Path
) -> None:
    (folder / "jobs.py").write_text(JOBS)
    connection.queue("emails").send({"args": ["hello"], "kwargs": {}}, headers={"task": "jobs.note"})
    code, printed, _ = run("worker", "jobs:app", "--max-messages", "1")
    assert (code, printed.splitlines()) == (0, ["trace 1", "note hello", "hook acked"])
