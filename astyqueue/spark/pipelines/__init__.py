"""From the history of queues to tables one can ask: attempts, messages, facts, failures, schedules; and a report of them."""

from astyqueue.spark.pipelines.job import Built, Job, Span
from astyqueue.spark.pipelines.live import Stream
from astyqueue.spark.pipelines.objectives import Objective, Objectives

__all__ = ["Built", "Job", "Objective", "Objectives", "Span", "Stream"]
