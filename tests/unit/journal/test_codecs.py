"""Codecs of a journal: which values come back, and what is refused as it is appended or read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from astyqueue.errors import BadInput, BadSetting
from astyqueue.journal import BYTES, JSON, UTF8, Codec, Journal, ReadOnlyJournal, TextCodec
from astyqueue.journal_errors import UndecodableRecord
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER


def test_codecs_bring_back_text_bytes_and_json(tmp_path: Path) -> None:
    cases: list[tuple[str, Codec[Any], object]] = [
        ("text", UTF8, "Zoë"),
        ("latin", TextCodec("latin-1"), "Zoë"),
        ("bytes", BYTES, b"\0\xff"),
        ("json", JSON, {"to": ["ada", None, 1.5]}),
    ]
    for name, codec, value in cases:
        with Journal.open(tmp_path, prefix=name, codec=codec) as journal:
            journal.append(value)
            assert [record.value for record in journal.read()] == [value]


class Refusing(Codec[object]):
    def encode(self, value: object) -> bytes:
        return None if value is None else b"1"  # type: ignore[return-value]  # a defect of a user's codec

    def decode(self, data: bytes) -> object:
        raise ValueError(data)


def test_a_codec_that_makes_no_bytes_has_nothing_appended() -> None:
    with Journal.open(FOLDER, codec=Refusing(), disk=SimulatedDisk()) as journal:
        with pytest.raises(BadInput, match="NoneType"):
            journal.append(None)
        assert journal.stat().last_sequence == 0
        with pytest.raises(TypeError):
            Journal.append_many(journal, 5)  # type: ignore[arg-type]  # a caller's mistake


def test_a_record_that_its_codec_refuses_is_an_error_behind_which_reading_continues() -> None:
    with Journal.open(FOLDER, codec=Refusing(), disk=SimulatedDisk()) as journal:
        journal.append_many([1, 2])
        reader = journal.read()
        for sequence in (1, 2):
            with pytest.raises(UndecodableRecord, match=f"record {sequence}") as refused:
                next(reader)
            assert refused.value.sequence == sequence
        assert list(reader) == []


class Order(BaseModel):
    number: int


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("nan"), "value is a float that is infinite or nan"),
        ({1, 2}, r"value is of type set, which has no JSON form: give text, numbers, lists and dicts"),
        (object(), "value is of type object"),
        ({"at": datetime(2026, 11, 21, tzinfo=UTC)}, r"value\['at'\] is of type datetime"),
        ({1: 2}, "value has a key of type int: keys are text in JSON"),
        (["half \ud800"], r"value\[0\] is not valid Unicode"),
        ({"\ud800": 1}, "a key of value is not valid Unicode"),
        (10**5_000, "value cannot be read back as JSON .*: .*give very long numbers as text"),
    ],
    ids=["nan", "set", "object", "moment", "key", "text", "text of a key", "digits"],
)
def test_a_value_without_a_json_form_is_refused_as_a_message_body_is(tmp_path: Path, value: object, told: str) -> None:
    with Journal.open(tmp_path) as journal:
        for append in (
            journal.append,
            lambda value: journal.append_many([value]),
            lambda value: journal.append_and_flush([value]),
            lambda value: list(journal.persist([value])),
        ):
            with pytest.raises(BadInput, match=told):
                append(value)
        assert journal.stat().last_sequence == 0


def test_tuples_and_models_come_back_as_lists_and_dicts(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        journal.append({"orders": (Order(number=1), Order(number=2)), "to": "Zoë", "sum": 1.5})
        [record] = journal.read()
    assert record.value == {"orders": [{"number": 1}, {"number": 2}], "to": "Zoë", "sum": 1.5}


@pytest.mark.parametrize("wrong", ["json", b"json", None, json, Refusing.encode])
def test_what_is_no_codec_is_refused_when_a_journal_is_opened_and_nothing_is_created(
    tmp_path: Path,
    wrong: Any,  # noqa: ANN401 - wrong types are the point
) -> None:
    with pytest.raises(BadSetting, match=r"codec is .*\): give JSON, UTF8"):
        Journal.open(tmp_path / "journal", codec=wrong)
    with pytest.raises(BadSetting, match=r"codec is .*\): give JSON, UTF8"):
        ReadOnlyJournal.open(tmp_path, codec=wrong)
    assert list(tmp_path.iterdir()) == []
