"""`esker journal`: looking at a shard's journal on disk, and repairing one that opening refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from esker.errors import EskerError
from esker.journal.repair import JournalReport, inspect, repair
from esker.node.directory import STORE_NAME, DataDirectory
from esker.store.checkpoint import stored_meta
from esker.store.rocksdb import RocksStore

EXIT_DAMAGED = 1
EXIT_UNUSABLE = 2

app = typer.Typer(name="journal", help="Check or repair a journal directory.", no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory that holds the .segment files.")]


@app.command()
def check(directory: Directory) -> None:
    """Say what a journal holds and what is damaged. Changes nothing; exits with 1 when a repair is needed."""
    console = Console(soft_wrap=True)
    report = _inspected(directory, _covered(directory))
    _show(console, report)
    if not report.sound:
        console.print(f"`esker journal repair {escape(str(directory))}` makes a journal of what can be kept.")
        raise typer.Exit(EXIT_DAMAGED)


@app.command("repair")
def repair_journal(
    directory: Directory,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before giving up what is lost.")] = False,
) -> None:
    """Keep what can be kept and set the rest aside as *.damaged. Stop the broker first.

    That is everything before the first damage; or, where the last checkpoint has all of that and of what is damaged,
    everything behind the checkpoint.
    """
    with _brokers_kept_out(directory):
        _repair(Console(soft_wrap=True), directory, yes)


def _repair(console: Console, directory: Path, yes: bool) -> None:
    covered = _covered(directory)
    report = _inspected(directory, covered)
    _show(console, report)
    if report.sound:
        console.print("Nothing to repair.")
        return
    if report.loss is not None and not yes:
        typer.confirm("Give up what is lost?", abort=True)
    try:
        result = repair(directory, covered)
    except (EskerError, OSError) as error:
        _refuse(error)
    for path in result.set_aside:
        console.print(f"set aside: {escape(str(path))}")
    console.print(f"The journal now ends with position {result.report.kept_upto}.")


@contextmanager
def _brokers_kept_out(directory: Path) -> Iterator[None]:
    """Holds the lock of the data directory that the journal belongs to, if any."""
    if not (directory.parent / "lock").exists():
        yield
        return
    try:
        held = DataDirectory(directory.resolve().parent)
    except EskerError as error:
        _refuse(error)
    with closing(held):
        yield


def _covered(directory: Path) -> int:
    """The position of the last checkpoint in the data directory that the journal belongs to; 0 when there is none."""
    store = directory.resolve().parent / STORE_NAME
    if not (store / "CURRENT").exists():  # RocksDB's own first file
        return 0
    try:
        with closing(RocksStore(store, read_only=True)) as opened:
            meta = stored_meta(opened)
    except EskerError as error:
        _refuse(error)
    return 0 if meta is None else meta.position


def _inspected(directory: Path, covered: int) -> JournalReport:
    try:
        return inspect(directory, covered)
    except EskerError as error:
        _refuse(error)


def _refuse(error: Exception) -> NoReturn:
    Console(stderr=True, soft_wrap=True).print(f"[red]{escape(str(error))}[/red]")
    raise typer.Exit(EXIT_UNUSABLE) from error


def _show(console: Console, report: JournalReport) -> None:
    table = Table("segment", "positions", "bytes")
    for segment in report.segments:
        empty = segment.last_position < segment.first_position
        table.add_row(
            escape(segment.path.name),
            "none" if empty else f"{segment.first_position} to {segment.last_position}",
            f"{segment.bytes:,}",
        )
    console.print(table)
    for damage in report.damage:
        kind = "[yellow]torn tail[/yellow]" if damage.torn else "[red]damage[/red]"
        where = f"{escape(str(damage.path))} at offset {damage.offset}, {damage.bytes} bytes"
        console.print(f"{kind}: {where}: {escape(damage.what)}")
    _show_verdict(console, report)


def _show_verdict(console: Console, report: JournalReport) -> None:
    if report.loss is None and not report.sound:
        console.print(
            "Nothing is lost: the last checkpoint has what is damaged, and behind it the journal is good, up to "
            f"position {report.kept_upto}."
        )
        return
    if report.loss is None:
        torn = " Opening cuts the torn tail, of which nothing was promised." if report.damage else ""
        console.print(f"The journal is sound up to position {report.kept_upto}.{torn}")
        return
    loss = report.loss
    upto = f"to {loss.last_position}" if loss.last_position is not None else "on (how many is not known)"
    console.print(f"Kept up to position {report.kept_upto}. Lost: positions {loss.first_position} {upto},")
    console.print(
        f"among them {loss.readable_batches} batches ({loss.readable_bytes} bytes) behind the damage that are good "
        "themselves but cannot be kept without those before them."
    )
