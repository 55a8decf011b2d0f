"""Help is quick, and says how everything is called."""

from __future__ import annotations

import click

ENOUGH_MS = 300


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    """Every command, as it is typed."""
    context = click.Context(group)
    found: list[tuple[str, ...]] = [path]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found += commands(command, *path, name) if isinstance(command, click.Group) else [(*path, name)]
    return found
