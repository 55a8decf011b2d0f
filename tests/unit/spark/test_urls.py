"""A store's URL as Spark hands it to its workers, which start in other directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue.spark.options import everywhere
from astyqueue.stores.url import locate


@pytest.mark.parametrize("folder", ["plain", "a%20b", "a b", "what?", "über"])
@pytest.mark.parametrize(
    ("written", "meant"), [("work.db", "work.db"), ("my%20work.db", "my work.db"), ("what%3F.db", "what?.db")]
)
def test_a_relative_url_names_the_same_file_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, written: str, meant: str
) -> None:
    here = tmp_path / folder
    here.mkdir()
    monkeypatch.chdir(here)
    found = everywhere(f"sqlite:///{written}?synchronous=normal")
    monkeypatch.chdir("/")
    assert locate(found).place == f"/{here}/{meant}"
    assert locate(found).options == {"synchronous": "normal"}


@pytest.mark.parametrize(
    "url", ["sqlite:////var/work.db", "sqlite:////var/my%20work.db", "cassandra://user:p%2Fw@host/work"]
)
def test_an_absolute_url_stays_as_it_is(url: str) -> None:
    assert everywhere(url) == url
