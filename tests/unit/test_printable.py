"""What is shown moves no cursor, forges no line and hides nothing."""

from __future__ import annotations

import json
import re
import sys
from unicodedata import category

import pytest

from astyqueue.printable import indented, printable, printable_lines, printable_message, quoted
from tests.support.nasty import HALVES, TEXTS


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 東京\u3000 שלום \U0001f9e8", "plain é 東京\u3000 שלום \U0001f9e8"),
        ("", ""),
        ("\x1b]0;title\x07\x1b[2J", r"\u001b]0;title\u0007\u001b[2J"),
        ("one\ntwo\r\n", r"one\ntwo\r\n"),
        ("\0\x7f\x85\x9b", r"\u0000\u007f\u0085\u009b"),
        ("\u202egpj.exe \u2066 \u200b \ufeff", r"\u202egpj.exe \u2066 \u200b \ufeff"),
        ("one\u2028two\u2029", r"one\u2028two\u2029"),
        ("half \ud800", r"half \ud800"),
        ("tag \U000e0041", r"tag \udb40\udc41"),
    ],
)
def test_what_is_not_printable_is_written_as_json_writes_it(text: str, shown: str) -> None:
    assert printable(text) == shown


TELLING = "\x1b[2J \x7f \x9b \u202e \n \U000e0041 \\ \\x1b ' \" é\xa0"


def test_a_message_writes_what_it_quotes_as_json_does() -> None:
    [inside] = re.findall(r'^no queue "(.*)"$', printable_message(f'no queue "{repr(TELLING)[1:-1]}"'))
    assert inside == r"""\u001b[2J \u007f \u009b \u202e \n \udb40\udc41 \\ \\x1b \' " é\u00a0"""
    assert printable_message(r"C:\\x1b") == r"C:\\x1b"
    assert printable_message("\x1b[2J") == r"\u001b[2J"


def test_what_is_quoted_is_json_on_one_line() -> None:
    assert quoted(TELLING) == printable(json.dumps(TELLING, ensure_ascii=False))
    assert json.loads(quoted(TELLING)) == TELLING


def test_of_all_characters_none_is_left_that_does_anything() -> None:
    shown = printable("".join(map(chr, range(sys.maxunicode + 1))))
    assert {category(character) for character in shown if not character.isprintable()} == {"Zs"}
    assert shown.isascii() is False


@pytest.mark.parametrize("text", [*TEXTS.values(), HALVES])
def test_json_stays_json_of_the_same_values(text: str) -> None:
    value = {text: [text]}
    for ascii_only in (True, False):
        assert json.loads(printable(json.dumps(value, ensure_ascii=ascii_only))) == value


def test_lines_stay_lines_if_they_are_ours_and_have_a_margin_if_they_are_not() -> None:
    assert printable_lines("one\r\ntwo\x1b") == "one\\r\ntwo\\u001b"
    assert indented("Traceback\n2026-11-21 forged\x1b") == "    Traceback\n    2026-11-21 forged\\u001b"
