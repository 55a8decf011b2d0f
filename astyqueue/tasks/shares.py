"""How a worker's threads are shared out among its queues."""

from __future__ import annotations

from collections.abc import Mapping

from astyqueue.errors import BadInput


def shares(weights: Mapping[str, int], threads: int) -> dict[str, int]:
    """Threads for each queue in proportion to its weight, at least one each; what is left over goes to the greatest remainders.

    Threads are not lent between queues, so a flood in one never starves another.
    """
    if wrong := [f"{name}:{weight}" for name, weight in weights.items() if weight < 1]:
        message = f"a queue's weight is a whole number from 1 up, and this is not: {', '.join(wrong)}"
        raise BadInput(message)
    if threads < len(weights):
        message = (
            f"{threads} threads do not go round {len(weights)} queues ({', '.join(weights)}), each needs one of its own: "
            f"raise the concurrency to {len(weights)} or more (-c), or name fewer queues to serve (-Q)"
        )
        raise BadInput(message)
    whole = sum(weights.values())
    spare = threads - len(weights)
    given = {name: 1 + spare * weight // whole for name, weight in weights.items()}
    neediest = sorted(weights, key=lambda name: spare * weights[name] % whole, reverse=True)
    for name in neediest[: threads - sum(given.values())]:
        given[name] += 1
    return given
