"""Clients whose ids and nonces are the same in every execution."""

from __future__ import annotations

import itertools

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.ids import Id
from astyqueue.protocol.client import Client


def deterministic_client(name: str, clock: Clock) -> Client:
    """A process whose ids and nonces follow from its name alone, so that every execution of a scenario is the same.

    Its ids of one moment do not ascend, as those of several processes do not; give an actor one of its own.
    """
    numbers = itertools.count(1)

    def drawn() -> bytes:
        return ids.of_text(f"{name} {next(numbers)}")[8:]

    def id_at(moment: int) -> Id:
        return ids.first_at(moment)[:8] + drawn()

    return Client(name, clock.now, id_at, drawn)
