"""Mistakes about unique keys, schedules, repeated sends, and what reading and sending cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from unittest import mock

from astyqueue.ids import Id
from astyqueue.protocol.layout import unique_key
from astyqueue.protocol.layout.columns import Type, message_name
from astyqueue.protocol.sending import unique
from astyqueue.protocol.steps import Commit
from astyqueue.queue.producing import producer
from astyqueue.store import Batch, Expectation, Outcome, Put
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.cassandra.network import Coordinating
from tests.simulation.cassandra.replica import Replica
from tests.simulation.cassandra.storage import DELETED, Row
from tests.simulation.mutants.mutant import Asked, Patches, Planted, asking_otherwise, without

_MESSAGES: Final = (bytes((Type.KEY,)), bytes((Type.TIMER,)))


def _without_puts(kind: Type) -> Any:  # noqa: ANN401 - a way of meddling
    def change(asked: Asked) -> Asked:
        if not isinstance(asked, Commit):
            return asked
        return replace(
            asked, batch=replace(asked.batch, puts=tuple(put for put in asked.batch.puts if put.name.type != kind))
        )

    return asking_otherwise(change)


def _dying_with_their_keys(asked: Asked) -> Asked:
    if not isinstance(asked, Commit) or not any(put.name.type == Type.DEAD for put in asked.batch.puts):
        return asked
    return replace(
        asked, batch=replace(asked.batch, deletes=tuple(name for name in asked.batch.deletes if name.type != Type.KEY))
    )


def _firing_blindly(asked: Asked) -> Asked:
    if isinstance(asked, Commit) and any(put.name.type == Type.TRIGGER for put in asked.batch.puts):
        return replace(asked, expects=())
    return asked


def _stamped_with_sending(priority: int, id_: Id, value: bytes, *, sent: int) -> Put:
    return Put(message_name(priority, id_), value, sent)


def _walking() -> list[Patches]:
    honest = Cluster._commit  # noqa: SLF001 - the mistake is made there

    def careless(
        cluster: Cluster, batch: Batch, expects: tuple[Expectation, ...], home: Replica
    ) -> Coordinating[Outcome]:
        """A condition on a static column has the server look for the first living column, over all graves before it."""
        for cell in home.rows.get(batch.row, Row()).between(*_MESSAGES).values():
            if cell.kind != DELETED:
                break
            cluster.graves[batch.row] += 1
        return (yield from honest(cluster, batch, expects, home))

    return [mock.patch.object(Cluster, "_commit", careless)]


HOMES: Final = (
    Planted("keys taken and freed without conditions", 1_000, meddling=without(Type.KEY), first=130),
    Planted(
        "a key freed without its owner's check",
        4_000,
        lambda: [mock.patch.object(unique_key, "_names", return_value=True)],
        first=100,
    ),
    Planted("dead letters keep their keys", 100, meddling=asking_otherwise(_dying_with_their_keys)),
    Planted(
        "a unique send of unknown outcome is repeated",
        400,
        lambda: [mock.patch.object(unique._Sending, "_has_arrived", return_value=False)],  # noqa: SLF001 - the mistake is made there
        first=220,
    ),
    Planted("slots fired without conditions", 400, meddling=asking_otherwise(_firing_blindly), first=50),
    Planted("repeatable sends leave no mark", 100, meddling=_without_puts(Type.REMOVED)),
    Planted("a condition on a static column", 100, _walking),
    Planted(
        "stamps from the moment of sending",
        400,
        lambda: [mock.patch.object(producer, "message_put", _stamped_with_sending)],
    ),
)
