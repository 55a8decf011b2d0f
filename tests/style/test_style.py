from __future__ import annotations

from pathlib import Path

import pytest

from tests.style.__main__ import ROOT, findings
from tests.style.source import Source
from tests.style.words import words, words_of_pages


@pytest.mark.full  # `make check` comes before `make test`, and looks at the same
def test_nothing_in_the_project_breaks_a_rule_of_the_house() -> None:
    assert [str(finding) for finding in findings(ROOT)] == []


def test_every_python_file_of_the_project_is_looked_at_and_nothing_that_tools_made(tmp_path: Path) -> None:
    unfinished = "# TODO\n"
    for path in (
        "top.py",
        "examples/deep/planted.py",
        "tests/planted.py",
        ".venv/made.py",
        "build/made.py",
        "dist/made.py",
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(unfinished, encoding="utf-8")
    assert {finding.path for finding in findings(tmp_path)} == {
        "top.py",
        "examples/deep/planted.py",
        "tests/planted.py",
    }


def test_a_finding_says_where_what_and_the_budget(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("def call(a, b, c, d, e, f): ...\n", encoding="utf-8")
    assert [str(finding) for finding in findings(tmp_path)] == [
        "planted.py:1: call takes 6 positional parameters (budget 5, self excluded)"
    ]


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
