"""Rows on every store: what the protocol promises has to hold wherever the row is."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.support.places import Place
from tests.unit.protocol.fault_budgets import PLAIN, named
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

#: Of the scenarios of a test with faults of one kind, `make test` explores one in this many, always the same ones and
#: at least one; `make test-full` explores all.
_ONE_IN: Final = 16


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    alike: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if Path(__file__).parent in item.path.parents and (faults := _faults(item)):
            alike[item.nodeid.partition("[")[0], faults].append(item)
    for scenarios in alike.values():
        scenarios.sort(key=lambda item: crc32(item.name.encode()))
        for number, item in enumerate(scenarios):
            if number % _ONE_IN:
                item.add_marker(pytest.mark.full)


def _faults(item: pytest.Item) -> str:
    """What befalls the actors of this test; empty for nothing, and for a test that is left to the full run anyway."""
    call = getattr(item, "callspec", None)
    faults = PLAIN if call is None or item.get_closest_marker("full") else call.params.get("faults", PLAIN)
    return "" if faults == PLAIN else named(faults)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Run each of these files on every store."""
    if isinstance(collector, pytest.Module) and collector.path.stem.removeprefix("test_") in _EVERYWHERE:
        collector.add_marker(pytest.mark.usefixtures("on_every_store"))


@pytest.fixture
def on_every_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has scenes and stages in each kind of store, instead of in memory."""
    monkeypatch.setattr(Scene, "opens", place.store)
    monkeypatch.setattr(Stage, "opens", place.store)
