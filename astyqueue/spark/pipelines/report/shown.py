"""The figures of a report in a line, for terminals and programs."""

from __future__ import annotations

from collections.abc import Mapping

from astyqueue.spark.pipelines.report.figures import Figures
from astyqueue.spark.pipelines.report.wording import length, share


def in_short(figures: Figures) -> Mapping[str, object]:
    """What became of a queue's messages, and how long 95 of 100 took."""
    counts = figures.counts()
    named = {"queue": figures.queue, **{name: counts[name] for name in ("sent", "done", "dead", "retried", "expired")}}
    lengths = {f"{name}_p95": length(summary.parts[1] if summary.parts else None) for name, summary in figures.lengths().items()}
    met, of = figures.total("objective_met"), figures.total("objective_of")
    return {**named, **lengths, "met": f"{share(met, of)} {figures.objective}"}
