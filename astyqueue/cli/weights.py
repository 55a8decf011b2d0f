"""Queues and their weights, as they are written on the command line: `emails:3,default`."""

from __future__ import annotations

import click


class Weights(click.ParamType):
    """A weight for each queue; one that is not said is 1."""

    name = "queues"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int]:
        """The weights in a text."""
        weights: dict[str, int] = {}
        for part in str(value).split(","):
            name, separator, weight = part.strip().partition(":")
            if not name or (separator and not weight.isdecimal()):
                self.fail(f"{part!r} is not a queue, or a queue and its weight: write emails:3,default", param, ctx)
            if name in weights:
                self.fail(f"queue {name!r} is named twice", param, ctx)
            weights[name] = int(weight) if separator else 1
        return weights
