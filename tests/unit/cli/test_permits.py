"""`astyqueue queues permits`, and the setting that it is about."""

from __future__ import annotations

from astyqueue.queue.connection import Connection
from tests.unit.cli.conftest import Shell


def test_a_limit_of_processes_is_set_and_who_claims_and_who_stands_by_is_shown(
    shell: Shell, connection: Connection
) -> None:
    active, other = connection.queue("emails"), connection.queue("emails")
    assert shell("queues", "permits", "emails").stdout == "any number of processes may claim: it has no limit\n"
    shell("queues", "set", "emails", "max-active-processes=1")
    assert shell("queues", "permits", "emails").stdout == "no process claims now\n"
    for queue in (active, other):
        queue.core.settings_sync.settings = connection.queue("emails").settings
        assert not queue.receive()
    found = shell.json("queues", "permits", "emails")
    names = [queue.core.process.name for queue in (active, other)]
    assert [(one["process"], one["state"]) for one in found] == list(zip(names, ["active", "standby"], strict=True))
    lines = shell("queues", "permits", "emails").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["process", *names]
    shell("queues", "set", "emails", "max-active-processes=0")
    assert shell.json("queues", "permits", "emails") == []
    assert "at most 100" in shell.error("queues", "set", "emails", "max-active-processes=101", code=2)
