"""`python -m astyqueue.testing.cassandra up` runs a local Cassandra until Ctrl-C."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from astyqueue.errors import AstyqueueError
from astyqueue.testing.cassandra.cluster import VERSION, LocalCassandra


@click.group()
def main() -> None:
    """Run a Cassandra on this machine."""


@main.command()
@click.option("--nodes", type=click.IntRange(1, 3), default=1, show_default=True, help="Number of nodes.")
@click.option(
    "--keyspace", default="astyqueue", show_default=True, help="The keyspace in the printed URL; it is not created."
)
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Keep the data here; without it they are deleted at the end."
)
@click.option("--version", default=VERSION, show_default=True, help="The release of Cassandra.")
def up(*, nodes: int, keyspace: str, directory: Path | None, version: str) -> None:
    """Start the nodes, print the URL, and keep them running until Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.echo(
        f"starting {nodes} Cassandra {version} node{'s' * (nodes > 1)} (the first time, Maven fetches 70 MB)", err=True
    )
    try:
        with LocalCassandra(nodes, directory=directory, version=version) as cluster:
            click.echo(cluster.url(keyspace))
            click.echo("press Ctrl-C to stop", err=True)
            signal.pause()
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    except AstyqueueError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m astyqueue.testing.cassandra")
