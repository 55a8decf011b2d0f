"""Examines a whole journal: every record, the order of sequences and moments, and the indexes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from astyqueue.findings import Finding, Severity, note, ok
from astyqueue.journal.format import RECORDS_AT, Entry, Kind
from astyqueue.journal.pages import Pages
from astyqueue.text import counted

_SEE: Final = "docs/how-to/journal.md#damage"
_RESTORE: Final = "restore the page from a backup, or accept the loss: readers pass it and go on behind it"


def verified(pages: Pages, numbers: tuple[int, ...], limit: Callable[[int], int | None]) -> list[Finding]:
    """What is damaged, from the first page on; one finding of severity OK if nothing is.

    `limit` gives the offset up to which a page may be read while it is written.
    """
    examination = _Examination(pages)
    for before, number in zip((None, *numbers), numbers, strict=False):
        if before is not None and number != before + 1:
            examination.problem(f"page {number}", f"pages {before + 1} to {number - 1} are missing")
        examination.page(number, limit(number), is_last=number == numbers[-1])
    summary = f"{counted(examination.records, 'record')} in {counted(len(numbers), 'page')} can be read"
    return [*examination.findings, *([] if examination.findings else [ok("journal", summary)])]


class _Examination:
    def __init__(self, pages: Pages) -> None:
        self.findings: list[Finding] = []
        self.records = 0
        self._pages = pages
        self._last: Entry | None = None

    def problem(self, subject: str, fact: str, severity: Severity = Severity.PROBLEM) -> None:
        reason = "the disk lost or changed what was written, or files were changed by hand"
        self.findings.append(Finding(subject, severity, fact, reason, _RESTORE, see=_SEE))

    def page(self, number: int, limit: int | None, *, is_last: bool) -> None:
        subject = f"page {number}"
        reader = self._pages.reader(number)
        if reader is None:
            self._unreadable(number, is_last=is_last)
            return
        with contextlib.closing(reader):
            while entries := reader.read(limit):
                for entry in entries:
                    self._entry(subject, entry)
            for damage in reader.damage:
                self.problem(subject, str(damage))
            rest = reader.rest(limit)
            if rest is not None and is_last:
                self._torn(subject, rest.size)
            elif rest is not None:
                self.problem(subject, str(rest))
        self._index(number)

    def _entry(self, subject: str, entry: Entry) -> None:
        last, self._last = self._last, entry
        self.records += entry.kind in (Kind.WHOLE, Kind.LAST)
        if last is not None and (entry.sequence < last.sequence or entry.arrived < last.arrived):
            self.problem(subject, f"record {entry.sequence} follows record {last.sequence}: they are out of order")

    def _unreadable(self, number: int, *, is_last: bool) -> None:
        with contextlib.suppress(FileNotFoundError), contextlib.closing(self._pages.open(number)) as file:
            if is_last and file.size() <= RECORDS_AT:
                self._torn(f"page {number}", file.size())
            else:
                self.problem(f"page {number}", f"its header cannot be read, {file.size()} bytes are lost")

    def _torn(self, subject: str, size: int) -> None:
        fact = f"{size} bytes behind the last whole record are not one"
        reason = "a record is being written, or the writer died while it wrote one"
        self.findings.append(note(subject, fact, reason, remedy="they are cut when the journal is opened for writing"))

    def _index(self, number: int) -> None:
        header = self._pages.header(number)
        if header is None or not self._pages.has_damaged_index(header):
            return
        reason = "searches read this page from its start"
        remedy = f"delete {self._pages.index_path(number).name}: it is made again from the records when it is needed"
        self.findings.append(note(f"page {number}", "its index is damaged or of another page", reason, remedy=remedy))
