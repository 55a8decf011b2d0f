"""A whole run from its plan to its report."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from astyqueue.units import SECOND
from tests.ring import observations, recovery
from tests.ring.checks import Verdict, judge
from tests.ring.recovery import Figures, recoveries
from tests.ring.run import Plan, Played, Tell, play
from tests.ring.windows import Window


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run."""

    verdict: Verdict
    faults: list[Figures]
    seconds: float
    windows: list[Window]

    @property
    def figures(self) -> Figures:
        """The whole report, as it is written to a JSON file."""
        verdict = self.verdict
        return {
            "seconds": self.seconds,
            "sent": verdict.sent,
            "sends_unknown": verdict.unknown,
            "sends_refused": verdict.refused,
            "handled": verdict.handled,
            "rejected": verdict.rejected,
            "lost": verdict.lost,
            "doubles": len(verdict.doubles),
            "in_flight_at_the_faults": sum(verdict.in_flight),
            "violations": verdict.violations,
            "causes": _causes(verdict, self.faults),
            "faults": self.faults,
            "windows": self.windows,
        }

    def __str__(self) -> str:
        figures = self.figures
        summary = ", ".join(
            f"{name.replace('_', ' ')} {figures[name]}"
            for name in figures
            if name not in ("violations", "causes", "faults", "windows")
        )
        causes = (f"{count} doubles: {cause}" for cause, count in _causes(self.verdict, self.faults).items())
        windows = ("  ".join(f"{name} {value:,.1f}" for name, value in window.items()) for window in self.windows)
        return "\n".join([recovery.table(self.faults), "", *windows, summary, *causes, *self.verdict.violations])


def _causes(verdict: Verdict, faults: list[Figures]) -> dict[str, int]:
    """How many doubles each cause has: the fault, and what became of the first of the two deliveries."""
    named = (
        ("unexplained" if double.cause is None else faults[double.cause]["fault"], double) for double in verdict.doubles
    )
    return dict(Counter(f"{fault}; the first delivery {double.told}" for fault, double in named))


def run(plan: Plan, answer: Tell, *, keep: Path | None = None) -> Report:
    """Run the plan and judge it; the journals stay in the directory `keep`, or are deleted if there is none."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        return judged(play(plan, keep, answer))
    with tempfile.TemporaryDirectory(prefix="astyqueue-ring-") as directory:
        return judged(play(plan, Path(directory), answer))


def judged(played: Played) -> Report:
    """The report on a run that has ended."""
    told = observations.read(played.journals)
    verdict = judge(played, told)
    return Report(
        verdict, recoveries(played, told, verdict), round((played.ended - played.began) / SECOND, 1), played.windows
    )
