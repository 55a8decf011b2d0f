"""Makes messages that landed behind all scans deliverable, as steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from astyqueue.durations import instant_of
from astyqueue.errors import Undecodable
from astyqueue.model.views import RescanReport
from astyqueue.protocol.row.rescan import RowRescan
from astyqueue.protocol.steps import Steps
from astyqueue.queue.runtime import QueueRuntime


def rescan(
    core: QueueRuntime,
    since: datetime | None,
    *,
    progress: Callable[[RescanReport], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Steps[RescanReport]:
    """Rescan row by row, from `since` on (None: everything).

    `progress` is called after every page, and `cancelled` before each.
    """
    report = RescanReport()
    begin = None if since is None else instant_of(since)
    for row in core.ring.rows():
        scan = RowRescan(core.process, row, core.settings.layout.priorities, begin)
        before = report
        while not scan.over and not cancelled():
            try:
                yield from scan.go_on()
            except Undecodable:
                report = before + RescanReport(0, scan.looked, scan.listed, (row,))
                break
            report = before + RescanReport(int(scan.over), scan.looked, scan.listed)
            if progress:
                progress(report)
        if scan.listed:
            core.claimer.changed(row)
    return report
