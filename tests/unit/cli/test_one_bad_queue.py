"""One queue that cannot be read keeps no command from the others."""

from __future__ import annotations

import json

from astyqueue.protocol.admin.settings import SETTINGS
from astyqueue.protocol.layout.rows import settings_row
from astyqueue.queue.connection import Connection
from astyqueue.store import Batch, Put
from tests.unit.cli.conftest import Shell


def damage(connection: Connection, queue: str) -> None:
    """Have the settings of a queue be of a later release."""
    connection.queue(queue)
    connection.store.send(Batch(settings_row(queue), (Put(SETTINGS, b"\x63", 1 << 62),)))


def test_all_other_queues_are_counted_and_the_exit_code_tells_of_the_one(shell: Shell, connection: Connection) -> None:
    connection.queue("emails").send(1)
    connection.queue("orders").send_many([1, 2])
    damage(connection, "newer")
    result = shell("counts", "--json", code=1)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["queue"], one["waiting"]) for one in found] == [("emails", 1), ("orders", 2)]
    [warning] = result.stderr.splitlines()
    assert "row newer:settings" in warning
    assert "row newer:settings" in shell.error("counts", "emails", "newer", code=1)


def test_all_other_queues_are_listed_and_the_exit_code_tells_of_the_one(shell: Shell, connection: Connection) -> None:
    connection.queue("emails")
    damage(connection, "newer")
    result = shell("queues", "list", "--json", code=1)
    assert json.loads(result.stdout)["name"] == "emails"
    [warning] = result.stderr.splitlines()
    assert "row newer:settings" in warning
