"""`astyqueue workers`: the worker processes of a store, and commands to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from astyqueue.cli.context import Session, on_store

if TYPE_CHECKING:
    from astyqueue.cli.output import Record
    from astyqueue.model.presence import Presence

#: What the group does without the name of a command.
_USUAL: Final = "list"
#: Queues that the table names.
_QUEUES: Final = 5


class _ListsByDefault(click.Group):
    """A group whose options, without the name of a command, are those of its command `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add the name of the command that lists."""
        helps = bool(args) and args[0] in ctx.help_option_names
        named = bool(args) and not args[0].startswith("-")
        return super().parse_args(ctx, args if helps or named else [_USUAL, *args])


@click.group(
    cls=_ListsByDefault,
    short_help="List the workers of the store, drain them, look into them.",
    epilog="""\b
    astyqueue workers
    astyqueue workers drain web-1:812:9f2c01
    astyqueue workers stacks web-1
    """,
)
def workers() -> None:
    """List the workers of the store, or have them do something. Without a command, it lists them.

    A worker carries out a command at its next heartbeat, by default within 15 seconds. NAME is its name, or a prefix
    that only its name has.
    """


@workers.command(
    name=_USUAL,
    short_help="List the workers of the store, and what they run.",
    help="""List the worker processes and dispatchers that reported to the store lately, and what they run.

    A worker reports at each heartbeat, by default every 15 seconds. After three missed ones it is marked stale (it was
    killed, is suspended, or cannot reach the store); after twelve it is no longer listed. A worker that ends by itself
    removes its report at once.
    """,
)
@on_store
def list_workers(session: Session) -> None:
    """Print the reports."""
    from astyqueue.clock import microseconds

    now = microseconds(session.output.now)
    found = sorted(session.connection.workers(), key=lambda one: (one.stale(now), one.name))
    session.output.listing(
        found,
        shown=lambda one: _row(one, now),
        as_json=lambda one: one.as_json(now),
        none="no worker has reported lately",
    )


def _row(one: Presence, now: int) -> Record:
    named = ",".join(f"{queue}{_marks(one, queue)}" for queue in one.queues[:_QUEUES])
    more = one.queue_count - len(one.queues[:_QUEUES])
    oldest = one.running[0] if one.running else None
    return {
        "name": one.name,
        "state": "stale" if one.stale(now) else one.state.value,
        "seen": f"{_since(one.seen, now)} ago",
        "up": _since(one.started, now),
        "busy": one.load,
        "oldest_task": f"{oldest.task} for {_since(oldest.since, now)}" if oldest else None,
        "queues": f"{named} and {more} more" if more > 0 else named,
        "version": one.version,
    }


def _marks(one: Presence, queue: str) -> str:
    """What is special about a worker in one of its queues, in brackets."""
    limit = [f"at most {one.limits[queue]}"] if queue in one.limits else []
    marks = [*limit, *(["standby"] if queue in one.standby else [])]
    return f" ({', '.join(marks)})" if marks else ""


def _since(moment: int, now: int) -> str:
    """The whole seconds since a moment."""
    from astyqueue.text import length_text
    from astyqueue.units import SECOND

    return length_text(max(0, now - moment) // SECOND * SECOND)


def _when(one: Presence, now: int) -> str:
    """When a worker follows a command; one that is stale may be dead."""
    from astyqueue.protocol.coordination.presence import COMMAND_KEPT
    from astyqueue.text import length_text
    from astyqueue.units import SECOND

    if not one.stale(now):
        return f"does within {length_text(one.every)}"
    kept = length_text(COMMAND_KEPT * SECOND)
    return f"has not reported for {_since(one.seen, now)}, and does so only if it reports again within {kept}"


def _command(name: str, does: str) -> None:
    """Add the command of this name, which has each named worker do something."""

    @workers.command(name=name, short_help=f"Have workers {does}.", help=f"Have each worker NAME {does}.")
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    @on_store
    def command(session: Session, *, names: tuple[str, ...]) -> None:
        from astyqueue.clock import microseconds
        from astyqueue.model.presence import named

        listed, now = session.connection.workers(), microseconds(session.output.now)
        for one in [named(wanted, listed) for wanted in names]:
            session.connection.command(one.name, name)
            session.output.done(
                f"{one.name} was asked to {does}; it {_when(one, now)}", {"worker": one.name, "command": name}
            )


_command("drain", "claim no more, finish what runs, and end")
_command("quiet", "claim no more, finish what runs, and wait for `resume`")
_command("resume", "claim again, after `quiet`")
_command("stacks", "log the stacks of its threads")
