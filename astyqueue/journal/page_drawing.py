"""Draws a page and its first records as SVG, from the bytes of a real file."""

from __future__ import annotations

import contextlib
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from astyqueue.clock import instant
from astyqueue.errors import NotFound
from astyqueue.journal.format import BODY, OVERHEAD, PREFIX, RECORDS_AT, Entry, Kind, PageHeader
from astyqueue.journal.pages import Pages
from astyqueue.printable import printable
from astyqueue.text import iso

_WIDTH: Final = 800
_MARGIN: Final = 20
_INSIDE: Final = _WIDTH - 2 * _MARGIN
#: Records that are drawn with their fields, and characters of a payload.
_SHOWN: Final = 4
_PREVIEW: Final = 24
_KINDS: Final = {Kind.WHOLE: "whole", Kind.FIRST: "first part", Kind.MIDDLE: "middle part", Kind.LAST: "last part"}
_STYLE: Final = (
    "text{font-family:ui-monospace,monospace;font-size:12px;fill:#1f2933}.title{font-weight:bold}.dim{fill:#616e7c}"
    "rect{stroke:#3e4c59}.header{fill:#d9e2ec}.field{fill:#f0f4f8}.payload{fill:#e3f8ff}.even{fill:#81d4fa}"
    ".odd{fill:#4fc3f7}.free{fill:none;stroke-dasharray:4}.mark{stroke:#ba2525;stroke-width:2}"
)


class _Field(NamedTuple):
    name: str
    size: str
    value: str
    width: int
    style: str = "field"


def page_picture(pages: Pages, number: int | None = None) -> str:
    """The SVG of a page, by default the last one: how full it is, and the fields of its first records.

    NotFound if there is no such page, or if its header cannot be read.
    """
    numbers = pages.refresh()
    wanted = (numbers[-1] if numbers else 1) if number is None else number
    reader = pages.reader(wanted)
    if reader is None:
        there = f"there are pages {numbers[0]} to {numbers[-1]}" if numbers else "it has no page yet"
        message = f"journal {pages.prefix!r} has no readable page {wanted}: {there}"
        raise NotFound(message)
    with contextlib.closing(reader):
        entries: list[Entry] = []
        while found := reader.read():
            entries += found
    index = pages.index(wanted)
    drawing = _Drawing(pages.path(wanted).name, reader.header)
    drawing.overview(entries, [mark.offset for mark in index.marks] if index else [])
    drawing.page_header()
    for entry in entries[:_SHOWN]:
        drawing.record(entry)
    return drawing.svg(len(entries) - _SHOWN)


class _Drawing:
    """Lines of SVG, from the top down."""

    def __init__(self, name: str, header: PageHeader) -> None:
        self._name = name
        self._header = header
        self._lines: list[str] = []
        self._y = 28

    def _text(self, x: float, y: float, text: str, style: str = "") -> None:
        self._lines.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(printable(text))}</text>')

    def _rect(self, x: float, y: float, width: float, height: float, *, style: str) -> None:
        self._lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" class="{style}"/>')

    def overview(self, entries: list[Entry], marks: list[int]) -> None:
        """The whole page to scale: header, records, what is free, and a line for each entry of the index."""
        size = self._header.page_size
        end = entries[-1].end if entries else RECORDS_AT
        self._text(_MARGIN, self._y, f"{self._name}: {len(entries)} records, {end:,} of {size:,} bytes", "title")
        top, scale = self._y + 14, _INSIDE / size
        self._rect(_MARGIN, top, _INSIDE, 34, style="free")
        self._rect(_MARGIN, top, max(1.0, RECORDS_AT * scale), 34, style="header")
        starts = [entry.offset for entry in entries]
        # Records narrower than a pixel are drawn together.
        step = max(1, round(len(starts) / _INSIDE)) if starts else 1
        for place, (begin, after) in enumerate(pairwise([*starts[::step], end] if starts else [])):
            style = "odd" if place % 2 else "even"
            self._rect(_MARGIN + begin * scale, top, (after - begin) * scale, 34, style=style)
        for mark in marks:
            x = _MARGIN + mark * scale
            self._lines.append(f'<line x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{top + 38}" class="mark"/>')
        self._text(_MARGIN, top + 54, "to scale; red: where the index says that a record begins", "dim")
        self._y = top + 88

    def page_header(self) -> None:
        """The fields of the page's header."""
        header = self._header
        self._row(
            f"bytes 0 to {RECORDS_AT}: the header, twice",
            [
                _Field("magic", "8", "astyjrnl", 140, "header"),
                _Field("version", "4", "1", 140, "header"),
                _Field("salt", "4", f"{header.salt:08x}", 190, "header"),
                _Field("page size", "8", f"{header.page_size:,}", 290, "header"),
            ],
        )
        self._y -= 24
        self._row(
            "",
            [
                _Field("number", "8", str(header.number), 140, "header"),
                _Field("first sequence", "8", str(header.first_sequence), 140, "header"),
                _Field("first arrival", "8", iso(instant(header.first_arrival)), 190, "header"),
                _Field("last before", "8", str(header.last_before), 140, "header"),
                _Field("checksum", "4", "CRC-32", 150, "header"),
            ],
        )

    def record(self, entry: Entry) -> None:
        """The fields of one record."""
        payload = entry.payload.decode(errors="replace")
        shown = payload if len(payload) <= _PREVIEW else f"{payload[: _PREVIEW - 1]}…"
        self._row(
            f"bytes {entry.offset:,} to {entry.end:,}: record {entry.sequence}",
            [
                _Field("length", str(PREFIX.size // 2), str(entry.end - entry.offset), 82),
                _Field("checksum", str(PREFIX.size // 2), "CRC-32", 98),
                _Field("sequence", "8", str(entry.sequence), 98),
                _Field("arrival", "8", iso(instant(entry.arrived)), 185),
                _Field("kind, mark", str(BODY.size - 16), _KINDS[Kind(entry.kind)], 113),
                _Field("payload", f"{entry.end - entry.offset - OVERHEAD:,}", shown, 184, "payload"),
            ],
        )

    def _row(self, title: str, fields: list[_Field]) -> None:
        if title:
            self._text(_MARGIN, self._y, title, "title")
        x, top = _MARGIN, self._y + 10
        for field in fields:
            self._rect(x, top, field.width, 44, style=field.style)
            self._text(x + 6, top + 18, f"{field.name} ({field.size})", "dim")
            self._text(x + 6, top + 36, field.value)
            x += field.width
        self._y = top + 72

    def svg(self, more: int) -> str:
        """The picture; `more` records were not drawn with their fields."""
        if more > 0:
            self._text(_MARGIN, self._y - 8, f"and {more:,} more records; numbers in brackets are bytes", "dim")
        body = "\n".join(self._lines)
        height = self._y + 8
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">\n'
            f"<title>{escape(printable(self._name))}</title>\n"
            "<desc>A page of a journal: how full it is, and the fields of its header and its first records.</desc>\n"
            f'<style>{_STYLE}</style>\n<rect width="{_WIDTH}" height="{height}" style="fill:#fff;stroke:none"/>\n'
            f"{body}\n</svg>\n"
        )
