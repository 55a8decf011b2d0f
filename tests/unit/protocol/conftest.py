"""Rows on every store: what the protocol promises has to hold wherever the row is."""

from __future__ import annotations

from typing import Final

import pytest

from tests.places import Place
from tests.unit.protocol.stage import Stage
from tests.unit.protocol.worlds import Scene

#: The stories of these files are told on every store; those of the others make worlds by the thousand, or count reads.
_EVERYWHERE: Final = (
    "browse",
    "claim",
    "clear",
    "dead",
    "delete",
    "firing",
    "keys",
    "redrive",
    "repeatable",
    "row_model",
    "send",
    "settings",
    "settle",
)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Have each of these files told on every store."""
    if isinstance(collector, pytest.Module) and collector.path.stem.removeprefix("test_") in _EVERYWHERE:
        collector.add_marker(pytest.mark.usefixtures("on_every_store"))


@pytest.fixture
def on_every_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has scenes and stages in each kind of store, instead of in memory."""
    monkeypatch.setattr(Scene, "opens", place.store)
    monkeypatch.setattr(Stage, "opens", place.store)
