"""What the documents say of names, letters, numbers and places is what the code says, and no link leads nowhere."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import fromstring

import pytest
from pydantic import BaseModel

from astyqueue.durations import as_microseconds
from astyqueue.errors import BadSetting
from astyqueue.model.settings import Behaviour, Layout
from astyqueue.protocol.layout.columns import State, Type
from astyqueue.queue.options import behaviour_of, layout_of
from astyqueue.store import Spread
from astyqueue.stores import open_store
from astyqueue.stores.cassandra.store import CassandraStore
from astyqueue.testing import TimeMachine

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "schema" / "README.md"])
PICTURES: Final = sorted(DOCS.rglob("*.svg"))

_LINK: Final = re.compile(r"!?\[[^]]*]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
#: A page that the code names, and a heading on it.
_SENT: Final = re.compile(r"(docs/[\w/.-]+\.md)(?:#([\w-]+))?")
_FILE: Final = re.compile(r"`((?:astyqueue|schema|tests|docs|examples|benchmarks)/[\w/.-]*)`")
_DOTTED: Final = re.compile(r"`(astyqueue(?:\.\w+)+)`")
_ENTRY: Final = re.compile(r"^- \*\*([^*]+)\*\*( \*\(planned\)\*)?: \S.*$")
#: Code in a line of prose, and the names in it: `forget` alone, `apply_settles` and `RowSnapshot` among other words.
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_NAME: Final = re.compile(
    r"^[a-z]+$|(?<![\w/.-])_?(?:[a-z][a-z0-9]*(?:_[a-z0-9]+)+|(?:[A-Z][a-z][a-z0-9]*)+)(?![\w/-])"
)
#: Names in the explanation that are those of other programs.
_NOT_OURS: Final = {"gc_grace"}
_WORD: Final = re.compile(r"\w+")
_PROSE: Final = re.compile(r'"""[\s\S]*?"""|#.*$', re.MULTILINE)
#: Between the default of a setting and that on Cassandra.
_ON_CASSANDRA: Final = "; on Cassandra "
_SVG: Final = "{http://www.w3.org/2000/svg}"


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def links(page: Path) -> list[tuple[Path, str]]:
    """Where the relative links of a page lead: a file, and a heading in it."""
    targets = [link for link in _LINK.findall(_CODE.sub("", page.read_text())) if not re.match(r"[a-z]+:", link)]
    parted = [target.partition("#") for target in targets]
    return [((page.parent / path).resolve() if path else page, heading) for path, _, heading in parted]


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings: list[str] = _HEADING.findall(_CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table_below(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head; a page's first table if the heading is empty."""
    text = page.read_text()
    lines = text[text.index(f"\n{heading}") :].splitlines() if heading else text.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("|"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:]]
    length = next((at for at, line in enumerate(lines[first:]) if not line.startswith("|")), len(rows))
    return rows[2:length]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_leads_to_a_page_and_a_heading_that_are_there(page: Path) -> None:
    lost = [
        f"{target}#{heading}"
        for target, heading in links(page)
        if not target.exists() or (heading and target.suffix == ".md" and heading not in anchors(target))
    ]
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_page_shows_the_marks_of_a_merge(page: Path) -> None:
    assert not re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", page.read_text(), re.MULTILINE)


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    ahead = [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page.suffix == ".md" and page not in reached:
            ahead += [target for target, _ in links(page)]
        reached.add(page)
    assert {*DOCS.rglob("*.md"), *PICTURES} - reached == set()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_and_names_that_a_page_mentions_are_there(page: Path) -> None:
    text = page.read_text()
    assert [path for path in _FILE.findall(text) if not (ROOT / path).exists()] == []
    assert [name for name in _DOTTED.findall(text) if not exists(name)] == []


def test_each_page_and_heading_to_which_a_finding_or_an_error_sends_people_is_there() -> None:
    sent = {found for source in (ROOT / "astyqueue").rglob("*.py") for found in _SENT.findall(source.read_text())}
    assert len(sent) > 0
    assert [f"{page}#{heading}" for page, heading in sent if heading not in {"", *anchors(ROOT / page)}] == []


def test_each_name_in_the_explanation_is_one_of_the_code() -> None:
    modules = [*ROOT.glob("astyqueue/**/*.py"), *ROOT.glob("tests/**/*.py")]
    ours = _NOT_OURS.union(*(names_of(path) for path in modules))
    lost = [
        f"{named(page)}: {name}"
        for page in sorted((DOCS / "explanation").glob("*.md"))
        for span in _SPAN.findall(_CODE.sub("", page.read_text()))
        for name in _NAME.findall(span)
        if name not in ours
    ]
    assert lost == []


def names_of(path: Path) -> set[str]:
    """The module's name, and every word of its code, but not of its docstrings and comments."""
    return {path.stem, *_WORD.findall(_PROSE.sub("", path.read_text()))}


def exists(name: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    module, _, last = name.rpartition(".")
    try:
        return not module or hasattr(importlib.import_module(module), last) or bool(importlib.import_module(name))
    except ModuleNotFoundError:
        return False


def test_each_word_of_the_glossary_is_there_once_and_marked_in_one_way() -> None:
    lines = [line for line in (DOCS / "glossary.md").read_text().splitlines() if line.startswith("- ")]
    assert [line for line in lines if not _ENTRY.match(line)] == []
    words = [entry[1] for line in lines if (entry := _ENTRY.match(line))]
    assert len(words) == len(set(words)) > 0


@pytest.mark.parametrize("picture", PICTURES, ids=named)
def test_a_picture_is_800_wide_told_in_words_and_written_large_enough_to_read(picture: Path) -> None:
    root = fromstring(picture.read_text())  # noqa: S314 - our own file
    assert root.get("viewBox", "").split()[:3] == ["0", "0", "800"]
    assert [bool(root.findtext(_SVG + told)) for told in ("title", "desc")] == [True, True]
    assert min(map(int, re.findall(r"font-size[:=] ?\"?(\d+)", picture.read_text()))) >= 12


def test_the_ways_of_a_message_have_the_same_letters_in_text_and_picture() -> None:
    root = fromstring((DOCS / "explanation/life-cycle.svg").read_text())  # noqa: S314 - our own file
    drawn = [element.text for element in root.iter(_SVG + "text") if element.get("class") == "letter"]
    told = [cells[0] for cells in table_below(DOCS / "explanation/life-cycle.md", "## The transitions")]
    assert sorted(told) == sorted(filter(None, drawn))
    assert len(set(told)) == len(told) > 0


def test_the_layout_names_the_types_of_columns_as_the_code_does() -> None:
    told = [cells[0] for cells in table_below(DOCS / "explanation/layout.md", "## Names")]
    parts = [re.match(r"(\d+) `(\w+)`", cell) for cell in told]
    assert [(int(part[1]), part[2]) for part in parts if part] == [(type_.value, type_.name) for type_ in Type]


def test_the_layout_names_the_states_of_columns_as_the_code_does() -> None:
    cells = table_below(DOCS / "explanation/layout.md", "The state of a timer")
    assert [(int(state), name.strip("`")) for state, name, _ in cells] == [(state.value, state.name) for state in State]


@pytest.mark.parametrize(("heading", "model"), [("## Layout", Layout), ("## Behaviour", Behaviour)])
def test_settings_have_the_defaults_and_bounds_of_the_models(heading: str, model: type[BaseModel]) -> None:
    told = {cells[1].strip("`"): tuple(cells[2:5]) for cells in table_below(DOCS / "reference/settings.md", heading)}
    assert {field: tuple(number(field, cell) for cell in cells) for field, cells in told.items()} == {
        field: (info.default, bound(info.metadata, "ge"), bound(info.metadata, "le"))
        for field, info in model.model_fields.items()
    }


def number(field: str, cell: str) -> int | bool | str | None:
    """A cell of the table as the model stores it; of two defaults the first."""
    cell, _, _ = cell.partition(_ON_CASSANDRA)
    if cell.startswith("`"):
        return cell.strip("`")
    if cell == "empty":
        return ""
    if cell in {"yes", "no", "none"}:
        return {"yes": True, "no": False}.get(cell)
    return as_microseconds(cell) if field.endswith("_us") else int(cell)


def test_the_layout_has_the_defaults_of_the_stores() -> None:
    cells = table_below(DOCS / "reference/settings.md", "## Layout")
    told = {cell[1].strip("`"): cell[2].split(_ON_CASSANDRA) for cell in cells}
    assert {field for field, defaults in told.items() if len(defaults) > 1} == {"time_shards", "concurrency_shards"}
    for store, spread in enumerate((Spread(), CassandraStore.spread)):
        for field, default in spread._asdict().items():
            assert number(field, told[field][min(store, len(told[field]) - 1)]) == default


def bound(metadata: list[object], kind: str) -> int | None:
    return next((getattr(one, kind) for one in metadata if hasattr(one, kind)), None)


@pytest.mark.parametrize(("heading", "asked"), [("## Layout", layout_of), ("## Behaviour", behaviour_of)])
def test_settings_go_by_the_names_that_a_queue_is_asked_for(
    heading: str, asked: Callable[[dict[str, object]], dict[str, object]]
) -> None:
    for option, field, *_ in table_below(DOCS / "reference/settings.md", heading):
        assert list(asked({option.strip("`"): 1})) == [field.strip("`")]


def test_the_options_of_a_sqlite_url_are_those_that_the_store_takes(clock: TimeMachine) -> None:
    told = {cells[0].strip("`") for cells in table_below(DOCS / "reference/url.md", "| option")}
    with pytest.raises(BadSetting, match=f"its options are: {', '.join(sorted(told))}$"):
        open_store("sqlite:///never.db?never=1", clock=clock)
