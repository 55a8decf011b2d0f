"""Divides a worker's threads among its queues."""

from __future__ import annotations

from collections.abc import Mapping

from astyqueue.errors import BadInput


def shares(weights: Mapping[str, int], threads: int) -> dict[str, int]:
    """Threads for each queue in proportion to its weight, at least one; the rest go to the greatest remainders.

    Queues do not share threads, so that a flood in one never starves another.
    """
    if wrong := [f"{name}:{weight}" for name, weight in weights.items() if weight < 1]:
        message = f"a queue's weight must be a whole number of at least 1, and these are not: {', '.join(wrong)}"
        raise BadInput(message)
    if threads < len(weights):
        message = (
            f"concurrency {threads} is less than the number of queues, {len(weights)} ({', '.join(weights)}), "
            f"and each needs a thread: raise the concurrency to {len(weights)} or more (-c), or serve fewer queues (-Q)"
        )
        raise BadInput(message)
    whole = sum(weights.values())
    spare = threads - len(weights)
    given = {name: 1 + spare * weight // whole for name, weight in weights.items()}
    neediest = sorted(weights, key=lambda name: spare * weights[name] % whole, reverse=True)
    for name in neediest[: threads - sum(given.values())]:
        given[name] += 1
    return given
