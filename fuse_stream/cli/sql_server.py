"""`sql-server`: serve the tables in a folder to JDBC clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fuse_stream.cli.options import opening, storage_option, writes
from fuse_stream.cli.signals import first_signal
from fuse_stream.on_demand import OnDemand

if TYPE_CHECKING:
    from fuse_stream.spark import jdbc_server
else:
    jdbc_server = OnDemand("fuse_stream.spark.jdbc_server")


@click.command("sql-server")
@click.argument("root")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=10000,
    show_default=True,
    metavar="N",
    help="The port of this machine to listen on.",
)
@click.option(
    "--name",
    default="lake",
    show_default=True,
    metavar="NAME",
    help="The name of the catalog in SQL.",
)
@storage_option
@writes
def sql_server(root: str, port: int, name: str) -> None:
    """Serve the tables in the folder ROOT to JDBC clients, by Spark's SQL.

    It listens to this machine alone, and there is no authentication: whoever can connect can read,
    write and drop the tables. Each client begins in the catalog NAME. Ctrl-C or SIGTERM ends it.

    \b
    Example:
      fuse-stream sql-server /lake
      beeline -u jdbc:hive2://127.0.0.1:10000 -e 'SHOW TABLES'
    """  # noqa: D301 - click's mark for lines to keep
    click.echo("starting Spark", err=True)
    # Spark sets a handler of its own for Ctrl-C when it starts.
    with (
        jdbc_server.SqlServer(root, name=name, port=port, **opening()) as running,
        first_signal() as came,
    ):
        click.echo(
            f"serving {running.catalog.root} as {name} at {running.url}; there is no "
            "authentication: whoever can connect from this machine can write. Ctrl-C ends it",
            err=True,
        )
        came.wait()
        click.echo("stopping", err=True)
