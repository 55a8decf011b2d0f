from __future__ import annotations

import pytest

from tests.style.sizes import sizes
from tests.style.source import Source

NESTED = """
def busy(rows):
    for row in rows:
        if row:
            with row:
                {fourth}:
                    row.go()
"""


def told(text: str, path: str = "astyqueue/planted.py") -> list[tuple[int, str]]:
    return [(finding.line, finding.what) for finding in sizes(Source(path, text))]


def function_of(lines: int, docstring: str = "") -> str:
    return f"def long():\n{docstring}" + "    step()\n" * lines


def class_of(lines: int) -> str:
    return "class Long:\n" + "    field = 1\n" * (lines - 1)


def test_a_file_may_have_450_lines_and_not_one_more() -> None:
    assert told("a = 1\n" * 450) == []
    assert told("a = 1\n" * 451) == [(451, "the file has 451 lines")]


def test_a_class_may_have_250_lines_and_not_one_more() -> None:
    assert told(class_of(250)) == []
    assert told(class_of(251)) == [(1, "class Long has 251 lines")]


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_function_body_may_have_40_lines_and_not_one_more(kind: str) -> None:
    assert told(kind + function_of(40)) == []
    assert told(kind + function_of(41)) == [(1, "the body of long has 41 lines")]


def test_the_docstring_of_a_function_is_not_counted() -> None:
    docstring = '    """Take\n\n    long.\n    """\n'
    assert told(function_of(40, docstring)) == []
    assert told(function_of(41, docstring)) == [(1, "the body of long has 41 lines")]


def test_a_decorated_function_at_the_top_of_a_body_counts_with_its_decorators() -> None:
    inner = "    @one\n    @two\n    def inner():\n        return 1\n"
    assert told("def outer():\n" + inner + "    step()\n" * 36) == []
    assert told("def outer():\n" + inner + "    step()\n" * 37) == [(1, "the body of outer has 41 lines")]


@pytest.mark.parametrize(
    "fourth", ["if row", "for cell in row", "while row", "with row", "async with row", "async for cell in row"]
)
def test_a_fourth_block_inside_three_is_too_deep(fourth: str) -> None:
    assert told("async " + NESTED.format(fourth=fourth).lstrip()) == [(5, "busy nests deeper than 3 blocks")]


@pytest.mark.parametrize("handler", ["except ValueError", "except* ValueError", "finally"])
def test_a_try_is_a_block_and_its_handlers_add_none(handler: str) -> None:
    text = (
        "def careful(rows):\n  for row in rows:\n    if row:\n"
        f"      try:\n        row()\n      {handler}:\n        row.undo()\n"
    )
    assert told(text) == []
    assert told(text.replace("row.undo()", "if row: row.undo()")) == [(7, "careful nests deeper than 3 blocks")]


def test_elif_adds_no_depth_and_an_if_in_an_else_does() -> None:
    outer = "def choose(a):\n  for b in a:\n    if b:\n        if b > 1:\n            return 1\n"
    assert told(outer + "        elif b > 2:\n            return 2\n        else:\n            return 3\n") == []
    assert told(outer + "        else:\n            if b > 2:\n                return 2\n            a()\n") == [
        (7, "choose nests deeper than 3 blocks")
    ]


def test_a_block_is_found_where_a_match_has_it() -> None:
    outer = "def choose(a):\n  with a:\n    for b in a:\n        if b:\n            match b:\n                case 1:\n"
    assert told(outer + "                    a()\n") == []
    assert told(outer + "                    if a: a()\n") == [(7, "choose nests deeper than 3 blocks")]

    text = (
        "def outer(a):\n  for b in a:\n    if b:\n        if b > 1:\n            def inner(c):\n"
        "                if c:\n                    return c\n"
    )
    assert told(text) == []


@pytest.mark.parametrize(
    "parameters", ["a, b, c, d, e, f", "a, /, b, c, d, e, f", "a, b, c, d, e, f=1", "a, b, c, d, e, f, *, g"]
)
def test_a_sixth_positional_parameter_is_one_too_many(parameters: str) -> None:
    assert told(f"def call({parameters}): ...") == [(1, "call takes 6 positional parameters")]


@pytest.mark.parametrize("parameters", ["a, b, c, d, e", "a, b, c, d, e, *, f, g", "a, b, c, d, e, *more, **named"])
def test_parameters_by_keyword_are_free(parameters: str) -> None:
    assert told(f"def call({parameters}): ...") == []


def test_self_and_cls_are_not_counted_but_a_static_method_has_neither() -> None:
    method = "class Plan:\n    {decorator}\n    def call(first, a, b, c, d, e): ...\n"
    assert told(method.format(decorator="@classmethod")) == []
    assert told(method.format(decorator="")) == []
    assert told(method.format(decorator="@staticmethod")) == [(3, "call takes 6 positional parameters")]


def test_tests_may_take_as_many_fixtures_as_they_need() -> None:
    text = "def test_it(a, b, c, d, e, f): ..."
    assert told(text, "tests/unit/test_planted.py") == []
    assert len(told(text, "benchmarks/planted.py")) == len(told(text, "examples/planted.py")) == 1


@pytest.mark.parametrize("made", ["Lease", "model._Lease", "cls"])
def test_a_class_is_made_of_at_most_five_values_without_their_names(made: str) -> None:
    name = made.rpartition(".")[2]
    assert told(f"{made}(1, 2, 3, 4, 5)") == told(f"{made}(1, 2, 3, d=4, e=5, f=6)") == []
    assert told(f"{made}(1, 2, 3, 4, 5, 6)") == [(1, f"{name} is made of 6 positional values")]


def test_functions_with_any_number_of_values_are_called_without_names() -> None:
    assert told("print(1, 2, 3, 4, 5, 6)") == told("self._max(1, 2, 3, 4, 5, 6)") == []
    assert told("Lease(1, 2, 3, 4, 5, 6)", "tests/unit/test_planted.py") == []
