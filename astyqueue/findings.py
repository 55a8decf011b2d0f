"""Findings of an examination: severity, fact, reason and remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum


class Severity(IntEnum):
    """How bad a finding is; of several the greatest counts."""

    OK = 0
    NOTE = 1
    WARNING = 2
    PROBLEM = 3

    @property
    def word(self) -> str:
        """The severity as text: "ok", "note", "warning" or "problem"."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. If the severity is OK, `reason` and `remedy` are empty.

    `see` is the page of the documentation, and the heading on it, with the details of a remedy.
    """

    subject: str
    severity: Severity
    fact: str
    reason: str = ""
    remedy: str = ""
    see: str = field(default="", kw_only=True)

    def as_json(self) -> dict[str, str]:
        """The finding as JSON."""
        return {
            "subject": self.subject,
            "severity": self.severity.word,
            "fact": self.fact,
            "reason": self.reason,
            "remedy": self.remedy,
            "see": self.see,
        }


def ok(subject: str, fact: str) -> Finding:
    """A finding of severity OK."""
    return Finding(subject, Severity.OK, fact)


def note(subject: str, fact: str, reason: str, *, remedy: str = "", see: str = "") -> Finding:
    """A finding of severity NOTE: no action is needed."""
    return Finding(subject, Severity.NOTE, fact, reason, remedy, see=see)


def worst(findings: Iterable[Finding]) -> Severity:
    """The severity of the worst of them; OK if there are none."""
    return max((finding.severity for finding in findings), default=Severity.OK)
