from __future__ import annotations

from pathlib import Path

import pytest

from tests.style.source import Source
from tests.style.words import words, words_of_pages


@pytest.mark.parametrize(
    "text",
    [
        '"""Whoever claims is told."""',
        "x = 1  # kept so long",
        'raise ValueError("5 is no moment")',
        '"""Fine.\n\nNobody waits.\n"""',
    ],
)
def test_a_word_that_hides_the_actor_or_the_number_is_found_in_the_package(text: str) -> None:
    assert [finding.what for finding in words(Source("astyqueue/planted.py", text))]
    assert list(words(Source("tests/planted.py", text))) == []


@pytest.mark.parametrize(
    "text", ['"""There is no message."""', "told = 1", '"""Call `tell` first."""', '"""So long as."""']
)
def test_names_code_and_plain_sentences_are_left_alone(text: str) -> None:
    assert list(words(Source("astyqueue/planted.py", text))) == []


def test_pages_are_read_without_their_code_and_links(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("```\nnobody\n```\n[why](nobody.md) `nobody`\nnobody\n", encoding="utf-8")
    assert [(finding.path, finding.line) for finding in words_of_pages(tmp_path)] == [("docs/page.md", 5)]
