"""Rows on every store: what the protocol promises has to hold wherever the row is."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.support.places import Place
from tests.unit.protocol.fault_budgets import PLAIN
from tests.unit.protocol.stage import Stage
from tests.unit.protocol.worlds import Scene

#: The tests of these files run on every store; those of the others make worlds by the thousand, or count reads.
_EVERYWHERE: Final = (
    "browse",
    "claim",
    "clear",
    "dead_letters",
    "delete",
    "firing",
    "keys",
    "redrive",
    "idempotent",
    "row_model",
    "send",
    "settings",
    "settle",
)

#: Of the scenarios with faults, `make test` explores one in this many, always the same ones; `make test-full` explores
#: all. Of the eight parts this one has the fewest orders to play, and every kind of fault.
_ONE_IN: Final = 8
_PART: Final = 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (
            Path(__file__).parent in item.path.parents
            and _is_befallen(item)
            and crc32(item.name.encode()) % _ONE_IN != _PART
        ):
            item.add_marker(pytest.mark.full)


def _is_befallen(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("faults", PLAIN) != PLAIN


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Run each of these files on every store."""
    if isinstance(collector, pytest.Module) and collector.path.stem.removeprefix("test_") in _EVERYWHERE:
        collector.add_marker(pytest.mark.usefixtures("on_every_store"))


@pytest.fixture
def on_every_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has scenes and stages in each kind of store, instead of in memory."""
    monkeypatch.setattr(Scene, "opens", place.store)
    monkeypatch.setattr(Stage, "opens", place.store)
