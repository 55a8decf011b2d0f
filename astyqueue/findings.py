"""What an examination finds: how bad it is, the fact, why it matters, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum


class Severity(IntEnum):
    """How bad a finding is; the greatest counts."""

    OK = 0
    NOTE = 1
    WARNING = 2
    PROBLEM = 3

    @property
    def word(self) -> str:
        """As it is written: "ok", "note", "warning" or "problem"."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. What is as it should be needs neither reason nor remedy.

    `see` is the page of the documentation, and the heading on it, that says more than a remedy can.
    """

    subject: str
    severity: Severity
    fact: str
    reason: str = ""
    remedy: str = ""
    see: str = field(default="", kw_only=True)

    def as_json(self) -> dict[str, str]:
        """The same as JSON."""
        return {
            "subject": self.subject,
            "severity": self.severity.word,
            "fact": self.fact,
            "reason": self.reason,
            "remedy": self.remedy,
            "see": self.see,
        }


def ok(subject: str, fact: str) -> Finding:
    """Something is as it should be."""
    return Finding(subject, Severity.OK, fact)


def note(subject: str, fact: str, reason: str, *, remedy: str = "", see: str = "") -> Finding:
    """Something to know; nothing need be done about it."""
    return Finding(subject, Severity.NOTE, fact, reason, remedy, see=see)


def worst(findings: Iterable[Finding]) -> Severity:
    """The severity of the worst of them; OK if there are none."""
    return max((finding.severity for finding in findings), default=Severity.OK)
