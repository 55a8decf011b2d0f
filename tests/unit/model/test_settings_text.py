"""Settings as people write them."""

from __future__ import annotations

from astyqueue.model.settings import setting_name, setting_text
from astyqueue.units import SECOND


def test_only_durations_are_spelled() -> None:
    assert setting_text("lease_us", 60 * SECOND) == "1m"
    assert setting_text("lease_us", "soon") == "soon"
    assert setting_text("priorities", 60) == 60
    assert [setting_name(field) for field in ("lease_us", "time_shard_us", "priorities")] == [
        "lease",
        "every",
        "priorities",
    ]
