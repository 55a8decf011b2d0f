"""Findings as people read them: a line each, and below it why it matters and what to do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from astyqueue.cli.output import json_line
from astyqueue.findings import Finding, Severity
from astyqueue.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS: Final = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}
_WIDTH: Final = max(len(severity.word) for severity in Severity)


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print them on stdout, and how many there are of each kind."""
    if as_json:
        for finding in findings:
            click.echo(json_line(finding.as_json()))
        return
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(_table(findings))
    else:
        click.echo("\n".join(_lines(findings)))
    click.echo(f"\n{_summary(findings)}")


def _parts(finding: Finding) -> list[tuple[str, str]]:
    """What is said below the fact, under its title."""
    said = (("why", finding.reason), ("do", finding.remedy), ("see", finding.see))
    return [(title, printable(text)) for title, text in said if text]


def _lines(findings: Iterable[Finding]) -> Iterable[str]:
    for finding in findings:
        yield f"{finding.severity.word:<{_WIDTH}}  {printable(f'{finding.subject}: {finding.fact}')}"
        for title, text in _parts(finding):
            yield f"{'':<{_WIDTH}}    {title + ':':<4} {text}"


def _table(findings: Iterable[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        told = Text.assemble((f"{printable(finding.subject)}: ", "bold"), printable(finding.fact))
        for title, text in _parts(finding):
            told.append(f"\n{title}: ", "dim").append(text)
        table.add_row(Text(finding.severity.word, _COLOURS[finding.severity]), told)
    return table


def _summary(findings: Iterable[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    told = [_counted(counts[severity], severity.word) for severity in reversed(Severity) if counts[severity] and severity > Severity.OK]
    return f"{_counted(counts.total(), 'thing')} looked at: {', '.join(told) or 'all well'}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
