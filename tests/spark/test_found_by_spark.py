"""What a worker of Spark finds by itself."""

from __future__ import annotations

import importlib
import sys

import pytest

import pyspark_astyqueue
from astyqueue.spark.data_source import AstyqueueSource


def test_the_source_is_found_by_the_name_of_its_module() -> None:
    assert pyspark_astyqueue.DefaultSource is AstyqueueSource


def test_where_the_source_cannot_be_had_those_of_others_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "astyqueue.spark.data_source", None)
    monkeypatch.delitem(sys.modules, "pyspark_astyqueue")
    assert not hasattr(importlib.import_module("pyspark_astyqueue"), "DefaultSource")
