"""A whole run from its plan to its report."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from astyqueue.units import SECOND
from tests.ring import recovery
from tests.ring.checks import CheckResult, check_run
from tests.ring.observations import read
from tests.ring.rate_windows import Window
from tests.ring.recovery import Figures, recoveries
from tests.ring.run import Plan, Progress, RunResult, run_plan


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run."""

    result: CheckResult
    faults: list[Figures]
    seconds: float
    windows: list[Window]

    @property
    def figures(self) -> Figures:
        """The whole report, as it is written to a JSON file."""
        result = self.result
        return {
            "seconds": self.seconds,
            "sent": result.sent,
            "sends_unknown": result.unknown,
            "sends_refused": result.refused,
            "handled": result.handled,
            "rejected": result.rejected,
            "lost": result.lost,
            "duplicates": len(result.duplicates),
            "in_flight_at_the_faults": sum(result.in_flight),
            "violations": result.violations,
            "causes": _causes(result, self.faults),
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
        causes = (f"{count} duplicates: {cause}" for cause, count in _causes(self.result, self.faults).items())
        windows = ("  ".join(f"{name} {value:,.1f}" for name, value in window.items()) for window in self.windows)
        return "\n".join([recovery.table(self.faults), "", *windows, summary, *causes, *self.result.violations])


def _causes(result: CheckResult, faults: list[Figures]) -> dict[str, int]:
    """How many duplicates each cause has: the fault, and what became of the first of the two deliveries."""
    causes = ("unexplained" if one.cause is None else faults[one.cause]["fault"] for one in result.duplicates)
    explanations = (one.explanation for one in result.duplicates)
    return dict(Counter(f"{fault}; the first delivery {why}" for fault, why in zip(causes, explanations, strict=True)))


def run(plan: Plan, report_progress: Progress, *, keep: Path | None = None) -> Report:
    """Run the plan and check the run; the journals stay in the directory `keep`, or are deleted if there is none."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        return report_of(run_plan(plan, keep, report_progress))
    with tempfile.TemporaryDirectory(prefix="astyqueue-ring-") as directory:
        return report_of(run_plan(plan, Path(directory), report_progress))


def report_of(run_result: RunResult) -> Report:
    """The report on a run that has ended."""
    observations = read(run_result.journals)
    result = check_run(run_result, observations)
    return Report(
        result,
        recoveries(run_result, observations, result),
        round((run_result.ended - run_result.began) / SECOND, 1),
        run_result.windows,
    )
