"""The `esker` command: one module per verb."""

from __future__ import annotations

import typer

from esker import __version__
from esker.cli import journal, pipeline, serve, settings
from esker.cli.start import interrupt_as_usual

app = typer.Typer(
    name="esker",
    help="Esker: durable priority queues that any Redis client can use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"esker {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Esker: durable priority queues that any Redis client can use."""
    interrupt_as_usual()


app.command(name="serve")(serve.serve)
app.command(name="settings")(settings.show)
app.add_typer(journal.app, name="journal")
app.add_typer(pipeline.app, name="pipeline")

if __name__ == "__main__":
    app()
