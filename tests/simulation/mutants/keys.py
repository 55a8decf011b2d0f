"""Mutants of unique keys, schedules, repeated sends, and what reading and sending cost."""

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
from tests.simulation.mutants.mutant import Mutant, Patches, StoreRequest, asking_otherwise, without

_MESSAGES: Final = (bytes((Type.KEY,)), bytes((Type.TIMER,)))


def _without_puts(kind: Type) -> Any:  # noqa: ANN401 - an interceptor
    def change(request: StoreRequest) -> StoreRequest:
        if not isinstance(request, Commit):
            return request
        return replace(
            request,
            batch=replace(request.batch, puts=tuple(put for put in request.batch.puts if put.name.type != kind)),
        )

    return asking_otherwise(change)


def _dying_with_their_keys(request: StoreRequest) -> StoreRequest:
    if not isinstance(request, Commit) or not any(put.name.type == Type.DEAD for put in request.batch.puts):
        return request
    return replace(
        request,
        batch=replace(request.batch, deletes=tuple(name for name in request.batch.deletes if name.type != Type.KEY)),
    )


def _firing_blindly(request: StoreRequest) -> StoreRequest:
    if isinstance(request, Commit) and any(put.name.type == Type.TRIGGER for put in request.batch.puts):
        return replace(request, expects=())
    return request


def _stamped_with_sending(priority: int, id_: Id, value: bytes, *, sent: int) -> Put:
    return Put(message_name(priority, id_), value, sent)


def _reading_static_column() -> list[Patches]:
    original = Cluster._commit  # noqa: SLF001 - the mistake is made there

    def mutated(
        cluster: Cluster, batch: Batch, expects: tuple[Expectation, ...], local: Replica
    ) -> Coordinating[Outcome]:
        """A condition on a static column makes the server read past all tombstones to the first live column."""
        for cell in local.rows.get(batch.row, Row()).between(*_MESSAGES).values():
            if cell.kind != DELETED:
                break
            cluster.tombstones[batch.row] += 1
        return (yield from original(cluster, batch, expects, local))

    return [mock.patch.object(Cluster, "_commit", mutated)]


KEY_MUTANTS: Final = (
    Mutant("keys taken and freed without conditions", 1_000, interceptor=without(Type.KEY), first=270),
    Mutant(
        "a key freed without its owner's check",
        4_000,
        lambda: [mock.patch.object(unique_key, "_names_one_of", return_value=True)],
    ),
    Mutant("dead letters keep their keys", 100, interceptor=asking_otherwise(_dying_with_their_keys)),
    Mutant(
        "a unique send of unknown outcome is repeated",
        400,
        lambda: [mock.patch.object(unique._Sending, "_has_arrived", return_value=False)],  # noqa: SLF001 - the mistake is made there
        first=24,
    ),
    Mutant("occurrences fired without conditions", 400, interceptor=asking_otherwise(_firing_blindly), first=50),
    Mutant("repeatable sends leave no mark", 100, interceptor=_without_puts(Type.REMOVED)),
    Mutant("a condition on a static column", 100, _reading_static_column),
    Mutant(
        "stamps from the moment of sending",
        400,
        lambda: [mock.patch.object(producer, "message_put", _stamped_with_sending)],
    ),
)
