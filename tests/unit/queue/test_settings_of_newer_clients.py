"""Queues whose stored settings a newer client changed while this one is open: work goes on by what this one knows."""

from __future__ import annotations

import json

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import BadInput, Undecodable
from astyqueue.protocol.admin.settings import SETTINGS
from astyqueue.protocol.layout.rows import settings_row
from astyqueue.store import Batch, Put, Slice, Store
from astyqueue.testing import TimeMachine


def stored(store: Store) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(store.read((Slice(settings_row("emails"), 0),))[0][0].value[1:])
    return found


def overwrite(store: Store, value: bytes) -> None:
    store.commit(Batch(settings_row("emails"), (Put(SETTINGS, value),)), ())


def newer(store: Store, **behaviour: object) -> bytes:
    settings = stored(store)
    settings["behaviour"] |= behaviour
    return b"\x01" + json.dumps(settings).encode()


@pytest.mark.parametrize("format_byte", [b"\x01", b"\x02"])
@pytest.mark.every_store
def test_sends_and_receives_go_on_with_the_last_settings_known(
    queue: MessageQueue, store: Store, clock: TimeMachine, caplog: pytest.LogCaptureFixture, format_byte: bytes
) -> None:
    queue.configure(max_attempts=9)
    overwrite(store, format_byte + newer(store, max_attempts="unlimited", rate=5)[1:])
    for _ in range(3):
        clock.advance("6s")
        queue.send("body")
        [delivery] = queue.receive(5)
        delivery.ack()
    assert queue.settings.behaviour.max_attempts == 9
    told = [record.message for record in caplog.records if "astyqueue.queue" in record.name]
    assert len(told) == 1, "it is said once"
    assert "settings" in told[0]


def test_what_can_be_read_is_followed(queue: MessageQueue, store: Store, clock: TimeMachine) -> None:
    overwrite(store, newer(store, rate=5, paused=True))
    clock.advance("6s")
    queue.send("body")
    assert not queue.receive(5)
    assert queue.settings.behaviour.paused


def test_an_older_client_keeps_what_it_does_not_know_when_it_changes_something_else(
    queue: MessageQueue, store: Store
) -> None:
    overwrite(store, newer(store, rate=5))
    queue.configure(lease="5m")
    assert (stored(store)["behaviour"]["rate"], stored(store)["behaviour"]["lease_us"]) == (5, 300_000_000)


def test_settings_of_a_newer_format_are_not_changed(queue: MessageQueue, store: Store) -> None:
    overwrite(store, b"\x02{}")
    with pytest.raises(Undecodable, match="format byte 02"):
        queue.configure(lease="5m")
    with pytest.raises(BadInput, match="no setting"):
        queue.configure(rate=5)
